"""A stand-in engine: answers by a known `Law`, so that what a replica can carry is no guess.

Prompt tokens are the words of the prompt or of all messages; an answer has exactly `max_tokens`
tokens. The first comes alone once the prefill is done, then `chunk_tokens` at a time, so that
overload comes from slots and not from the machine's cores.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from serve_app.engine import (
    Chunk,
    EngineDead,
    FinishReason,
    GenerationRequest,
    Message,
    RequestRefused,
)
from serve_app.engine_stats import FinishedRequest, StatLogger, Step
from serve_app.law import Law
from serve_app.sharing import Advance, SharedProcessor

# A busy engine reports at least this often, so that its gauges outlive Ray's shortest report
# interval (1 s; a gauge vanishes after two).
REPORT_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class StandInConfig:
    """How the stand-in behaves. Token counts are of one replica; `load_s` is its start-up time."""

    law: Law
    load_s: float
    chunk_tokens: int
    kv_tokens: int
    max_model_len: int


@dataclass(slots=True)
class _Stream:
    """One request on its way: `tokens` after each portion of its work, and when what happened."""

    prompt_tokens: int
    tokens: tuple[int, ...]
    arrived_s: float
    has_slot: bool = False
    scheduled_s: float = 0.0
    first_token_s: float = 0.0
    last_token_s: float = 0.0
    generated: int = 0
    chunks: asyncio.Queue[Chunk | None] = field(default_factory=asyncio.Queue)

    @property
    def held_tokens(self) -> int:
        """Tokens it keeps in the KV cache: none before it has a slot."""
        return self.prompt_tokens + self.generated if self.has_slot else 0


class StandInEngine:
    """An Engine under a `Law`: processor sharing among `slots`, a first-come queue behind them."""

    def __init__(
        self,
        config: StandInConfig,
        log_stats: StatLogger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._log_stats = log_stats
        self._clock = clock
        self._processor = SharedProcessor(config.law)
        self._streams: dict[str, _Stream] = {}
        self._changed = asyncio.Event()
        self._scheduler: asyncio.Task[None] | None = None
        self._ready = False

    async def start(self) -> None:
        await asyncio.sleep(self._config.load_s)
        self._scheduler = asyncio.create_task(self._schedule())
        warm_up = GenerationRequest("warm-up", (Message("user", "hello"),), max_tokens=1)
        async for _ in self.generate(warm_up):
            pass
        self._ready = True

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk, None]:
        stream = self._admit(request)
        try:
            while chunk := await stream.chunks.get():
                yield chunk
                if chunk.finish_reason is not None:
                    return
            raise EngineDead("the engine stopped while it was answering")
        finally:
            if self._streams.pop(request.request_id, None):
                self._take_in(self._processor.cancel(self._clock(), request.request_id))

    async def check_health(self) -> None:
        if self._scheduler is None or self._scheduler.done():
            raise EngineDead("the engine is not running")

    async def stop(self) -> None:
        if self._scheduler is not None:
            self._scheduler.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._scheduler

    def _admit(self, request: GenerationRequest) -> _Stream:
        if self._scheduler is None or self._scheduler.done():
            raise EngineDead("the engine is not running")
        prompt_tokens = count_prompt_tokens(request)
        if prompt_tokens + request.max_tokens > self._config.max_model_len:
            raise RequestRefused(
                f"this model's maximum context length is {self._config.max_model_len} tokens, "
                f"but {prompt_tokens} prompt tokens and {request.max_tokens} output tokens "
                "were asked for"
            )
        now_s = self._clock()
        law = self._config.law
        tokens = token_milestones(request.max_tokens, self._config.chunk_tokens)
        portions = [law.lone_prefill_s(prompt_tokens)]
        portions += [law.lone_work_s(prompt_tokens, count) for count in tokens[1:]]
        stream = self._streams[request.request_id] = _Stream(prompt_tokens, tokens, now_s)
        self._take_in(self._processor.submit(now_s, request.request_id, portions))
        return stream

    async def _schedule(self) -> None:
        try:
            while True:
                await self._until_next_or_changed()
                if not self._changed.is_set():
                    self._take_in(self._processor.advance(self._clock()))
        finally:
            for stream in self._streams.values():
                stream.chunks.put_nowait(None)
            self._streams.clear()

    async def _until_next_or_changed(self) -> None:
        """Return when the next milestone is due, a report is, or the processor was changed."""
        self._changed.clear()
        next_at_s = self._processor.next_at_s()
        patience_s = None
        if next_at_s is not None:
            patience_s = min(max(next_at_s - self._clock(), 0.0), REPORT_EVERY_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._changed.wait()

    def _take_in(self, happened: Sequence[Advance]) -> None:
        """Turn what the processor did into chunks, report the step, let the scheduler look anew."""
        step = Step(self._processor.running, self._processor.waiting, 0.0)
        for advance in happened:
            if stream := self._streams.get(advance.request_id):
                self._move(stream, advance, step)
        held = sum(stream.held_tokens for stream in self._streams.values())
        step.kv_cache_ratio = min(held / self._config.kv_tokens, 1.0)
        if self._ready:
            self._log_stats(step)
        self._changed.set()

    def _move(self, stream: _Stream, advance: Advance, step: Step) -> None:
        if advance.reached == 0:
            stream.has_slot, stream.scheduled_s = True, advance.at_s
            return
        total = stream.tokens[advance.reached - 1]
        fresh = total - stream.generated
        if advance.reached == 1:
            stream.first_token_s = stream.last_token_s = advance.at_s
            step.prompt_tokens += stream.prompt_tokens
            step.ttft_s.append(advance.at_s - stream.arrived_s)
        elif fresh:
            step.inter_token_s.append((advance.at_s - stream.last_token_s) / fresh)
            stream.last_token_s = advance.at_s
        stream.generated = total
        step.generation_tokens += fresh
        reason: FinishReason | None = "length" if advance.finished else None
        stream.chunks.put_nowait(Chunk(_text(fresh), fresh, reason, stream.prompt_tokens))
        if advance.finished:
            del self._streams[advance.request_id]
            step.finished.append(_finished(stream))


def count_prompt_tokens(request: GenerationRequest) -> int:
    """The stand-in's tokenizer: one token a word, at least one; ids are tokens already."""
    match request.prompt:
        case None:
            words = sum(len(message.content.split()) for message in request.messages)
        case str(text):
            words = len(text.split())
        case ids:
            words = len(ids)
    return max(words, 1)


def token_milestones(max_tokens: int, chunk_tokens: int) -> tuple[int, ...]:
    """Tokens given after each chunk: 1, then `chunk_tokens` more each, the last the remainder.

    20 tokens in chunks of 8 come as 1, 9, 17, 20. A single token is followed by its own end,
    one token's work later: 1, 1 (test_standin.py::test_tokens_come_in_chunks).
    """
    if max_tokens == 1:
        return (1, 1)
    return (1, *range(1 + chunk_tokens, max_tokens, chunk_tokens), max_tokens)


@cache
def _text(tokens: int) -> str:
    return "word " * tokens


def _finished(stream: _Stream) -> FinishedRequest:
    return FinishedRequest(
        "length",
        stream.prompt_tokens,
        stream.generated,
        stream.arrived_s,
        stream.scheduled_s,
        stream.first_token_s,
        stream.last_token_s,
    )
