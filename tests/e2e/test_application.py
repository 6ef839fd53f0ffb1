"""One real cluster, four looks at what runs on it: the production check finds every mistake,
a full ingress hides no demand, the bench measures what the engine's law says, and requests wait
as long as in the simulated cluster under the same arrivals."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml

from controller.demo.cluster import RayCluster
from controller.demo.metrics_server import PrometheusServer
from controller.demo.processes import ProcessGroup, free_ports, stop
from controller.demo.watch import Watch
from controller.replay.plant import ColdStart, Plant, PlantSettings
from controller.replay.trace import from_requests
from serve_app.load_results import LoadResult
from tests.e2e.misconfigured import APPLICATIONS, GANG, SOUND
from tests.e2e.served import APPLICATION, DEPLOYMENT, LAW, OUTPUT_TOKENS, WORK_S, applications
from tests.e2e.world import World, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.timeout(200)]

FRONT_RPS = 8.0
THROTTLE = 2
"""Requests that the ingress lets through at once: with 1 s each, about 2 of 8 a second."""
NEEDED = 3
"""Replicas for 8 requests a second, at 3.4 each."""
CAPACITY_RPS = LAW.capacity_rps(WORK_S)
BURST_REPLICAS = 2
CALM_RPS, BURST_RPS, AFTER_RPS = 4.0, 11.0, 2.0
"""Two replicas carry 6.9 requests/s: the burst leaves about 50 requests in the queue."""
BURST = (
    (0.0, CALM_RPS),
    (15.0, CALM_RPS),
    (15.0, BURST_RPS),
    (27.0, BURST_RPS),
    (27.0, AFTER_RPS),
    (50.0, AFTER_RPS),
)
LEADTIME = str(Path(sys.executable).with_name("leadtime"))


class Cluster:
    """The cluster, its Prometheus, and the command line beside them."""

    def __init__(
        self, folder: Path, group: ProcessGroup, ray: RayCluster, metrics: PrometheusServer
    ) -> None:
        self.folder = folder
        self.group = group
        self.ray = ray
        self.metrics = metrics

    def config(self, **settings: Any) -> str:
        """A settings file that leads here."""
        path = self.folder / "command.yaml"
        said = {
            "serve": {"url": self.ray.dashboard_url},
            "prometheus": {"url": self.metrics.url, "scrape_s": 1},
            "tick_s": 1,
            **settings,
        }
        path.write_text(yaml.safe_dump(said))
        return str(path)

    def check(self, **settings: Any) -> tuple[int, dict[tuple[str, str], str]]:
        """Exit code, and the severity of each finding by rule and place."""
        command = [LEADTIME, "check", "--json", "--config", self.config(**settings)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        findings = json.loads(done.stdout)["findings"]
        return done.returncode, {(f["rule"], f["where"]): f["severity"] for f in findings}

    def chat(self, ingress: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The served application, its ingress changed, beside a sound one."""
        [chat] = applications(external=False)["applications"]
        for deployment in chat["deployments"]:
            if deployment["name"] == "Ingress":
                deployment |= ingress
        return [chat, SOUND]

    def autoscaling(self) -> dict[str, Any]:
        """What the config says of the served deployment's scaling."""
        config = self.ray.applications()[APPLICATION]["deployed_app_config"]
        [llm] = [d for d in config["deployments"] if d["name"] == DEPLOYMENT]
        found: dict[str, Any] = llm["autoscaling_config"]
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("application")
    group = ProcessGroup(folder / "logs")
    with RayCluster(group, cpus=8, gpus=2) as ray:
        ray.deploy({"applications": APPLICATIONS})
        metrics = PrometheusServer(group, folder / "prometheus", ray.service_discovery_file)
        metrics.start()
        yield Cluster(folder, group, ray, metrics)


