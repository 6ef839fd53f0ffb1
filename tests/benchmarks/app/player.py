"""Plays chat requests with texts of their own, open loop, and keeps who answered how fast."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import numpy as np


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: when it goes out, in seconds from the start, and its body."""

    at_s: float
    text: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Answered:
    """Seconds count from the scheduled moment; `model` is the one that answered."""

    model: str
    ttft_s: float
    e2e_s: float


class Failed(RuntimeError):
    """A request was not answered: the figures would say nothing."""


def poisson(texts: Sequence[tuple[str, int]], rps: float, span_s: float, seed: int) -> list[Asked]:
    """Poisson arrivals; each asks a text drawn from `texts`, with its output tokens."""
    rng = np.random.default_rng(seed)
    at_s = np.sort(rng.uniform(0.0, span_s, rng.poisson(rps * span_s)))
    places = rng.integers(len(texts), size=len(at_s))
    return [Asked(float(t), *texts[place]) for t, place in zip(at_s, places, strict=True)]


async def play(asked: Sequence[Asked], url: str, model: str) -> list[Answered]:
    """Send each at its moment whatever became of the others; Failed if any is not answered."""
    connector = aiohttp.TCPConnector(limit=0)
    began_s = time.monotonic() + 0.2
    async with aiohttp.ClientSession(connector=connector) as session:
        sending = [
            asyncio.create_task(_one(session, one, url, model, began_s + one.at_s)) for one in asked
        ]
        return await asyncio.gather(*sending)


async def _one(
    session: aiohttp.ClientSession, asked: Asked, url: str, model: str, due_s: float
) -> Answered:
    body = {
        "model": model,
        "stream": True,
        "max_tokens": asked.max_tokens,
        "messages": [{"role": "user", "content": asked.text}],
    }
    await asyncio.sleep(max(due_s - time.monotonic(), 0.0))
    timeout = aiohttp.ClientTimeout(total=120)
    async with session.post(f"{url}/v1/chat/completions", json=body, timeout=timeout) as response:
        if response.status != 200:
            raise Failed(f"HTTP {response.status}: {(await response.text())[:300]}")
        first = await response.content.readuntil(b"\n\n")
        ttft_s = time.monotonic() - due_s
        rest = await response.content.read()
    if not rest.endswith(b"[DONE]\n\n"):
        raise Failed(f"an answer broke off: {rest[-300:]!r}")
    answered_by = str(json.loads(first.removeprefix(b"data: "))["model"])
    return Answered(answered_by, ttft_s, time.monotonic() - due_s)


def p95(values: Sequence[float]) -> float:
    return float(np.percentile(values, 95))
