"""OpenAI's completions: requests in, bytes out."""

import json
from typing import Any

import pytest

from serve_app.chat import ApiError
from serve_app.completions import (
    CompletionRequest,
    TextEventWriter,
    completion_body,
    parse_completion_request,
)
from serve_app.engine import Chunk

CHUNKS = [Chunk("one ", 1, None, 3), Chunk('"two"', 2, "length", 3)]


def parsed(**changes: Any) -> CompletionRequest:
    return parse_completion_request(json.dumps({"model": "m", "prompt": "hi", **changes}).encode())


@pytest.mark.parametrize(
    ("prompt", "continued"),
    [
        ("once upon", "once upon"),
        (["once upon"], "once upon"),
        ([5, 6], (5, 6)),
        ([[5, 6]], (5, 6)),
        ("", ""),
    ],
    ids=["a text", "a list of one text", "token ids", "a list of one list", "nothing"],
)
def test_one_prompt_in_any_form_is_taken(prompt: object, continued: object) -> None:
    assert parsed(prompt=prompt).prompt == continued


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [[1], [2]]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, -2]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"logprobs": 3}, "logprobs"),
        ({"n": 2}, "n"),
    ],
    ids=[
        "two texts",
        "two lists",
        "an empty list",
        "a negative id",
        "no number",
        "null",
        "echo",
        "suffix",
        "logprobs",
        "two answers",
    ],
)
def test_what_is_not_served_is_400_and_named(change: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError, match=f"'{param}'") as caught:
        parsed(**change)
    assert (caught.value.status, caught.value.body["error"]["param"]) == (400, param)


def test_the_stream_carries_text_its_reason_and_usage() -> None:
    writer = TextEventWriter("cmpl-1", 7, "m", include_usage=True)
    stream = b"".join(writer.event(chunk) for chunk in CHUNKS).decode()
    *payloads, done = [event.removeprefix("data: ") for event in stream.split("\n\n")[:-1]]
    assert done == "[DONE]"
    first, last, usage = [json.loads(payload) for payload in payloads]
    assert first["object"] == "text_completion"
    assert first["choices"] == [
        {"index": 0, "text": "one ", "logprobs": None, "finish_reason": None}
    ]
    assert last["choices"][0] == {
        "index": 0,
        "text": '"two"',
        "logprobs": None,
        "finish_reason": "length",
    }
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}


def test_a_whole_answer_has_text_reason_and_usage() -> None:
    body = json.loads(completion_body("cmpl-1", 7, "m", CHUNKS))
    assert (body["object"], body["choices"][0]["text"]) == ("text_completion", 'one "two"')
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["total_tokens"] == 6
