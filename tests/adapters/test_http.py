"""Our HTTP server: health, readiness, metrics and a read-only API."""

import json
from typing import Any

import httpx
import pytest

from controller.adapters.http import Board, HttpServer, application
from controller.adapters.telemetry import Telemetry
from controller.adapters.telemetry.logs import set_up_logs
from controller.core.types import Outcome, Reason, Tick
from tests.core.worlds import World, planner


class Clock:
    at_s = 0.0

    def __call__(self) -> float:
        return self.at_s


def made_tick(failures: tuple[str, ...] = (), **changes: Any) -> Tick:
    live, made = World.with_replicas(3), planner()
    live.run(made, 30)
    decision = live.step(made, **changes)
    return Tick(live.at_s, ((decision, Outcome(decision.action, False, "")),), {}, failures)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board() -> Board:
    return Board("shadow", stale_s=35.0)


@pytest.fixture
def client(board: Board, clock: Clock) -> httpx.AsyncClient:
    telemetry = Telemetry(active=False)

    def decisions(*arguments: object) -> list[dict[str, object]]:
        return [{"asked": str(arguments)}]

    transport = httpx.ASGITransport(application(board, telemetry.page, decisions, clock))
    return httpx.AsyncClient(transport=transport, base_url="http://leadtime")


async def test_alive_at_once_ready_only_after_a_good_tick(
    board: Board, clock: Clock, client: httpx.AsyncClient
) -> None:
    assert (await client.get("/healthz")).status_code == 200
    assert (await client.get("/readyz")).status_code == 503
    tick = made_tick()
    board.record(tick)
    clock.at_s = tick.at_s + 1
    assert (await client.get("/readyz")).json() == {"ready": True, "problems": []}


@pytest.mark.parametrize(
    ("changes", "failures", "later_s", "said"),
    [
        pytest.param({"arrivals": None}, (), 1, "app/llm: blind", id="blind"),
        pytest.param({"replicas": None}, (), 1, "serve_unreachable", id="Serve is gone"),
        pytest.param({}, ("prometheus: refused",), 1, "prometheus: refused", id="a failure"),
        pytest.param({}, (), 60, "last tick 60 s ago", id="the loop hangs"),
    ],
)
async def test_not_ready_says_why(
    board: Board,
    clock: Clock,
    client: httpx.AsyncClient,
    changes: dict[str, Any],
    failures: tuple[str, ...],
    later_s: float,
    said: str,
) -> None:
    tick = made_tick(failures=failures, **changes)
    board.record(tick)
    clock.at_s = tick.at_s + later_s
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert said in " ".join(answer.json()["problems"])
    assert (await client.get("/healthz")).status_code == 200


async def test_status_shows_every_deployment(board: Board, client: httpx.AsyncClient) -> None:
    board.record(made_tick())
    shown = (await client.get("/api/v1/status")).json()
    assert shown["mode"] == "shadow"
    assert [d["deployment"] for d in shown["deployments"]] == ["llm"]
    assert (await client.get("/api/v1/forecast")).json()["forecasts"][0]["ahead"]["quantiles"][
        "0.95"
    ] > 0


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("limit=0", "limit must be"),
        ("limit=x", "must be numbers"),
        ("application=a", "go together"),
        ("color=red", "color: no such parameter"),
    ],
)
async def test_a_wrong_question_is_answered_with_400(
    client: httpx.AsyncClient, query: str, said: str
) -> None:
    answer = await client.get(f"/api/v1/decisions?{query}")
    assert answer.status_code == 400
    assert said in answer.json()["error"]


async def test_nothing_can_be_changed(client: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/api/v1/status", "/api/v1/decisions"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert (await client.request(method, path)).status_code == 405


def test_what_is_not_known_is_not_shown() -> None:
    telemetry = Telemetry(active=True)
    telemetry.record(made_tick())
    telemetry.record(made_tick(replicas=None, ongoing=None))
    page = telemetry.page().decode()
    assert "leadtime_ready_replicas{" not in page
    assert "leadtime_queued_requests{" not in page
    assert "leadtime_wanted_replicas{" in page


def test_the_reason_in_the_log_is_the_metric_s(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("json", "info")
    telemetry = Telemetry(active=True)
    telemetry.record(made_tick(arrivals=None))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    said = [line for line in lines if line["event"] == "decision"]
    assert said[0]["reason"] == Reason.BLIND.value
    assert said[0]["deployment"] == "app/llm"


async def test_the_server_listens_and_stops(board: Board, clock: Clock) -> None:
    app = application(board, lambda: b"metrics", lambda *_: [], clock)
    server = HttpServer(app, "127.0.0.1", 0)
    port = await server.start()
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{port}/metrics")
    assert answer.text == "metrics"
    taken = HttpServer(app, "127.0.0.1", port)
    with pytest.raises(OSError, match=r"http\.port"):
        await taken.start()
    await server.stop()
