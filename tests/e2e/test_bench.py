"""`leadtime bench` on a real Serve: what it measures is what the engine's law says."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from controller.demo.cluster import RayCluster
from controller.demo.metrics_server import PrometheusServer
from controller.demo.processes import ProcessGroup
from tests.e2e.world import APPLICATION, DEPLOYMENT, LAW, OUTPUT_TOKENS, WORK_S, applications

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

CAPACITY_RPS = LAW.capacity_rps(WORK_S)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RayCluster, Path, list[str]]]:
    folder = tmp_path_factory.mktemp("bench")
    group = ProcessGroup(folder / "logs")
    with RayCluster(group, cpus=8) as ray:
        ray.deploy(applications(external=False))
        metrics = PrometheusServer(group, folder / "prometheus", ray.service_discovery_file)
        metrics.start()
        config = folder / "leadtime.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "serve": {"url": ray.dashboard_url},
                    "prometheus": {"url": metrics.url, "scrape_s": 1},
                    "deployments": [{"application": APPLICATION, "deployment": DEPLOYMENT}],
                }
            )
        )
        leadtime = Path(sys.executable).with_name("leadtime")
        yield ray, folder, [str(leadtime), "bench", "-c", str(config)]


def floor(ray: RayCluster) -> dict[str, int]:
    config = ray.applications()[APPLICATION]["deployed_app_config"]
    [llm] = [d for d in config["deployments"] if d["name"] == DEPLOYMENT]
    scaling: dict[str, int] = llm["autoscaling_config"]
    return scaling


def test_measures_what_the_law_says_and_puts_back_what_was(
    bench: tuple[RayCluster, Path, list[str]],
) -> None:
    ray, folder, command = bench
    before = floor(ray)
    out, page = folder / "bench.json", folder / "bench.html"
    command += ["--replicas", "1,2", "--rps", f"{1.5 * CAPACITY_RPS:.1f},{3 * CAPACITY_RPS:.1f}"]
    command += ["--warm-up", "3", "--seconds", "7", "--prompt-tokens", "20", "--prompt-cv", "0"]
    command += ["--output-tokens", str(OUTPUT_TOKENS), "--output-cv", "0"]
    command += ["--json", str(out), "--html", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=160, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(out.read_text())
    one, two = said["scaling"]
    assert one["throughput_rps"] == pytest.approx(CAPACITY_RPS, rel=0.2)
    assert two["linearity"] > 0.8
    assert one["saturated"]
    # 1.5 times a replica's load: too much for one, and carried by two.
    assert [p["replicas"] for p in said["points"]] == [1, 2, 2]
    assert said["points"][1]["ttft_p95_s"] < said["points"][0]["ttft_p95_s"] / 2
    assert "Plotly.newPlot" in page.read_text()
    assert floor(ray) == before
