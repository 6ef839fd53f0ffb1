"""An engine's process is killed: clients are told, Serve heals it, the metrics show it."""

import asyncio
import json
import signal

import httpx
import psutil
import pytest

from tests.vllm.conftest import START_WITHIN_S, Served, becomes, chat, stream, usage

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(START_WITHIN_S + 120)]

GONE_WITHIN_S = 10.0


def engine_process(replica_pid: int) -> psutil.Process:
    """vLLM's core, a child of the replica's process."""
    [found] = [
        child
        for child in psutil.Process(replica_pid).children(recursive=True)
        if "EngineCore" in " ".join([child.name(), *child.cmdline()])
    ]
    return found


async def test_a_killed_engine_is_told_healed_and_seen(
    served: Served, client: httpx.AsyncClient
) -> None:
    [replica] = served.running()
    failed = served.total("ray_client_errors_total", 'code="503"') or 0.0
    starts = served.total("ray_serve_deployment_replica_starts_total", 'deployment="LLM"') or 0.0
    began = [asyncio.Event(), asyncio.Event()]
    streams = [asyncio.create_task(stream(client, chat(1900), one)) for one in began]
    for one in began:
        await asyncio.wait_for(one.wait(), timeout=10)

    engine_process(replica["pid"]).send_signal(signal.SIGKILL)

    for events in await asyncio.wait_for(asyncio.gather(*streams), timeout=GONE_WITHIN_S):
        assert events[-1] == "[DONE]"
        assert json.loads(events[-2])["error"]["code"] == "unavailable"

    def gone() -> bool:
        return replica["replica_id"] not in {one["replica_id"] for one in served.running()}

    # It does not stay to fail what the router sends it until the third failed health check.
    assert await becomes(gone, GONE_WITHIN_S)
    # Who comes now waits for the next engine, and is answered.
    asked = chat(8)
    answering = asyncio.create_task(stream(httpx_patient(served), asked))
    assert await becomes(lambda: len(served.running()) == 1, START_WITHIN_S)
    assert usage(await asyncio.wait_for(answering, timeout=60))["completion_tokens"] == 8
    assert await becomes(
        lambda: served.total("ray_client_errors_total", 'code="503"') == failed + 2
    )
    assert await becomes(
        lambda: (
            (served.total("ray_serve_deployment_replica_starts_total", 'deployment="LLM"') or 0)
            >= starts + 1
        )
    )
    assert not [one for one in served.group.members() if one.pid == replica["pid"]]


def httpx_patient(served: Served) -> httpx.AsyncClient:
    """A client that waits for an engine to start."""
    return httpx.AsyncClient(base_url=served.cluster.http_url, timeout=START_WITHIN_S)
