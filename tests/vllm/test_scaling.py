"""A second real engine comes and goes, and no stream is lost."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.vllm.conftest import START_WITHIN_S, Served, becomes, chat, stream, usage

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(START_WITHIN_S + 120)]

STREAMS = 16
TOKENS = 1850
"""Every slot of both engines taken, for as long as a context allows: the streams must last until
one of the engines leaves, on a fast machine too."""


def busy_replicas(served: Served) -> int:
    """Replicas whose engine runs a request, as the metrics page says."""
    names = [f'ReplicaId="{one["replica_id"]}"' for one in served.running()]
    running = [served.total("ray_vllm_num_requests_running", name) for name in names]
    return sum(bool(requests) for requests in running)


def have_answered(served: Served) -> int:
    """Replicas that have answered a request; the router knows a new one a moment after Serve."""
    names = [f'ReplicaId="{one["replica_id"]}"' for one in served.running()]
    return sum(served.total("ray_vllm_request_success_total", name) is not None for name in names)


def shared_memory(pid: int) -> set[Path]:
    """Segments that the engine of a replica has mapped."""
    regions = [
        region.path
        for child in psutil.Process(pid).children(recursive=True)
        for region in child.memory_maps()
    ]
    return {Path(path) for path in regions if path.startswith("/dev/shm/psm_")}


@pytest.fixture
async def two_engines(served: Served, client: httpx.AsyncClient) -> AsyncIterator[Served]:
    served.scale(2)
    try:
        assert await becomes(lambda: len(served.running()) == 2, within_s=START_WITHIN_S)
        for _ in range(20):
            await asyncio.gather(*(stream(client, chat(100)) for _ in range(STREAMS)))
            if have_answered(served) == 2:
                break
        assert have_answered(served) == 2
        yield served
    finally:
        served.scale(1)
        assert await becomes(lambda: len(served.llm()["replicas"]) == 1, 60)


async def test_shrinking_under_open_streams_loses_none(
    two_engines: Served, client: httpx.AsyncClient
) -> None:
    served = two_engines
    segments = {one["replica_id"]: shared_memory(one["pid"]) for one in served.running()}
    assert all(segments.values())
    began = [asyncio.Event() for _ in range(STREAMS)]
    streams = [asyncio.create_task(stream(client, chat(TOKENS), one)) for one in began]
    for one in began:
        await asyncio.wait_for(one.wait(), timeout=30)
    assert await becomes(lambda: busy_replicas(served) == 2), "both engines have streams"
    served.scale(1)
    assert await becomes(
        lambda: any(one["state"] == "STOPPING" for one in served.llm()["replicas"]), 5
    )
    assert not all(task.done() for task in streams), "streams are open while a replica leaves"
    for events in await asyncio.gather(*streams):
        assert usage(events)["completion_tokens"] == TOKENS
    assert await becomes(lambda: len(served.llm()["replicas"]) == 1, 60)
    [stays] = served.running()
    left = set.union(*(of for name, of in segments.items() if name != stays["replica_id"]))
    assert not [segment for segment in left if segment.exists()], "it leaves no memory behind"
