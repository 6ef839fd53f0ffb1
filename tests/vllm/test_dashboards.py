"""Panels that only a real vLLM can fill: preemptions, prefix hits, aborts."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from controller.demo.metrics_server import PrometheusServer
from controller.loop import wall_clock_s
from dashboards.model import Proof
from dashboards.proof import PanelQuery, queries
from tests.dashboards.asking import Span, unanswered, wait_answered
from tests.vllm.conftest import MODEL, Served, chat, shared_application, stream

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]

VALUES = {
    "application": "chat",
    "deployment": "LLM",
    "replica": ".*",
    "model": MODEL,
    "__rate_interval": "10s",
    "__interval": "1s",
    "__range": "60s",
}
ENGINE = shared_application()["args"]["engine"]
SLOTS = ENGINE["slots"]
BLOCK_TOKENS = 128
# vLLM keeps one block for itself. A prompt for each slot goes in with a block to spare for each;
# when every answer needs that block, one request has to go out again.
BLOCKS_EACH = ENGINE["engine_args"]["num_gpu_blocks_override"] // SLOTS
PROMPT_TOKENS = (BLOCKS_EACH - 1) * BLOCK_TOKENS - 60
ANSWER_TOKENS = 140


@pytest.fixture
def prometheus(served: Served, tmp_path: Path) -> Iterator[PrometheusServer]:
    discovery = served.cluster.service_discovery_file
    server = PrometheusServer(served.group, tmp_path / "prometheus", discovery)
    server.start()
    wait_answered(server.url, 'count(ray_serve_replica_processing_queries{deployment="LLM"})')
    yield server
    server.stop()


async def leave_early(client: httpx.AsyncClient) -> None:
    """Ask for a long answer and go when it begins."""
    began = asyncio.Event()
    asking = asyncio.create_task(stream(client, chat(400), began))
    await asyncio.wait_for(began.wait(), timeout=20)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def fill_the_cache(client: httpx.AsyncClient) -> None:
    """As many requests at once as slots, that fit when they begin and not when they end."""
    prompts = [[5 + first, *[7] * (PROMPT_TOKENS - 1)] for first in range(SLOTS)]
    asked = {"model": MODEL, "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
    bodies = [asked | {"prompt": prompt} for prompt in prompts]
    answers = await asyncio.gather(*(client.post("/v1/completions", json=b) for b in bodies))
    assert {answer.status_code for answer in answers} == {200}


def engine_panels() -> list[PanelQuery]:
    return [
        query
        for query in queries()
        if "ray_vllm_" in query.expr and "leadtime" not in query.expr
        if query.proof is not Proof.GPU
    ]


async def test_every_engine_panel_has_data(
    client: httpx.AsyncClient, prometheus: PrometheusServer
) -> None:
    began_s = wall_clock_s()
    deadline_s = time.monotonic() + 90
    missing = ["not asked yet"]
    while missing and time.monotonic() < deadline_s:
        await fill_the_cache(client)
        await stream(client, chat(8))
        await leave_early(client)
        span = Span(began_s, wall_clock_s())
        missing = await asyncio.to_thread(unanswered, prometheus.url, engine_panels(), VALUES, span)
    assert missing == []
    assert {query.panel for query in engine_panels()} >= {"Preemptions", "Prefix cache hits"}
    ended = prometheus.query("count by (finished_reason) (ray_vllm_request_success_total)")
    assert {series["metric"]["finished_reason"] for series in ended} >= {"length"}
    assert prometheus.query("sum(ray_vllm_num_preemptions_total) > 0")
    assert prometheus.query("sum(ray_vllm_prefix_cache_hits_total) > 0")
