"""What the application asks of an engine, be it the stand-in or real vLLM."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

FinishReason = Literal["stop", "length"]


class RequestRefused(ValueError):
    """The request itself is at fault, e.g. longer than the model's context."""


class EngineDead(RuntimeError):
    """The engine can serve nothing: not started, stopped or broken."""


class Message(NamedTuple):
    """One turn of a conversation."""

    role: str
    content: str


class Chunk(NamedTuple):
    """Some tokens of an answer, sent as one: text, their number, and why it ended if it did.

    The first chunk comes with the first token; `text` may be empty, on the last chunk too.
    `prompt_tokens` is the request's own, as the engine counted it, on every chunk.
    """

    text: str
    tokens: int
    finish_reason: FinishReason | None
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One answer wanted: at most `max_tokens` tokens; `request_id` is unique among those alive.

    `prompt` is text, or token ids, to be continued as it stands; it takes the messages' place.
    """

    request_id: str
    messages: tuple[Message, ...]
    max_tokens: int
    sampling: Mapping[str, object] = field(default_factory=dict)
    prompt: str | tuple[int, ...] | None = None


class Engine(Protocol):
    """One model in one replica."""

    async def start(self) -> None:
        """Load and answer one warm-up request; on return the first real token comes fast."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk, None]:
        """The answer, piece by piece; cancelling or closing the iterator aborts the request.

        RequestRefused if the request is at fault, EngineDead if the engine is.
        """

    async def check_health(self) -> None:
        """EngineDead if the engine can no longer serve."""

    async def stop(self) -> None:
        """Free everything. Requests still running end with EngineDead: drain first."""
