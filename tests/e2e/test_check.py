"""`leadtime check` against a real Serve that bears the mistakes, and beside it a sound one."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from controller.demo.cluster import RayCluster
from controller.demo.metrics_server import PrometheusServer
from controller.demo.processes import ProcessGroup
from tests.e2e.misconfigured import APPLICATIONS, GANG
from tests.e2e.world import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


class Cluster:
    """The cluster with its Prometheus; `check` is the command as a pipeline runs it."""

    def __init__(self, folder: Path, ray: RayCluster, metrics: PrometheusServer) -> None:
        self.folder = folder
        self.ray = ray
        self.metrics = metrics

    def check(self, **settings: Any) -> tuple[int, dict[tuple[str, str], str]]:
        """Exit code, and the severity of each finding by rule and place."""
        config = self.folder / "leadtime.yaml"
        said = {
            "serve": {"url": self.ray.dashboard_url},
            "prometheus": {"url": self.metrics.url, "scrape_s": 1},
            "tick_s": 1,
            **settings,
        }
        config.write_text(yaml.safe_dump(said))
        leadtime = Path(sys.executable).with_name("leadtime")
        command = [str(leadtime), "check", "--json", "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        findings = json.loads(done.stdout)["findings"]
        return done.returncode, {(f["rule"], f["where"]): f["severity"] for f in findings}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("check")
    group = ProcessGroup(folder / "logs")
    with RayCluster(group, cpus=8, gpus=2) as ray:
        ray.deploy({"applications": APPLICATIONS})
        metrics = PrometheusServer(group, folder / "prometheus", ray.service_discovery_file)
        metrics.start()
        # The gang never runs: it is put beside the others and not waited for.
        body = {"applications": [*APPLICATIONS, GANG]}
        url = f"{ray.dashboard_url}/api/serve/applications/"
        httpx.put(url, json=body, timeout=30).raise_for_status()
        for application in ("hasty", "sound"):
            httpx.get(f"{ray.http_url}/{application}", timeout=30).raise_for_status()
        stay = 'ray_serve_deployment_processing_latency_ms_count{application="hasty"}'
        wait_for(lambda: bool(metrics.query(stay)), 20, "the request's time in Prometheus")
        beats = "changes(ray_serve_controller_num_control_loops[1m])"
        wait_for(
            lambda: any(float(s["value"][1]) >= 6 for s in metrics.query(beats)),
            30,
            "Serve's controller in Prometheus",
        )
        yield Cluster(folder, ray, metrics)


def test_every_mistake_is_found_where_it_is(cluster: Cluster) -> None:
    code, found = cluster.check()
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
    signals = f"prometheus.url {cluster.metrics.url}"
    assert found["late_signals", signals] == "info"


def test_a_wrong_scrape_interval_and_a_slow_tick_are_found(cluster: Cluster) -> None:
    metrics = {"url": cluster.metrics.url, "scrape_s": 15}
    _, found = cluster.check(prometheus=metrics, tick_s=30)
    where = f"prometheus.url {cluster.metrics.url}"
    assert found["wrong_scrape_interval", where] == "warning"
    assert found["late_signals", where] == "warning"


def test_a_sound_application_passes(cluster: Cluster) -> None:
    body = {"applications": [APPLICATIONS[0]]}
    cluster.ray.deploy(body)
    wait_for(lambda: set(cluster.ray.applications()) == {"sound"}, 40, "the others to be gone")
    entry = {"application": "sound", "deployment": "Model", "min_replicas": 2, "max_replicas": 3}
    code, found = cluster.check(deployments=[entry])
    assert code == 0
    assert {key for key, severity in found.items() if severity == "error"} == set()
    assert ("single_replica", "sound/Model") not in found
