"""OpenAI's completions: text, or token ids, continued as it stands; bytes as in `chat`."""

import json
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, field_validator

from serve_app.chat import EventWriter, Sampling, parse_body, usage
from serve_app.engine import Chunk

Prompt = str | tuple[int, ...]


class CompletionRequest(Sampling):
    """The body of POST /v1/completions, for one prompt."""

    prompt: Prompt
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    echo: Literal[False] | None = None
    suffix: None = None
    best_of: Literal[1] | None = None
    logprobs: None = None

    @property
    def limit(self) -> int | None:
        """Output tokens that the client allows; None if it names none."""
        return self.max_tokens

    @field_validator("prompt", mode="plain")
    @classmethod
    def _one_prompt(cls, value: object) -> Prompt:
        """A text, token ids, or a list of one of these."""
        match value:
            case str(text) | [str(text)]:
                return text
            case [[*ids]] | [*ids] if ids and all(type(one) is int and one >= 0 for one in ids):
                return tuple(one for one in ids if isinstance(one, int))
            case _:
                raise ValueError("must be one text or one list of token ids")


def parse_completion_request(body: bytes) -> CompletionRequest:
    """The request, or ApiError 400 naming the first field at fault."""
    return parse_body(CompletionRequest, body)


def completion_body(answer_id: str, created_s: int, model: str, chunks: Iterable[Chunk]) -> bytes:
    """A whole answer as one JSON body."""
    chunks = list(chunks)
    last = chunks[-1]
    choice = {
        "index": 0,
        "text": "".join(chunk.text for chunk in chunks),
        "logprobs": None,
        "finish_reason": last.finish_reason,
    }
    body = {
        "id": answer_id,
        "object": "text_completion",
        "created": created_s,
        "model": model,
        "choices": [choice],
        "usage": usage(last.prompt_tokens, sum(chunk.tokens for chunk in chunks)),
    }
    return json.dumps(body).encode()


class TextEventWriter(EventWriter):
    """The same stream in the form of completions: text where chat has a delta, and no role."""

    __slots__ = ()
    KIND = "text_completion"

    def _opening(self) -> bytes:
        return b""

    def _piece(self, text: str, finish_reason: str | None) -> bytes:
        return self._choice(b'"text": ' + json.dumps(text).encode(), finish_reason)
