"""What real engines do on this machine: the law of a replica and its cold start, measured."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from controller.demo.cluster import DidNotStart, RayCluster
from controller.demo.play import APPLICATION, DEPLOYMENT, LEAN, serve_config
from controller.demo.processes import ProcessGroup
from controller.demo.script import VLLM_SLOTS, Script, vllm_script
from controller.demo.watch import POLL_S, Watch
from controller.replay.native import NativeSettings
from serve_app.law import Law

ROUNDS = 7
SEEN_WITHIN_S = 10.0
GUESS = Law(slots=VLLM_SLOTS, beta=0.1, prefill_tokens_per_s=2000.0, token_s=0.003)


@dataclass(frozen=True)
class _Took:
    ttft_s: float
    total_s: float


def measured_script(folder: Path, show: Callable[[str], None]) -> Script:
    """The script for real vLLM: the law of an engine alone here, and the cold start of one beside
    it while that one is busy. Everything started is ended before this returns or raises
    DidNotStart."""
    script = vllm_script(GUESS, cold_start_s=30.0)
    group = ProcessGroup(folder / "logs")
    show("starting one engine, to measure it")
    with (
        RayCluster(group, cpus=16, env=LEAN) as cluster,
        Watch(cluster, APPLICATION, DEPLOYMENT) as watch,
    ):
        cluster.deploy(_engines(script, 1), within_s=script.ready_within_s)
        show("measuring an engine")
        law = asyncio.run(_law_of(cluster.http_url, script))
        seen = len(watch.cold_starts_s)
        show("measuring the start of another")
        asyncio.run(_start_another(cluster, script))
        deadline_s = time.monotonic() + SEEN_WITHIN_S
        while len(watch.cold_starts_s) == seen:
            if time.monotonic() > deadline_s:
                raise DidNotStart("Serve showed no replica that was starting")
            time.sleep(POLL_S)
        return vllm_script(law, watch.cold_starts_s[-1])


def _engines(script: Script, count: int) -> dict[str, Any]:
    fixed = NativeSettings(min_replicas=count, max_replicas=count, target_ongoing_requests=100)
    return serve_config(script, fixed)


async def _start_another(cluster: RayCluster, script: Script) -> None:
    """Have a second engine started while every slot of the first is taken."""
    config, within_s = _engines(script, 2), script.ready_within_s
    starting = asyncio.create_task(asyncio.to_thread(cluster.deploy, config, within_s))
    async with httpx.AsyncClient(base_url=cluster.http_url, timeout=60) as client:
        while not starting.done():
            await asyncio.gather(*(_ask(client, script) for _ in range(script.law.slots)))
    await starting


async def _law_of(url: str, script: Script) -> Law:
    """Lone requests give the speed, full slots what company costs."""
    slots = script.law.slots
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        lone = [await _ask(client, script) for _ in range(ROUNDS)]
        full = [
            took
            for _ in range(ROUNDS)
            for took in await asyncio.gather(*(_ask(client, script) for _ in range(slots)))
        ]
    ttft_s = median(took.ttft_s for took in lone)
    total_s = median(took.total_s for took in lone)
    slower = median(took.total_s for took in full) / total_s
    return Law(
        slots=slots,
        beta=max((slower - 1.0) / (slots - 1), 0.0),
        prefill_tokens_per_s=script.prompt_tokens / ttft_s,
        token_s=(total_s - ttft_s) / script.output_tokens,
    )


async def _ask(client: httpx.AsyncClient, script: Script) -> _Took:
    body = {
        "model": script.model,
        "stream": True,
        "ignore_eos": True,
        "max_tokens": round(script.output_tokens),
        "messages": [{"role": "user", "content": "word " * round(script.prompt_tokens)}],
    }
    asked_s, first_s = time.monotonic(), None
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        answer.raise_for_status()
        async for _ in answer.aiter_raw():
            first_s = first_s or time.monotonic()
    if first_s is None:
        raise DidNotStart("the engine answered nothing")
    return _Took(first_s - asked_s, time.monotonic() - asked_s)
