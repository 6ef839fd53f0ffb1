"""An open-loop load generator: every request goes out at its moment, whatever became of the others.

    python -m serve_app.loadgen --url http://127.0.0.1:8000 --trace FILE --seed 3 --out out.csv

Kinds of error: `http_<status>`, `timeout`, `connection` (refused or broken), `stream` (an error
event), `truncated` (ended without [DONE]), `empty` (ended without a token), `abandoned` (the
player was stopped while it ran), `unsent` (stopped before).
"""

import asyncio
import gc
import json
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import aiohttp
import numpy as np

from serve_app.arrivals import Arrivals
from serve_app.load_results import LoadResult

PROGRESS_WINDOW_S = 10.0
HEADERS = {"content-type": "application/json"}
# A chunk that carries text: the role chunk's content is empty.
_CONTENT = re.compile(rb'"content":\s*"(?!")')
_ERROR = re.compile(rb'data:\s*\{\s*"error"')
_DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Target:
    """An OpenAI-compatible server. `url` is its root, with or without `/v1`."""

    url: str
    model: str
    timeout_s: float = 60.0

    @property
    def chat_url(self) -> str:
        return f"{self.url.rstrip('/').removesuffix('/v1')}/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Progress:
    """A played load so far; rates and TTFT are of the last 10 s, NaN while nothing came."""

    at_s: float
    span_s: float
    sent: int
    total: int
    open: int
    errors: int
    sent_rps: float
    ttft_p50_s: float
    ttft_p95_s: float
    send_lag_max_s: float


@dataclass(slots=True)
class _Recent:
    """What happened in the last seconds, by moment."""

    sent: deque[float] = field(default_factory=deque)
    ttft: deque[tuple[float, float]] = field(default_factory=deque)

    def forget(self, before_s: float) -> None:
        while self.sent and self.sent[0] < before_s:
            self.sent.popleft()
        while self.ttft and self.ttft[0][0] < before_s:
            self.ttft.popleft()


