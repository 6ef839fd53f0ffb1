"""Dashboards and alerts on the real cluster: silent while all is well, every panel has data."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import pytest

from alerts.generate import rules
from controller.loop import wall_clock_s
from dashboards.model import Proof
from dashboards.proof import filled, queries, variable_queries
from tests.dashboards.asking import Span, unanswered
from tests.e2e.served import APPLICATION, DEPLOYMENT, applications
from tests.e2e.world import World, frozen, wait_for
from tests.e2e.world import world as made_world

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.timeout(300)]

HEALTHY_S = 46.0
# Two cores carry the cluster, its load and eight more processes: that this machine is busy is true.
OF_THE_MACHINE = {"RayHeadCpuSaturated"}
GPUS, GANG = 8, 1
VALUES = {
    "application": APPLICATION,
    "deployment": f"{DEPLOYMENT}|Ingress",
    "replica": ".*",
    "model": "standin",
    "__rate_interval": "5s",
    "__interval": "1s",
}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A cluster with the rules loaded, which has lived through most of a healthy season."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEADTIME_GPU_HOUR_PRICE", "2.5")
        folder = tmp_path_factory.mktemp("dashboards")
        with made_world(folder, "floor", gpus=GPUS, gang=GANG, rules=True) as made:
            made.play_load(seasons=2, seed=5)
            made.wait_until(HEALTHY_S)
            yield made


def begin_s(live: World) -> float:
    """When the load began, in seconds since the epoch."""
    return wall_clock_s() - (time.monotonic() - live.zero_s)


def alerts(live: World, state: str, since_s: float) -> set[str]:
    """Alerts that were in a state at some time since then."""
    found = live.metrics.over(f'ALERTS{{alertstate="{state}"}}', since_s, wall_clock_s())
    return {series["metric"]["alertname"] for series in found}


def firing(live: World) -> set[str]:
    return alerts(live, "firing", wall_clock_s() - 2)


def test_while_all_is_well_no_alert_is_pending_or_firing(live: World) -> None:
    loaded = httpx.get(f"{live.metrics.url}/api/v1/rules", timeout=10).json()["data"]["groups"]
    expected = {group["name"]: len(group["rules"]) for group in rules()["groups"]}
    assert {group["name"]: len(group["rules"]) for group in loaded} == expected
    failed = [r["name"] for g in loaded for r in g["rules"] if r["health"] == "err"]
    assert failed == []
    seen = {state: alerts(live, state, begin_s(live)) for state in ("pending", "firing")}
    assert {state: names - OF_THE_MACHINE for state, names in seen.items()} == {
        "pending": set(),
        "firing": set(),
    }


def provoke_errors(live: World) -> None:
    """Wrong requests, an unknown path, and a client that leaves in the middle of its answer."""
    with httpx.Client(base_url=live.cluster.http_url, timeout=10) as client:
        for _ in range(4):
            assert client.post("/v1/chat/completions", json={"model": "none"}).status_code >= 400
            assert client.get("/nowhere").status_code == 404
        body: dict[str, Any] = {
            "model": "standin",
            "stream": True,
            "max_tokens": 50,
            "messages": [{"role": "user", "content": "hello"}],
        }
        with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            next(answer.iter_raw())


def provoke_conflict(live: World) -> None:
    """Someone else puts one config after the other, each with another floor."""
    url = f"{live.cluster.dashboard_url}/api/serve/applications/"
    for turn in range(12):
        config = applications(external=False, gang=GANG)
        scaling = config["applications"][0]["deployments"][1]["autoscaling_config"]
        scaling["min_replicas"] = 4 + turn % 2
        httpx.put(url, json=config, timeout=30).raise_for_status()
        time.sleep(1.5)
        if live.reason() == "conflict":
            return
    raise AssertionError("no conflict was seen")


def kill_a_replica(live: World) -> None:
    """Serve starts another in its place."""
    served = live.cluster.applications()[APPLICATION]["deployments"][DEPLOYMENT]["replicas"]
    psutil.Process(served[0]["pid"]).kill()


def test_every_panel_has_data(live: World) -> None:
    provoke_errors(live)
    kill_a_replica(live)
    with frozen(live.dashboard()):
        wait_for(lambda: live.reason() == "serve_unreachable", 30, "serve_unreachable")
        wait_for(lambda: "LeadtimeServeUnreachable" in firing(live), 30, "its alert")
    wait_for(lambda: live.reason() != "serve_unreachable", 30, "recovery")
    provoke_conflict(live)
    wait_for(lambda: "LeadtimeConflict" in firing(live), 30, "the alert of the conflict")
    span = Span(begin_s(live) - 10, wall_clock_s())
    values = {**VALUES, "__range": f"{int(span.end_s - span.start_s)}s"}
    ahead = filled(variable_queries("leadtime-forecast")["ahead"], values)
    ahead = ahead.removeprefix("query_result(").removesuffix(")")
    values["ahead"] = live.metrics.query(ahead)[0]["value"][1]
    asked = [query for query in queries() if query.proof is Proof.LIVE]
    assert len(asked) > 100
    assert unanswered(live.metrics.url, asked, values, span) == []


def test_drop_downs_are_filled(live: World) -> None:
    for uid, label, expected in (
        ("leadtime-serving", "deployment", DEPLOYMENT),
        ("leadtime-serving", "model", "standin"),
        ("leadtime-decisions", "application", APPLICATION),
    ):
        query = filled(variable_queries(uid)[label], VALUES)
        matched, name = query.removeprefix("label_values(").removesuffix(")").rsplit(",", 1)
        found = httpx.get(
            f"{live.metrics.url}/api/v1/label/{name.strip()}/values",
            params={"match[]": matched},
            timeout=10,
        ).json()["data"]
        assert expected in found
