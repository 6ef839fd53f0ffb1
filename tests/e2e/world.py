"""A scheduled load on a private cluster, with the daemon beside it."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import yaml

from alerts.generate import render_rules
from controller.demo.cluster import RayCluster
from controller.demo.history import write_blocks
from controller.demo.metrics_server import PrometheusServer
from controller.demo.model import Past
from controller.demo.processes import ProcessGroup, free_ports, stop
from controller.demo.watch import Watch
from controller.loop import wall_clock_s
from serve_app.law import Law

APPLICATION, DEPLOYMENT = "chat", "LLM"
SEASON_S = 60
RAMP_AT_S, RAMP_ENDS_S = 28.0, 42.0
QUIET_RPS, BUSY_RPS = 1.0, 9.0
TTFT_S = 1.0
MAX_REPLICAS = 6
SCALE = 60
LEAD_PRIOR_S = 8.0
TTL_S = 10.0
"""How long a floor holds after our death, under `policy`."""
LAW = Law(slots=4, beta=0.05, prefill_tokens_per_s=4000.0, token_s=0.05)
OUTPUT_TOKENS = 20
WORK_S = LAW.lone_work_s(20, OUTPUT_TOKENS)
NEEDED = 3
"""Replicas that the ramp needs: 9 requests/s at 3.4 a replica."""


NATIVE = {
    "min_replicas": 1,
    "max_replicas": MAX_REPLICAS,
    "target_ongoing_requests": 3,
    "upscale_delay_s": 2,
    "downscale_delay_s": 1,
    "look_back_period_s": 3,
    "metrics_interval_s": 1,
}
"""Serve's own autoscaling, and that inside our policy."""


def by_policy(floors_url: str) -> dict[str, Any]:
    """NATIVE under our policy: a delay in front of a floor would hold it back."""
    delays = {name: NATIVE[name] for name in ("upscale_delay_s", "downscale_delay_s")}
    policy = {
        "policy_function": "controller.inserve.policy:LeadtimePolicy",
        "policy_kwargs": {"url": floors_url, **delays},
    }
    return {**NATIVE, **dict.fromkeys(delays, 0), "policy": policy}


def applications(external: bool, gang: int = 0, floors_url: str = "") -> dict[str, Any]:
    """The served application for one way of scaling, with `gang` GPUs a replica; with our policy
    inside Serve where it may ask a daemon at `floors_url`."""
    llm: dict[str, Any] = {"name": DEPLOYMENT, "max_ongoing_requests": LAW.slots}
    if external:
        llm["num_replicas"] = 1
    else:
        llm["autoscaling_config"] = by_policy(floors_url) if floors_url else NATIVE
    engine = {
        "kind": "standin",
        "load_s": 5,
        "slots": LAW.slots,
        "beta": LAW.beta,
        "prefill_tokens_per_s": LAW.prefill_tokens_per_s,
        "token_s": LAW.token_s,
        "chunk_tokens": 10,
    }
    application = {
        "name": APPLICATION,
        "route_prefix": "/",
        "import_path": "serve_app.app:build",
        "logging_config": {"enable_access_log": False},
        "external_scaler_enabled": external,
        "args": {
            "model": "standin",
            "slo_ttft_s": [TTFT_S],
            "cpus": 0.1,
            "gpus": gang,
            "engine": engine,
        },
        "deployments": [
            {"name": "Ingress", "num_replicas": 1, "ray_actor_options": {"num_cpus": 0.1}},
            llm,
        ],
    }
    return {"applications": [application]}


def earlier_season(seed: int) -> Past:
    """A season of the schedule as its metrics would have shown it."""
    rng = np.random.default_rng(seed)
    seconds = np.arange(SEASON_S)
    busy = (seconds >= RAMP_AT_S) & (seconds < RAMP_ENDS_S)
    arrived = np.cumsum(rng.poisson(np.where(busy, BUSY_RPS, QUIET_RPS)))
    # A request is inside for one second, as LAW says of a replica that is not full.
    done = np.concatenate([[0], arrived[:-1]])
    running = np.zeros((SEASON_S, MAX_REPLICAS))
    for second, inside in enumerate(arrived - done):
        running[second] = np.bincount(np.arange(inside) % MAX_REPLICAS, minlength=MAX_REPLICAS)
    return Past(arrived.astype(float), done.astype(float), running)


