"""OpenAI's chat protocol: requests in, bytes out."""

import json
from typing import Any

import pytest

from serve_app.chat import (
    ApiError,
    ChatRequest,
    EventWriter,
    completion,
    error_event,
    parse_chat_request,
)
from serve_app.engine import Chunk, Message

CHUNKS = [
    Chunk("one ", 1, None, 3),
    Chunk('two "quoted" ', 2, None, 3),
    Chunk("ünicode", 1, "length", 3),
]


def parsed(**changes: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **changes}
    return parse_chat_request(json.dumps(body).encode())


def events(include_usage: bool, chunks: list[Chunk] = CHUNKS) -> list[Any]:
    writer = EventWriter("id-1", 7, 'a "model"', include_usage)
    stream = b"".join(writer.event(chunk) for chunk in chunks).decode()
    assert stream.endswith("data: [DONE]\n\n")
    payloads = [event.removeprefix("data: ") for event in stream.split("\n\n")[:-2]]
    return [json.loads(payload) for payload in payloads]


def test_the_stream_opens_with_the_role_then_carries_text_and_its_reason() -> None:
    choices = [event["choices"][0] for event in events(include_usage=False)]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""},
        {"content": "one "},
        {"content": 'two "quoted" '},
        {"content": "ünicode"},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "length"]


def test_every_event_names_answer_model_and_time() -> None:
    for event in events(include_usage=False):
        assert (event["id"], event["created"], event["model"]) == ("id-1", 7, 'a "model"')
        assert event["object"] == "chat.completion.chunk"
        assert "usage" not in event


def test_usage_comes_last_where_asked_and_null_before() -> None:
    *before, last = events(include_usage=True)
    assert all(event["usage"] is None for event in before)
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_an_end_without_text_has_an_empty_delta() -> None:
    ended = events(False, [Chunk("one ", 1, None, 3), Chunk("", 0, "stop", 3)])
    assert ended[-1]["choices"][0]["delta"] == {}
    assert ended[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_whole_answer_has_text_reason_and_usage() -> None:
    body = json.loads(completion("id-1", 7, "m", CHUNKS))
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"] == {
        "role": "assistant",
        "content": 'one two "quoted" ünicode',
    }
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_content_may_be_text_parts_or_missing() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}]
    chat = parsed(messages=messages)
    assert [one.message() for one in chat.messages] == [
        Message("user", "a b"),
        Message("assistant", ""),
    ]


def test_sampling_is_what_was_set_and_strange_fields_are_ignored() -> None:
    chat = parsed(temperature=0.5, stop=["x"], user="somebody", logit_bias={})
    assert chat.sampling() == {"temperature": 0.5, "stop": ["x"]}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "hi"}]}, "messages.0.role"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
        ({"logprobs": True}, "logprobs"),
        ({"stream": "perhaps"}, "stream"),
    ],
    ids=[
        "no messages",
        "no role",
        "no tokens",
        "two answers",
        "too hot",
        "tools",
        "a format",
        "logprobs",
        "not a yes or no",
    ],
)
def test_a_bad_field_is_400_and_named(change: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError, match=f"'{param}'") as caught:
        parsed(**change)
    error = caught.value.body["error"]
    assert caught.value.status == 400
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"


def test_a_missing_model_and_a_broken_body_are_400() -> None:
    for body, says in ((b'{"messages": []}', "'model'"), (b"{", "JSON")):
        with pytest.raises(ApiError, match=says) as caught:
            parse_chat_request(body)
        assert caught.value.status == 400


def test_an_error_in_the_stream_is_an_event_and_ends_it() -> None:
    error, done, _ = error_event(ApiError(503, "gone", code="unavailable")).decode().split("\n\n")
    assert json.loads(error.removeprefix("data: "))["error"] == {
        "message": "gone",
        "type": "server_error",
        "param": None,
        "code": "unavailable",
    }
    assert done == "data: [DONE]"
