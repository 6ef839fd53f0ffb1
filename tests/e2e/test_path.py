"""A full ingress hides nothing: the deployment behind it is sized for what came to the front."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from controller.demo.cluster import RayCluster
from controller.demo.metrics_server import PrometheusServer
from controller.demo.processes import ProcessGroup, free_ports, stop
from controller.demo.watch import Watch
from tests.e2e.world import APPLICATION, DEPLOYMENT, OUTPUT_TOKENS, World, applications, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]

FRONT_RPS = 8.0
THROTTLE = 2
"""Requests that the ingress lets through at once: with 1 s each, about 2 of 8 a second."""
NEEDED = 3
"""Replicas for 8 requests a second, at 3.4 each."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("path")
    group = ProcessGroup(folder / "logs")
    config = applications(external=False)
    [ingress] = [d for d in config["applications"][0]["deployments"] if d["name"] == "Ingress"]
    ingress["max_ongoing_requests"] = THROTTLE
    with ExitStack() as ends:
        cluster = ends.enter_context(RayCluster(group, cpus=8))
        cluster.deploy(config)
        watch = ends.enter_context(Watch(cluster, APPLICATION, DEPLOYMENT))
        metrics = PrometheusServer(group, folder / "prometheus", cluster.service_discovery_file)
        metrics.start()
        made = World(folder, group, cluster, metrics, watch, time.monotonic(), free_ports(1)[0])
        made.start_daemon("floor")
        try:
            yield made
        finally:
            if made.daemon is not None:
                stop(made.daemon, 5)


def play(live: World, rate: float, seconds: float) -> None:
    recipe = live.folder / "recipe.json"
    lengths = {"prompt_mean": 20, "prompt_cv": 0, "output_mean": OUTPUT_TOKENS, "output_cv": 0}
    recipe.write_text(json.dumps({"rate": [[0, rate], [seconds, rate]], **lengths}))
    command = [sys.executable, "-m", "serve_app.loadgen", "--url", live.cluster.http_url]
    command += ["--recipe", str(recipe), "--seed", "3", "--model", "standin"]
    command += ["--out", str(live.folder / "requests.csv"), "--progress", "none"]
    live.group.start("load", command)


def passed_rps(live: World) -> float:
    """What the ingress lets through to the deployment behind it, of the last 10 s."""
    series = f'ray_serve_num_router_requests_total{{deployment="{DEPLOYMENT}"}}'
    result = live.metrics.query(f"sum(rate({series}[10s]))")
    return float(result[0]["value"][1]) if result else 0.0


def recent_rps(live: World, decisions: int) -> float:
    """Demand of the last decisions, on average."""
    seen = [d["inputs"]["demand_rps"] for d in live.decisions(decisions)]
    known = [float(rate) for rate in seen if rate is not None]
    return sum(known) / max(len(known), 1)


def test_demand_behind_a_throttled_ingress_is_forecast_and_met(live: World) -> None:
    play(live, FRONT_RPS, 60)
    # Sized for the front door while the deployment itself sees a quarter of it.
    wait_for(lambda: passed_rps(live) > 0.5, 20, "requests to come through")
    wait_for(lambda: recent_rps(live, 12) > 0.75 * FRONT_RPS, 30, "the demand to be seen")
    wait_for(lambda: live.watch.sights[-1].target >= NEEDED, 15, "Serve's target to follow")
    assert passed_rps(live) < FRONT_RPS / 2
    assert recent_rps(live, 12) < 1.4 * FRONT_RPS
    decision = live.decisions(1)[0]
    assert decision["wanted"] >= NEEDED
    assert decision["ahead"]["quantiles"]["0.9"] > FRONT_RPS / 2
    assert decision["inputs"]["signals"]["upstream"]["value"] > FRONT_RPS
