"""The simulated cluster beside the stand-in on real Ray: the same arrivals, the same waits."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest

from controller.demo.cluster import RayCluster
from controller.demo.processes import ProcessGroup
from controller.replay.plant import ColdStart, Plant, PlantSettings
from controller.replay.trace import from_requests
from serve_app.load_results import LoadResult
from tests.e2e.served import LAW, OUTPUT_TOKENS, applications

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.timeout(180)]

REPLICAS = 2
CALM_RPS, BURST_RPS, AFTER_RPS = 4.0, 11.0, 2.0
"""Two replicas carry 6.9 requests/s: the burst leaves about 50 requests in the queue."""
POINTS = (
    (0.0, CALM_RPS),
    (15.0, CALM_RPS),
    (15.0, BURST_RPS),
    (27.0, BURST_RPS),
    (27.0, AFTER_RPS),
    (50.0, AFTER_RPS),
)


def played_on_ray(folder: Path) -> LoadResult:
    """The burst through the HTTP ingress to two replicas of the stand-in."""
    config = applications(external=True)
    config["applications"][0]["deployments"][1]["num_replicas"] = REPLICAS
    group = ProcessGroup(folder / "logs")
    out = folder / "requests.csv"
    with RayCluster(group, cpus=8) as cluster:
        cluster.deploy(config)
        body = {"model": "standin", "messages": [{"role": "user", "content": "hello"}]}
        for _ in range(4 * REPLICAS):
            httpx.post(f"{cluster.http_url}/v1/chat/completions", json=body, timeout=30)
        recipe = folder / "recipe.json"
        lengths = {"prompt_mean": 20, "prompt_cv": 0, "output_mean": OUTPUT_TOKENS, "output_cv": 0}
        recipe.write_text(json.dumps({"rate": POINTS, **lengths}))
        command = [sys.executable, "-m", "serve_app.loadgen", "--url", cluster.http_url]
        command += ["--recipe", str(recipe), "--seed", "11", "--model", "standin"]
        command += ["--out", str(out), "--progress", "none"]
        subprocess.run(command, check=True, timeout=120)
    return LoadResult.read_csv(out)


def test_waits_in_a_burst_are_those_of_the_standin_on_real_ray(tmp_path: Path) -> None:
    real = played_on_ray(tmp_path)
    assert not real.failed().any()
    settings = PlantSettings(
        slots=LAW.slots,
        beta=LAW.beta,
        prefill_tokens_per_s=LAW.prefill_tokens_per_s,
        tpot_s=LAW.token_s,
        slo_ttft_s=1.0,
        cold_start=ColdStart(8.0, jitter=0.0),
        cap=REPLICAS,
    )
    # The first of a chunk's tokens comes to the client with the chunk's last.
    prompt, output = real.prompt_tokens.astype(np.int32), real.output_tokens.astype(np.int32)
    trace = from_requests("burst", real.scheduled_s, prompt, output, 120.0)
    simulated = Plant(settings, trace, initial=REPLICAS).finish()
    assert simulated.completed == len(real)
    waited_s = {q: float(np.quantile(real.ttft_s, q)) for q in (0.5, 0.75, 0.9, 0.95)}
    expected_s = {q: simulated.ttft_quantile_s(q) for q in waited_s}
    assert expected_s == pytest.approx(waited_s, rel=0.15, abs=0.15), (expected_s, waited_s)
    late = float(np.mean(real.ttft_s > 1.0))
    assert simulated.violation_ratio == pytest.approx(late, rel=0.15)
