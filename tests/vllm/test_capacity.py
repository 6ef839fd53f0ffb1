"""The capacity of real vLLM: what Leadtime learns from its metrics is what a bench finds at its
clients, and long contexts lower it before first tokens are late."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from controller.demo.metrics_server import PrometheusServer
from controller.demo.processes import free_ports, stop
from tests.vllm.conftest import (
    MODEL,
    START_WITHIN_S,
    Served,
    shared_application,
)

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]

LEADTIME = str(Path(sys.executable).with_name("leadtime"))
NAME = "paced"
SLOTS = 8
TTFT_S = 1.0
SHORT, LONG = (8, 72), (340, 20)
"""Words of the prompt, each two tokens of this model, and tokens of the answer: of short requests
the KV cache holds as many as there are slots, of long ones three. Short ones stay for over two
seconds: a slot that stands free until Serve fills it again should count for little."""
BLOCK_TOKENS = 128
BLOCKS = 3 * -(-(2 * LONG[0] + LONG[1]) // BLOCK_TOKENS) + 1  # vLLM keeps one for itself


def paced_application() -> dict[str, Any]:
    """An application beside the shared one, on an engine that limits the load long before
    anything on the way to it does."""
    one = shared_application() | {"name": NAME, "route_prefix": f"/{NAME}"}
    engine = one["args"]["engine"]
    engine |= {"slots": SLOTS, "max_model_len": 1024}
    engine["engine_args"] |= {
        "num_gpu_blocks_override": BLOCKS,
        # Prompts of a load are much alike: each is to have blocks of its own.
        "enable_prefix_caching": False,
        "logits_processors": ["serve_app.pacing:Pace"],
        "scheduler_cls": "serve_app.pacing.PacedScheduler",
    }
    for deployment in one["deployments"]:
        if deployment["name"] == "LLM":
            deployment["max_ongoing_requests"] = SLOTS
            deployment["ray_actor_options"]["runtime_env"]["env_vars"]["PACE_STEP_S"] = "0.025"
    return one


class Observed:
    """The served application with its Prometheus; a daemon in shadow mode learns from it."""

    def __init__(self, served: Served, folder: Path) -> None:
        self.served = served
        self.folder = folder
        cluster = served.cluster
        self.metrics = PrometheusServer(
            served.group, folder / "prometheus", cluster.service_discovery_file
        )
        self.port = free_ports(1)[0]
        self.daemon: subprocess.Popen[bytes] | None = None

    def settings(self) -> str:
        """The settings of daemon and bench: nothing is read from before the daemon's start."""
        path = self.folder / "leadtime.yaml"
        entry = {"application": NAME, "deployment": "LLM", "ttft_s": TTFT_S, "max_replicas": 2}
        path.write_text(
            yaml.safe_dump(
                {
                    "season_s": 60,
                    "tick_s": 1,
                    "history_seasons": 0,
                    "deployments": [entry],
                    "prometheus": {"url": self.metrics.url, "scrape_s": 1},
                    "serve": {"url": self.served.cluster.dashboard_url},
                    "http": {"port": self.port},
                    "journal": {"path": str(self.folder / "leadtime.db")},
                    "log": {"format": "json"},
                }
            )
        )
        return str(path)

    def start_daemon(self) -> None:
        """One that has learned nothing yet, in the place of the one before."""
        if self.daemon is not None:
            stop(self.daemon, 5)
        for journal in self.folder.glob("leadtime.db*"):
            journal.unlink()
        command = [LEADTIME, "run", "--config", self.settings()]
        self.daemon = self.served.group.start("leadtime", command)
        wait_for(lambda: self.decision() is not None, 40)

    def decision(self) -> dict[str, Any] | None:
        """The daemon's last one; None before it answers."""
        url = f"http://127.0.0.1:{self.port}/api/v1/decisions"
        try:
            made = httpx.get(url, params={"limit": 1}, timeout=5).json()["decisions"]
        except httpx.HTTPError:
            return None
        return dict(made[0]) if made else None

    def bench(self, rates: str, tokens: tuple[int, int]) -> dict[str, Any]:
        """Load one replica, step by step, with requests of so many prompt and output tokens."""
        prompt_tokens, output_tokens = tokens
        out = self.folder / "bench.json"
        command = [LEADTIME, "bench", "--config", self.settings(), "--replicas", "1"]
        command += ["--rps", rates, "--warm-up", "3", "--seconds", "30", "--model", MODEL]
        command += ["--prompt-tokens", str(prompt_tokens), "--prompt-cv", "0"]
        command += ["--output-tokens", str(output_tokens), "--output-cv", "0", "--json", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        said: dict[str, Any] = json.loads(out.read_text())
        return said


@pytest.fixture(scope="module")
def observed(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    made = Observed(served, tmp_path_factory.mktemp("capacity"))
    made.metrics.start()
    cluster = served.cluster
    cluster.deploy(
        {"applications": [shared_application(), paced_application()]}, within_s=START_WITHIN_S
    )
    try:
        yield made
    finally:
        if made.daemon is not None:
            stop(made.daemon, 5)
        made.metrics.stop()
        cluster.deploy({"applications": [shared_application()]})
        wait_for(lambda: NAME not in cluster.applications(), 60)


def test_what_traffic_teaches_is_what_the_bench_finds(observed: Observed) -> None:
    """The daemon sees the bench as it sees any traffic, by Ray's metrics; the bench knows what
    its clients got."""
    observed.start_daemon()
    said = observed.bench("2,7", SHORT)
    [row] = said["scaling"]
    assert row["saturated"], said["points"]
    decision = observed.decision()
    assert decision is not None
    print(f"bench {row['throughput_rps']:.2f} req/s, learned {decision['capacity_rps']:.2f}")
    assert decision["slots"] == SLOTS
    assert decision["capacity_rps"] == pytest.approx(row["throughput_rps"], rel=0.2)


def test_long_contexts_lower_the_capacity_before_first_tokens_are_late(observed: Observed) -> None:
    """A fourth long context would be preempted: the share of the cache that a request takes says
    so while there is still room for all that come."""
    observed.start_daemon()
    said = observed.bench("1.5", LONG)
    [point] = said["points"]
    decision = observed.decision()
    assert decision is not None
    print(f"TTFT p95 {point['ttft_p95_s']:.2f} s, slots learned {decision['slots']:.2f}")
    assert point["ttft_p95_s"] < TTFT_S / 2
    assert 2.0 <= decision["slots"] <= 4.0


def wait_for(condition: Callable[[], bool], within_s: float) -> None:
    """Poll until the condition holds."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {within_s:.0f} s"
        time.sleep(0.25)
