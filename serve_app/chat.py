"""OpenAI's chat protocol: what a client may send, and the bytes that it gets back.

`completions` has the same in the older form, and shares the most of it.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serve_app.engine import Chunk, Message

DONE = b"data: [DONE]\n\n"
SAMPLING_KEYS = (
    "temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "min_tokens", "ignore_eos",
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


class Sampling(BaseModel):
    """What chat and completions have in common. Fields that no engine here knows are ignored,
    but for those whose absence would change the answer: they are refused."""

    model_config = ConfigDict(extra="ignore")

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=1)] = 1
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    top_k: Annotated[int | None, Field(ge=-1)] = None
    min_p: Annotated[float | None, Field(ge=0, le=1)] = None
    presence_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    frequency_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    repetition_penalty: Annotated[float | None, Field(gt=0, le=2)] = None
    seed: int | None = None
    stop: str | list[str] | None = None
    min_tokens: Annotated[int | None, Field(ge=0)] = None
    ignore_eos: bool | None = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self) -> Mapping[str, object]:
        """The sampling fields that the client set."""
        chosen = {key: getattr(self, key) for key in SAMPLING_KEYS}
        return {key: value for key, value in chosen.items() if value is not None}


class TextFormat(BaseModel):
    """The one response format that is served."""

    type: Literal["text"]


class ChatRequest(Sampling):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    max_completion_tokens: Annotated[int | None, Field(ge=1)] = None
    logprobs: Literal[False] | None = None
    tools: Annotated[list[Any] | None, Field(max_length=0)] = None
    response_format: TextFormat | None = None
    metadata: dict[str, str] | None = None

    @property
    def limit(self) -> int | None:
        """Output tokens that the client allows; None if it names none."""
        return self.max_completion_tokens or self.max_tokens


Body = TypeVar("Body", bound=BaseModel)


def parse_body(form: type[Body], body: bytes) -> Body:
    """The request of that form, or ApiError 400 naming the first field at fault."""
    try:
        return form.model_validate_json(body)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        param = ".".join(str(part) for part in fault["loc"]) or None
        where = f"'{param}': " if param else ""
        raise ApiError(400, f"{where}{fault['msg']}", param, fault["type"]) from error


def parse_chat_request(body: bytes) -> ChatRequest:
    """The request, or ApiError 400 naming the first field at fault."""
    return parse_body(ChatRequest, body)


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


class EventWriter:
    """Writes one streamed answer as server-sent events; per chunk it only joins ready bytes."""

    __slots__ = ("_head", "_tail", "_tokens", "include_usage")
    KIND = "chat.completion.chunk"

    def __init__(self, answer_id: str, created_s: int, model: str, include_usage: bool) -> None:
        fields = {"id": answer_id, "object": self.KIND, "created": created_s, "model": model}
        self.include_usage = include_usage
        self._head = b"data: " + json.dumps(fields).encode()[:-1] + b', "choices": ['
        self._tail = b'], "usage": null}\n\n' if include_usage else b"]}\n\n"
        self._tokens = 0

    def event(self, chunk: Chunk) -> bytes:
        """The events of one chunk: the role before the first, usage and [DONE] after the last."""
        parts = [b"" if self._tokens else self._opening()]
        self._tokens += chunk.tokens
        parts.append(self._piece(chunk.text, chunk.finish_reason))
        if chunk.finish_reason is not None:
            parts.append(self._usage(chunk.prompt_tokens))
            parts.append(DONE)
        return b"".join(parts)

    def _opening(self) -> bytes:
        return self._choice(b'"delta": {"role": "assistant", "content": ""}', None)

    def _piece(self, text: str, finish_reason: str | None) -> bytes:
        content = b'"content": ' + json.dumps(text).encode() if text else b""
        return self._choice(b'"delta": {%b}' % content, finish_reason)

    def _choice(self, content: bytes, finish_reason: str | None) -> bytes:
        reason = f'"{finish_reason}"'.encode() if finish_reason else b"null"
        return b'%b{"index": 0, %b, "logprobs": null, "finish_reason": %b}%b' % (
            self._head, content, reason, self._tail,
        )  # fmt: skip

    def _usage(self, prompt_tokens: int) -> bytes:
        if not self.include_usage:
            return b""
        total = json.dumps(usage(prompt_tokens, self._tokens)).encode()
        return self._head + b'], "usage": ' + total + b"}\n\n"