@dataclass
class World:
    """Everything that runs; `zero_s` is when the first season begins (time.monotonic)."""

    folder: Path
    group: ProcessGroup
    cluster: RayCluster
    metrics: PrometheusServer
    watch: Watch
    zero_s: float
    port: int
    daemon: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def wall_zero_s(self) -> float:
        """When the first season begins, since the epoch."""
        return wall_clock_s() - time.monotonic() + self.zero_s

    def start_daemon(self, actuation: str) -> None:
        """Start the daemon (again) on the same journal and wait until it is ready."""
        self.launch_daemon(actuation)
        wait_for(lambda: self.get("/readyz").status_code == 200, 40, "the daemon to be ready")

    def launch_daemon(self, actuation: str) -> None:
        """Start the daemon (again) on the same journal."""
        config = self.folder / "leadtime.yaml"
        config.write_text(yaml.safe_dump(self._settings(actuation)))
        leadtime = Path(sys.executable).with_name("leadtime")
        command = [str(leadtime), "run", "--config", str(config)]
        self.daemon = self.group.start("leadtime", command)

    def kill_daemon(self) -> None:
        """SIGKILL: no chance to say goodbye."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait(5)

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        """An answer of the daemon; 599 when it does not answer."""
        try:
            return httpx.get(self.url + path, params=parameters, timeout=5)
        except httpx.HTTPError:
            return httpx.Response(599)

    def decisions(self, limit: int = 1000, **parameters: float) -> list[dict[str, Any]]:
        """The journal's decisions on the deployment, oldest first; `until_s` ends the list."""
        answer = self.get("/api/v1/decisions", limit=limit, **parameters).json()["decisions"]
        return [d for d in reversed(answer) if d["deployment"] == DEPLOYMENT]

    def play_load(self, seasons: int, seed: int) -> subprocess.Popen[bytes]:
        """Start the scheduled load, from the beginning of the first season on; it ends by itself,
        with requests.csv written."""
        points: list[tuple[float, float]] = []
        for season in range(seasons):
            begin_s = season * SEASON_S
            for at_s, rate in ((0.0, QUIET_RPS), (RAMP_AT_S, BUSY_RPS), (RAMP_ENDS_S, QUIET_RPS)):
                if points:
                    points.append((begin_s + at_s, points[-1][1]))
                points.append((begin_s + at_s, rate))
        points.append((seasons * SEASON_S, QUIET_RPS))
        recipe = self.folder / "recipe.json"
        lengths = {"prompt_mean": 20, "prompt_cv": 0, "output_mean": OUTPUT_TOKENS, "output_cv": 0}
        recipe.write_text(json.dumps({"rate": points, **lengths}))
        command = [sys.executable, "-m", "serve_app.loadgen", "--url", self.cluster.http_url]
        command += ["--recipe", str(recipe), "--seed", str(seed), "--model", "standin"]
        command += ["--out", str(self.folder / "requests.csv"), "--progress", "none"]
        command += ["--start-at", str(self.zero_s)]
        return self.group.start("load", command)

    def wait_until(self, second: float) -> None:
        """Sleep until a second of the schedule; the load sets the pace, not an event."""
        time.sleep(max(0.0, self.zero_s + second - time.monotonic()))

    def targets(self, start_s: float, end_s: float) -> list[int]:
        """Serve's targets seen in [start_s, end_s) of the schedule."""
        return [
            sight.target
            for sight in self.watch.sights
            if start_s <= sight.at_s - self.zero_s < end_s
        ]

    def ready_since(self, count: int, start_s: float, end_s: float) -> float | None:
        """The first second in a span at which `count` replicas were ready."""
        for sight in self.watch.sights:
            at_s = sight.at_s - self.zero_s
            if start_s <= at_s < end_s and sight.running >= count:
                return at_s
        return None

    def asked_since(self, count: int, start_s: float, end_s: float) -> float | None:
        """The first second in a span at which Serve's target was `count` or more."""
        for sight in self.watch.sights:
            at_s = sight.at_s - self.zero_s
            if start_s <= at_s < end_s and sight.target >= count:
                return at_s
        return None

    def _settings(self, actuation: str) -> dict[str, Any]:
        return {
            "mode": "active",
            "season_s": SEASON_S,
            "tick_s": 1,
            "deployments": [
                {
                    "application": APPLICATION,
                    "deployment": DEPLOYMENT,
                    "ttft_s": TTFT_S,
                    "max_replicas": MAX_REPLICAS,
                    "lead_prior_s": LEAD_PRIOR_S,
                    "actuation": actuation,
                }
            ],
            "prometheus": {"url": self.metrics.url, "scrape_s": 1, "timeout_s": 3},
            "serve": {"url": self.cluster.dashboard_url, "timeout_s": 3},
            "http": {"port": self.port},
            "policy": {"ttl_s": TTL_S},
            "journal": {"path": str(self.folder / "leadtime.db")},
            "log": {"format": "json", "level": "debug"},
        }


