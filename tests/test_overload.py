"""Servers that are slow, huge, cut off or someone else's page: the whole daemon holds, in bounded
memory, on time, asks less and less often, and is back as soon as they are."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from controller.adapters.prometheus.client import (
    PrometheusClient,
    PrometheusError,
    PrometheusOptions,
    PrometheusSilent,
)
from controller.adapters.prometheus.session import MOST_BYTES
from controller.adapters.serve.api import ServeError
from controller.connections import serve_api
from controller.core.types import DeploymentId, Tick
from controller.settings import Settings
from controller.wiring import Daemon, build
from tests.adapters import bad_server
from tests.adapters.bad_server import BadServer, Behaviour, head, misbehaving, whole
from tests.adapters.fake_server import vector

RECORDED = Path(__file__).parent / "adapters" / "recorded"
AUTO = DeploymentId("auto", "Model")
TICK_S, TIMEOUT_S = 0.5, 0.6
BUSY_S = 10.0  # what a busy machine may add; without the bounds it would be minutes
LOGIN = whole("200 OK", b"<html><form>sign in</form></html>", "text/html")
EMPTY = whole("200 OK", b'{"status": "success", "data": {"resultType": "matrix", "result": []}}')


def storm(status: str, **headers: str) -> Behaviour:
    return whole(status, b"go away", "text/plain", **headers)


HUGE_SERIES = 100_000


def huge() -> bytes:
    """100,000 series, 50 MB."""
    one = {"metric": {"__name__": "x", "filler": "y" * 440}, "values": [[1, "1"]]}
    text = json.dumps(one).encode()
    return b'{"status":"success","data":{"result":[' + b",".join([text] * HUGE_SERIES) + b"]}}"


BAD: dict[str, Behaviour] = {
    "never answers": bad_server.never,
    "trickles its head": bad_server.trickling_head,
    "trickles its body": bad_server.trickling_body,
    "never ends": bad_server.endless,
    "is cut off": bad_server.cut_off,
    "hangs up": bad_server.hanging_up,
    "shows a login page": LOGIN,
    "redirects": storm("302 Found", location="http://127.0.0.1:1/login"),
    "storms with 429": storm("429 Too Many Requests"),
    "storms with 500": storm("500 Internal Server Error"),
    "storms with 503": storm("503 Service Unavailable"),
    "nests deeply": whole("200 OK", b"[" * 200_000),
    "sends JSON of another": whole("200 OK", b'{"hello": 1}'),
    "sends a number": whole("200 OK", b"7"),
    "sends nothing": whole("200 OK", b""),
    "sends bytes": whole("200 OK", b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("bad", BAD)
async def test_prometheus_fails_in_time_with_one_kind_of_error(bad: str) -> None:
    with misbehaving(BAD[bad]) as server:
        client = PrometheusClient(PrometheusOptions(server.url, timeout_s=TIMEOUT_S))
        began_s = time.monotonic()
        with pytest.raises(PrometheusError):
            client.instant("up")
        assert time.monotonic() - began_s < TIMEOUT_S + BUSY_S
        client.close()


@pytest.mark.parametrize("bad", BAD)
async def test_serve_fails_in_time_with_one_kind_of_error(bad: str) -> None:
    with misbehaving(BAD[bad]) as server:
        settings = Settings(serve={"url": server.url, "timeout_s": TIMEOUT_S})
        api = serve_api(settings.serve)
        began_s = time.monotonic()
        with pytest.raises(ServeError):
            await api.view(resources=False)
        assert time.monotonic() - began_s < TIMEOUT_S + BUSY_S
        await api.close()


def test_an_answer_of_50_megabytes_is_refused_in_bounded_memory() -> None:
    body = huge()
    assert len(body) > 50e6
    announced = whole("200 OK", body)

    async def streamed(_: str) -> AsyncIterator[bytes]:
        yield head("200 OK")
        for start in range(0, len(body), 2**20):
            yield body[start : start + 2**20]

    for behaves in (announced, streamed):
        with misbehaving(behaves) as server:
            client = PrometheusClient(PrometheusOptions(server.url, timeout_s=5.0))
            before = psutil.Process().memory_info().rss
            with pytest.raises(PrometheusError, match=r"narrow prometheus\.selector"):
                client.instant("up")
            grown = psutil.Process().memory_info().rss - before
            assert grown < 8 * MOST_BYTES
            client.close()


def test_a_round_of_queries_shares_its_time() -> None:
    slow = 0.4

    async def late(_: str) -> AsyncIterator[bytes]:
        await asyncio.sleep(slow)
        async for part in EMPTY(""):
            yield part

    with misbehaving(late) as server:
        client = PrometheusClient(PrometheusOptions(server.url, timeout_s=5.0))
        client.begin_round(2.5 * slow)
        client.instant("up")
        client.instant("up")
        with pytest.raises(PrometheusSilent):
            client.instant("up")
        client.begin_round(None)
        client.instant("up")
        client.close()


def good_serve(first: str) -> AsyncIterator[bytes]:
    name = "serve-nodes.json" if "/nodes" in first else "serve-applications.json"
    return whole("200 OK", (RECORDED / name).read_bytes())(first)


def good_prometheus(first: str) -> AsyncIterator[bytes]:
    if "num_router_requests" not in first:
        return EMPTY(first)
    now_s = time.time()  # noqa: TID251
    labels = {"application": "auto", "deployment": "Model", "handle": "h", "SessionName": "s"}
    arrivals = {"__name__": "ray_serve_num_router_requests_total", **labels}
    _, kind, body = vector([{"metric": arrivals, "values": [[now_s, str(now_s)]]}])
    return whole("200 OK", body, kind)("")


class Running:
    """The real daemon's loop against two servers, its ticks kept."""

    def __init__(self, folder: Path, serve: BadServer, prometheus: BadServer) -> None:
        self.ticks: list[tuple[float, Tick]] = []
        settings = Settings(
            tick_s=TICK_S,
            history_seasons=0,
            season_s=60,
            serve={"url": serve.url, "timeout_s": TIMEOUT_S},
            prometheus={"url": prometheus.url, "timeout_s": TIMEOUT_S, "scrape_s": 1},
            deployments=[{"application": "auto", "deployment": "Model", "actuation": "floor"}],
            journal={"path": folder / "journal.db"},
        )
        self.daemon: Daemon = build(settings)
        self.daemon.loop.recorders = (*self.daemon.loop.recorders, self)
        self.stop = asyncio.Event()
        self.ticked = asyncio.Condition()

    def record(self, tick: Tick) -> None:
        self.ticks.append((time.monotonic(), tick))
        self.telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        async with self.ticked:
            self.ticked.notify_all()

    async def __aenter__(self) -> "Running":
        self.running = asyncio.create_task(self.daemon.loop.run(self.stop))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        await self.running
        await self.daemon.close()

    async def until(self, condition: Any, within_s: float) -> None:
        async with asyncio.timeout(within_s), self.ticked:
            await self.ticked.wait_for(lambda: self.ticks and condition(self.ticks[-1][1]))

    def wanted(self) -> list[int]:
        return [d.plan.wanted for _, tick in self.ticks for d, _ in tick.decisions]