@pytest.fixture(scope="module")
def mistaken(cluster: Cluster) -> Cluster:
    """With every mistake deployed, and one request of 2.5 s seen."""
    # The gang never runs: it is put beside the others and not waited for.
    body = {"applications": [*APPLICATIONS, GANG]}
    url = f"{cluster.ray.dashboard_url}/api/serve/applications/"
    httpx.put(url, json=body, timeout=30).raise_for_status()
    for application in ("hasty", "sound"):
        httpx.get(f"{cluster.ray.http_url}/{application}", timeout=30).raise_for_status()
    stay = 'ray_serve_deployment_processing_latency_ms_count{application="hasty"}'
    wait_for(lambda: bool(cluster.metrics.query(stay)), 20, "the request's time in Prometheus")
    beats = "changes(ray_serve_controller_num_control_loops[1m])"
    wait_for(
        lambda: any(float(s["value"][1]) >= 6 for s in cluster.metrics.query(beats)),
        30,
        "Serve's controller in Prometheus",
    )
    return cluster


def test_every_mistake_is_found_where_it_is(mistaken: Cluster) -> None:
    code, found = mistaken.check()
    assert code == 1
    errors = {key for key, severity in found.items() if severity == "error"}
    assert errors == {
        ("target_at_the_limit", "hasty/Model"),
        ("initial_replicas_set", "hasty/Model"),
        ("cut_streams", "hasty/Model"),
        ("cold_from_zero", "zero/Model"),
        ("scaled_in_code_too", "coded/Model"),
        ("autoscaling_in_args", "argued"),
        ("refused_actuation", "argued/Model"),
        ("unlimited_target", "argued/Model"),
        ("gang_without_node", "gang/Model"),
    }
    assert found["fixed_replicas", "fixed/Model"] == "warning"
    assert found["default_health_checks", "hasty/Model"] == "warning"
    signals = f"prometheus.url {mistaken.metrics.url}"
    assert found["late_signals", signals] == "info"


def test_a_wrong_scrape_interval_and_a_slow_tick_are_found(mistaken: Cluster) -> None:
    metrics = {"url": mistaken.metrics.url, "scrape_s": 15}
    _, found = mistaken.check(prometheus=metrics, tick_s=30)
    where = f"prometheus.url {mistaken.metrics.url}"
    assert found["wrong_scrape_interval", where] == "warning"
    assert found["late_signals", where] == "warning"


@pytest.fixture(scope="module")
def throttled(cluster: Cluster) -> Iterator[World]:
    """The served application behind an ingress that lets little through, and the daemon."""
    cluster.ray.deploy({"applications": cluster.chat({"max_ongoing_requests": THROTTLE})})
    with ExitStack() as ends:
        watch = ends.enter_context(Watch(cluster.ray, APPLICATION, DEPLOYMENT))
        live = World(
            cluster.folder,
            cluster.group,
            cluster.ray,
            cluster.metrics,
            watch,
            time.monotonic(),
            free_ports(1)[0],
            "floor",
        )
        live.start_daemon()
        try:
            yield live
        finally:
            if live.daemon is not None:
                stop(live.daemon, 5)


def test_a_sound_application_passes(cluster: Cluster, throttled: World) -> None:
    del throttled  # it has put the mistakes away
    wait_for(
        lambda: set(cluster.ray.applications()) == {APPLICATION, "sound"}, 40, "the others to go"
    )
    entry = {"application": "sound", "deployment": "Model", "min_replicas": 2, "max_replicas": 3}
    code, found = cluster.check(deployments=[entry])
    assert {key for key, severity in found.items() if severity == "error"} == set()
    assert code == 0
    assert ("single_replica", "sound/Model") not in found


def load_of(
    cluster: Cluster, rate: Sequence[tuple[float, float]], seed: int
) -> tuple[list[str], Path]:
    """The command that sends a load, and the file that it writes of it."""
    recipe, out = cluster.folder / "recipe.json", cluster.folder / "requests.csv"
    lengths = {"prompt_mean": 20, "prompt_cv": 0, "output_mean": OUTPUT_TOKENS, "output_cv": 0}
    recipe.write_text(json.dumps({"rate": rate, **lengths}))
    command = [sys.executable, "-m", "serve_app.loadgen", "--url", cluster.ray.http_url]
    command += ["--recipe", str(recipe), "--seed", str(seed), "--model", "standin"]
    return [*command, "--out", str(out), "--progress", "none"], out


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