@contextmanager
def world(
    folder: Path,
    actuation: str,
    begins_in_s: float = 25.0,
    gpus: int = 0,
    gang: int = 0,
    rules: bool = False,
    bare: bool = False,
) -> Iterator[World]:
    """A cluster, its Prometheus with eight earlier seasons, and the daemon, which scales in the way
    of `actuation`; there is none where that is `native`. `gpus` are numbers for Ray's scheduler, of
    which each replica takes a `gang`. With `rules` the alerts at a sixtieth are loaded and the
    daemon is scraped. `bare` is a head that outlives its processes."""
    group = ProcessGroup(folder / "logs")
    with ExitStack() as ends:
        cluster = ends.enter_context(RayCluster(group, cpus=8, gpus=gpus, bare=bare))
        port = free_ports(1)[0]
        floors_url = f"http://127.0.0.1:{port}" if actuation == "policy" else ""
        cluster.deploy(applications(actuation == "external", gang, floors_url))
        watch = ends.enter_context(Watch(cluster, APPLICATION, DEPLOYMENT))
        wall_zero_s = float(int(wall_clock_s() + begins_in_s))
        zero_s = time.monotonic() + wall_zero_s - wall_clock_s()
        metrics = PrometheusServer(group, folder / "prometheus", cluster.service_discovery_file)
        if rules:
            metrics.targets["leadtime"] = f"127.0.0.1:{port}"
            metrics.rule_files.append(folder / "rules.yml")
            metrics.rule_files[0].write_text(render_rules(SCALE))
        pasts = [earlier_season(seed) for seed in range(8)]
        target = (APPLICATION, DEPLOYMENT)
        write_blocks(metrics.data, pasts, wall_zero_s, wall_clock_s(), target)
        metrics.start()
        body = {"model": "standin", "messages": [{"role": "user", "content": "hello"}]}
        httpx.post(f"{cluster.http_url}/v1/chat/completions", json=body, timeout=30)
        made = World(folder, group, cluster, metrics, watch, zero_s, port)
        if actuation != "native":
            made.start_daemon(actuation)
        try:
            yield made
        finally:
            if made.daemon is not None:
                stop(made.daemon, 5)


def wait_for(condition: Callable[[], bool], within_s: float, what: str) -> None:
    """Poll until a condition holds; an AssertionError says what did not come."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"waited {within_s:.0f} s for {what}")


def reasons(decisions: list[Mapping[str, Any]]) -> set[str]:
    """The reasons given."""
    return {decision["reason"] for decision in decisions}