def well(tick: Tick) -> bool:
    return not tick.failures


def blind(tick: Tick) -> bool:
    return bool(tick.failures)


@pytest.mark.parametrize(
    ("broken", "bad"),
    [
        ("serve", "never answers"),
        ("serve", "never ends"),
        ("prometheus", "never answers"),
        ("prometheus", "trickles its head"),
        ("prometheus", "is cut off"),
    ],
)
async def test_the_daemon_holds_on_time_and_recovers(tmp_path: Path, bad: str, broken: str) -> None:
    with misbehaving(good_serve) as serve, misbehaving(good_prometheus) as prometheus:
        async with Running(tmp_path, serve, prometheus) as running:
            await running.until(well, 30)
            wanted = running.wanted()[-1]
            server = serve if broken == "serve" else prometheus
            good, server.behaves = server.behaves, BAD[bad]
            await running.until(blind, 20)
            count = len(running.ticks)
            await asyncio.sleep(6 * TICK_S)
            late = running.ticks[count:]
            assert len(late) >= 2
            assert all(blind(tick) for _, tick in late)
            gaps = [b[0] - a[0] for a, b in pairwise(late)]
            assert max(gaps) < TIMEOUT_S + 1.0 + 2 * TICK_S + BUSY_S
            assert {d.plan.wanted for _, tick in late for d, _ in tick.decisions} == {wanted}
            server.behaves = good
            await running.until(well, 40)
            assert running.wanted()[-1] == wanted


async def test_a_storm_is_answered_with_fewer_questions(tmp_path: Path) -> None:
    """After three failures the circuit opens: a stormed Prometheus is left alone, and one request
    finds out whether it is back."""
    with misbehaving(good_serve) as serve, misbehaving(good_prometheus) as prometheus:
        async with Running(tmp_path, serve, prometheus) as running:
            await running.until(well, 30)
            prometheus.behaves = BAD["storms with 503"]
            await running.until(lambda tick: "not asked" in " ".join(tick.failures), 15)
            asked, ticks = len(prometheus.asked), len(running.ticks)
            await asyncio.sleep(8 * TICK_S)
            assert len(running.ticks) - ticks >= 6
            assert len(prometheus.asked) - asked <= 4
            prometheus.behaves = good_prometheus
            await running.until(well, 40)


async def test_an_application_that_is_being_rebuilt_is_not_gone(tmp_path: Path) -> None:
    """`deployments` is empty while Serve rebuilds an application."""
    rebuilt = json.loads((RECORDED / "serve-applications.json").read_text())
    rebuilt["applications"]["auto"]["deployments"] = {}
    nothing = whole("200 OK", json.dumps(rebuilt).encode())

    def rebuilding(first: str) -> AsyncIterator[bytes]:
        return good_serve(first) if "/nodes" in first else nothing(first)

    with misbehaving(good_serve) as serve, misbehaving(good_prometheus) as prometheus:
        async with Running(tmp_path, serve, prometheus) as running:
            await running.until(well, 30)
            wanted = running.wanted()[-1]
            serve.behaves = rebuilding
            await running.until(lambda tick: tick.decisions[0][0].observation.replicas is None, 10)
            await asyncio.sleep(3 * TICK_S)
            assert running.wanted()[-1] == wanted
            assert not [asked for asked in serve.asked if asked.startswith(("PUT", "POST"))]
            serve.behaves = good_serve
            await running.until(
                lambda tick: tick.decisions[0][0].observation.replicas is not None, 10
            )
