"""OpenAI's chat protocol: what a client may send, and the bytes that it gets back."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serve_app.engine import Chunk, Message

DONE = b"data: [DONE]\n\n"
SAMPLING_KEYS = (
    "temperature", "top_p", "seed", "stop", "presence_penalty", "frequency_penalty", "ignore_eos",
)  # fmt: skip


class ApiError(Exception):
    """An error in OpenAI's form; `param` names the field at fault if there is one."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        kind = "invalid_request_error" if status < 500 else "server_error"
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


class TextPart(BaseModel):
    """The one kind of content part that a text model reads."""

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """One message: its content a string or text parts; None as some tools send it, is empty."""

    role: Annotated[str, Field(min_length=1)]
    content: str | list[TextPart] | None = None

    def message(self) -> Message:
        if isinstance(self.content, str):
            return Message(self.role, self.content)
        return Message(self.role, " ".join(part.text for part in self.content or ()))


class StreamOptions(BaseModel):
    """OpenAI's options of a streamed answer."""

    include_usage: bool = False


class ChatRequest(BaseModel):
    """The body of POST /v1/chat/completions. Fields that no engine here knows are ignored."""

    model_config = ConfigDict(extra="ignore")

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    max_completion_tokens: Annotated[int | None, Field(ge=1)] = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=1)] = 1
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    presence_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    frequency_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    seed: int | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self) -> Mapping[str, object]:
        """The sampling fields that the client set."""
        chosen = {key: getattr(self, key) for key in SAMPLING_KEYS}
        return {key: value for key, value in chosen.items() if value is not None}


def parse_chat_request(body: bytes) -> ChatRequest:
    """The request, or ApiError 400 naming the first field at fault."""
    try:
        return ChatRequest.model_validate_json(body)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        param = ".".join(str(part) for part in fault["loc"]) or None
        where = f"'{param}': " if param else ""
        raise ApiError(400, f"{where}{fault['msg']}", param, fault["type"]) from error


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def completion(answer_id: str, created_s: int, model: str, chunks: Iterable[Chunk]) -> bytes:
    """A whole answer as one JSON body."""
    chunks = list(chunks)
    last = chunks[-1]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "".join(chunk.text for chunk in chunks)},
        "logprobs": None,
        "finish_reason": last.finish_reason,
    }
    body: dict[str, Any] = {
        "id": answer_id,
        "object": "chat.completion",
        "created": created_s,
        "model": model,
        "choices": [choice],
        "usage": usage(last.prompt_tokens, sum(chunk.tokens for chunk in chunks)),
    }
    return json.dumps(body).encode()


def error_event(error: ApiError) -> bytes:
    """An error after the first token, when the status line is long gone."""
    return b"data: " + json.dumps(error.body).encode() + b"\n\n" + DONE


@dataclass(slots=True)
class EventWriter:
    """Writes one streamed answer as server-sent events; per chunk it only joins ready bytes."""

    include_usage: bool
    _head: bytes
    _tail: bytes
    _tokens: int = 0

    @classmethod
    def of(cls, answer_id: str, created_s: int, model: str, include_usage: bool) -> "EventWriter":
        fields = {
            "id": answer_id,
            "object": "chat.completion.chunk",
            "created": created_s,
            "model": model,
        }
        head = b"data: " + json.dumps(fields).encode()[:-1] + b', "choices": ['
        tail = b'], "usage": null}\n\n' if include_usage else b"]}\n\n"
        return cls(include_usage, head, tail)

    def event(self, chunk: Chunk) -> bytes:
        """The events of one chunk: the role before the first, usage and [DONE] after the last."""
        parts = [] if self._tokens else [self._choice(b'"role": "assistant", "content": ""')]
        self._tokens += chunk.tokens
        delta = b'"content": ' + json.dumps(chunk.text).encode() if chunk.text else b""
        parts.append(self._choice(delta, chunk.finish_reason))
        if chunk.finish_reason is not None:
            parts.append(self._usage(chunk.prompt_tokens))
            parts.append(DONE)
        return b"".join(parts)

    def _choice(self, delta: bytes, finish_reason: str | None = None) -> bytes:
        reason = f'"{finish_reason}"'.encode() if finish_reason else b"null"
        return b'%b{"index": 0, "delta": {%b}, "logprobs": null, "finish_reason": %b}%b' % (
            self._head, delta, reason, self._tail,
        )  # fmt: skip

    def _usage(self, prompt_tokens: int) -> bytes:
        if not self.include_usage:
            return b""
        total = json.dumps(usage(prompt_tokens, self._tokens)).encode()
        return self._head + b'], "usage": ' + total + b"}\n\n"