def test_demand_behind_a_throttled_ingress_is_forecast_and_met(
    cluster: Cluster, throttled: World
) -> None:
    live = throttled
    command, _ = load_of(cluster, [(0, FRONT_RPS), (60, FRONT_RPS)], seed=3)
    load = cluster.group.start("load", command)
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
    stop(load)


def test_the_bench_measures_what_the_law_says_and_puts_back_what_was(
    cluster: Cluster, throttled: World
) -> None:
    throttled.kill_daemon()
    cluster.ray.deploy({"applications": cluster.chat({})})
    before = cluster.autoscaling()
    out, page = cluster.folder / "bench.json", cluster.folder / "bench.html"
    config = cluster.config(deployments=[{"application": APPLICATION, "deployment": DEPLOYMENT}])
    command = [LEADTIME, "bench", "-c", config, "--replicas", "1,2"]
    command += ["--rps", f"{1.6 * CAPACITY_RPS:.1f},{3.5 * CAPACITY_RPS:.1f}"]
    command += ["--warm-up", "3", "--seconds", "9", "--prompt-tokens", "20", "--prompt-cv", "0"]
    command += ["--output-tokens", str(OUTPUT_TOKENS), "--output-cv", "0"]
    command += ["--json", str(out), "--html", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=160, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(out.read_text())
    one, two = said["scaling"]
    assert one["throughput_rps"] == pytest.approx(CAPACITY_RPS, rel=0.2)
    assert two["linearity"] > 0.8
    assert one["saturated"]
    # 1.6 times a replica's load: too much for one, and carried by two.
    assert [p["replicas"] for p in said["points"]] == [1, 2, 2]
    assert said["points"][1]["ttft_p95_s"] < said["points"][0]["ttft_p95_s"] / 2
    assert "Plotly.newPlot" in page.read_text()
    assert cluster.autoscaling() == before


def test_waits_in_a_burst_are_those_of_the_simulated_cluster(cluster: Cluster) -> None:
    config = applications(external=True)
    config["applications"][0]["deployments"][1]["num_replicas"] = BURST_REPLICAS
    cluster.ray.deploy(config)
    body = {"model": "standin", "messages": [{"role": "user", "content": "hello"}]}
    for _ in range(4 * BURST_REPLICAS):
        httpx.post(f"{cluster.ray.http_url}/v1/chat/completions", json=body, timeout=30)
    command, out = load_of(cluster, BURST, seed=11)
    subprocess.run(command, check=True, timeout=120)
    real = LoadResult.read_csv(out)
    assert not real.failed().any()
    settings = PlantSettings(
        slots=LAW.slots,
        beta=LAW.beta,
        prefill_tokens_per_s=LAW.prefill_tokens_per_s,
        tpot_s=LAW.token_s,
        slo_ttft_s=1.0,
        cold_start=ColdStart(8.0, jitter=0.0),
        cap=BURST_REPLICAS,
    )
    # The first of a chunk's tokens comes to the client with the chunk's last.
    prompt, output = real.prompt_tokens.astype(np.int32), real.output_tokens.astype(np.int32)
    trace = from_requests("burst", real.scheduled_s, prompt, output, 120.0)
    simulated = Plant(settings, trace, initial=BURST_REPLICAS).finish()
    assert simulated.completed == len(real)
    waited_s = {q: float(np.quantile(real.ttft_s, q)) for q in (0.5, 0.75, 0.9, 0.95)}
    expected_s = {q: simulated.ttft_quantile_s(q) for q in waited_s}
    assert expected_s == pytest.approx(waited_s, rel=0.15, abs=0.15), (expected_s, waited_s)
    late = float(np.mean(real.ttft_s > 1.0))
    assert simulated.violation_ratio == pytest.approx(late, rel=0.15)