class LoadPlayer:
    """Plays one `Arrivals` once against one `Target`."""

    def __init__(self, arrivals: Arrivals, target: Target) -> None:
        self._arrivals = arrivals
        self._target = target
        self._result = LoadResult.unsent(arrivals, 0.0, "unsent")
        self._errors: list[str] = list(self._result.error)
        self._started_at_s = 0.0
        self._sent = 0
        self._failed = 0
        self._lag_max_s = 0.0
        self._recent = _Recent()
        self._open: set[asyncio.Task[None]] = set()
        self._sender: asyncio.Task[None] | None = None

    async def play(self, start_at_s: float | None = None) -> LoadResult:
        """Send everything and wait for every answer, at most the target's timeout each.

        Second 0 of the arrivals is `start_at_s` on time.monotonic, or now.
        """
        self._started_at_s = time.monotonic() if start_at_s is None else start_at_s
        connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=None)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            self._sender = asyncio.create_task(self._send_all(session))
            await asyncio.wait([self._sender])
            if not self._sender.cancelled():
                self._sender.result()
            while self._open:
                await asyncio.wait(self._open)
        return replace(self._result, started_at_s=self._started_at_s, error=tuple(self._errors))

    def stop(self) -> None:
        """Send nothing more and drop what is open; `play` then returns what there is."""
        if self._sender is not None:
            self._sender.cancel()
        for task in self._open:
            task.cancel()

    def progress(self) -> Progress:
        """How far it is; cheap enough to ask several times a second."""
        now_s = time.monotonic()
        recent = self._recent
        recent.forget(now_s - PROGRESS_WINDOW_S)
        ttft_s = [value for _, value in recent.ttft] or [np.nan]
        window_s = min(max(now_s - self._started_at_s, 1.0), PROGRESS_WINDOW_S)
        return Progress(
            at_s=now_s - self._started_at_s,
            span_s=self._arrivals.span_s,
            sent=self._sent,
            total=len(self._arrivals),
            open=len(self._open),
            errors=self._failed,
            sent_rps=len(recent.sent) / window_s,
            ttft_p50_s=float(np.percentile(ttft_s, 50)),
            ttft_p95_s=float(np.percentile(ttft_s, 95)),
            send_lag_max_s=self._lag_max_s,
        )

    async def _send_all(self, session: aiohttp.ClientSession) -> None:
        for index, arrival_s in enumerate(self._arrivals.arrival_s.tolist()):
            due_s = self._started_at_s + arrival_s
            body = self._body(index)
            wait_s = due_s - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            task = asyncio.create_task(self._request(session, index, due_s, body))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _request(
        self, session: aiohttp.ClientSession, index: int, due_s: float, body: bytes
    ) -> None:
        sent_s = time.monotonic()
        self._note_sent(index, sent_s, due_s)
        self._errors[index] = "abandoned"
        try:
            async with asyncio.timeout(self._target.timeout_s):
                self._errors[index] = await self._answer(session, index, due_s, body)
        except TimeoutError:
            self._errors[index] = "timeout"
        except (aiohttp.ClientError, OSError):
            self._errors[index] = "connection"
        finally:
            self._result.e2e_s[index] = time.monotonic() - due_s
            self._failed += bool(self._errors[index])

    async def _answer(
        self, session: aiohttp.ClientSession, index: int, due_s: float, body: bytes
    ) -> str:
        """Read one streamed answer; its kind of error, or ""."""
        async with session.post(self._target.chat_url, data=body, headers=HEADERS) as response:
            if response.status != 200:
                return f"http_{response.status}"
            chunks, left, ending = 0, b"", "truncated"
            async for data in response.content.iter_any():
                *events, left = (left + data).replace(b"\r\n", b"\n").split(b"\n\n")
                for event in events:
                    if _CONTENT.search(event):
                        chunks += 1
                        self._note_chunk(index, chunks, due_s)
                    elif event.endswith(_DONE):
                        ending = ending if ending == "stream" else ""
                    elif _ERROR.match(event):
                        ending = "stream"
            return ending if ending or chunks else "empty"

    def _note_sent(self, index: int, sent_s: float, due_s: float) -> None:
        self._sent += 1
        self._result.send_lag_s[index] = sent_s - due_s
        self._lag_max_s = max(self._lag_max_s, sent_s - due_s)
        self._recent.sent.append(sent_s)

    def _note_chunk(self, index: int, chunks: int, due_s: float) -> None:
        self._result.chunks[index] = chunks
        if chunks > 1:
            return
        now_s = time.monotonic()
        self._result.ttft_s[index] = now_s - due_s
        self._recent.ttft.append((now_s, now_s - due_s))

    def _body(self, index: int) -> bytes:
        """A prompt of as many words as asked, its first one unlike all others' (prefix caches).

        `ignore_eos` makes real vLLM answer to the full length, too.
        """
        prompt = b" w" * (int(self._arrivals.prompt_tokens[index]) - 1)
        return (
            b'{"model": %b, "stream": true, "ignore_eos": true, "max_tokens": %d, '
            b'"messages": [{"role": "user", "content": "r%d%b"}]}'
            % (
                json.dumps(self._target.model).encode(),
                self._arrivals.output_tokens[index],
                index,
                prompt,
            )
        )


async def play(
    arrivals: Arrivals,
    target: Target,
    *,
    start_at_s: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    progress_every_s: float = 1.0,
) -> LoadResult:
    """Play `arrivals` and report on the way; cancelling it drops everything."""
    player = LoadPlayer(arrivals, target)
    return await watched(player, start_at_s, on_progress, progress_every_s)


async def watched(
    player: LoadPlayer,
    start_at_s: float | None,
    on_progress: Callable[[Progress], None] | None,
    progress_every_s: float,
) -> LoadResult:
    """Let the player play, telling `on_progress` every so often and once at the end."""
    gc.freeze()  # what is loaded by now lives on: keep it out of every collection
    playing = asyncio.create_task(player.play(start_at_s))
    try:
        while not playing.done():
            await asyncio.wait([playing], timeout=progress_every_s)
            if on_progress is not None:
                on_progress(player.progress())
        return playing.result()
    finally:
        if not playing.done():
            player.stop()
            await asyncio.wait([playing])


if __name__ == "__main__":
    from serve_app.loadgen_cli import main

    main()
