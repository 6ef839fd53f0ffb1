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
import psutil
import yaml

from alerts.generate import render_rules
from controller.demo.cluster import RayCluster
from controller.demo.history import write_blocks
from controller.demo.metrics_server import PrometheusServer
from controller.demo.processes import ProcessGroup, free_ports, stop
from controller.demo.watch import Watch
from controller.loop import wall_clock_s
from tests.e2e.served import (
    APPLICATION,
    BESIDE,
    BUSY_RPS,
    DEPLOYMENT,
    OUTPUT_TOKENS,
    QUIET_RPS,
    RAMP_AT_S,
    RAMP_ENDS_S,
    SCALE,
    SEASON_S,
    SOONER_S,
    applications,
    daemon_settings,
    earlier_season,
    route,
)


@dataclass
class World:
    """Everything that runs, seen from one application; `zero_s` is when the first season begins
    (time.monotonic), `beside` the same seen from the second application, where there is one."""

    folder: Path
    group: ProcessGroup
    cluster: RayCluster
    metrics: PrometheusServer
    watch: Watch
    zero_s: float
    port: int
    actuation: str
    application: str = APPLICATION
    sooner_s: float = 0.0
    beside: "World | None" = None
    daemon: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def wall_zero_s(self) -> float:
        """When the first season begins, since the epoch."""
        return wall_clock_s() - time.monotonic() + self.zero_s

    @property
    def served_url(self) -> str:
        """Where the application is served."""
        return f"{self.cluster.http_url}{route(self.application)}".rstrip("/")

    @property
    def requests(self) -> Path:
        """What the load writes of its requests."""
        return self.folder / f"requests-{self.application}.csv"

    @property
    def ramp_s(self) -> float:
        """Second of a season at which its ramp begins."""
        return RAMP_AT_S - self.sooner_s

    @property
    def ramp_ends_s(self) -> float:
        """Second of a season at which its ramp is over."""
        return RAMP_ENDS_S - self.sooner_s

    def start_daemon(self, env: Mapping[str, str] | None = None) -> None:
        """Start the daemon (again) on the same journal and wait until it is ready."""
        self.launch_daemon(env)
        wait_for(self.ready, 40, "the daemon to be ready")

    def launch_daemon(self, env: Mapping[str, str] | None = None) -> None:
        """Start the daemon (again) on the same journal, with `env` besides its own."""
        config = self.folder / "leadtime.yaml"
        served = [self, *([self.beside] if self.beside else [])]
        ways = {each.application: each.actuation for each in served}
        settings = daemon_settings(self.folder, self.cluster, self.metrics.url, self.port, ways)
        config.write_text(yaml.safe_dump(settings))
        leadtime = Path(sys.executable).with_name("leadtime")
        command = [str(leadtime), "run", "--config", str(config)]
        self.daemon = self.group.start("leadtime", command, env=env)

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

    def ready(self) -> bool:
        """Whether the daemon says that it has what it needs."""
        return self.get("/readyz").status_code == 200

    def problems(self) -> str:
        """What the daemon lacks, in its own words."""
        answer = self.get("/readyz")
        return " ".join(answer.json()["problems"]) if answer.status_code == 503 else ""

    def metric(self, name: str) -> float:
        """Sum of a metric of the daemon's over its series whose text begins so."""
        lines = self.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def reason(self) -> str:
        """That of the last decision."""
        return str(self.decisions(limit=10)[-1]["reason"])

    def dashboard(self) -> list[psutil.Process]:
        """The processes that answer for Serve over REST."""
        return [
            process
            for process in self.group.members()
            if "dashboard.py" in " ".join(process.cmdline())
            or "ServeHead" in process.name()
            or "ServeHead" in " ".join(process.cmdline())
        ]

    def decisions(self, limit: int = 1000, **parameters: float) -> list[dict[str, Any]]:
        """The journal's decisions on the deployment, oldest first; `until_s` ends the list."""
        answer = self.get("/api/v1/decisions", limit=limit, **parameters).json()["decisions"]
        decided = (self.application, DEPLOYMENT)
        return [d for d in reversed(answer) if (d["application"], d["deployment"]) == decided]

    def play_load(self, seasons: int, seed: int, early_s: float = 0.0) -> subprocess.Popen[bytes]:
        """Start the scheduled load, quietly `early_s` before the first season begins; it ends by
        itself, with `requests` written."""
        points = [(0.0, QUIET_RPS)] if early_s else []
        for season in range(seasons):
            begin_s = early_s + season * SEASON_S
            steps = ((0.0, QUIET_RPS), (self.ramp_s, BUSY_RPS), (self.ramp_ends_s, QUIET_RPS))
            for at_s, rate in steps:
                if points:
                    points.append((begin_s + at_s, points[-1][1]))
                points.append((begin_s + at_s, rate))
        points.append((early_s + seasons * SEASON_S, QUIET_RPS))
        recipe = self.folder / f"recipe-{self.application}.json"
        lengths = {"prompt_mean": 20, "prompt_cv": 0, "output_mean": OUTPUT_TOKENS, "output_cv": 0}
        recipe.write_text(json.dumps({"rate": points, **lengths}))
        command = [sys.executable, "-m", "serve_app.loadgen", "--url", self.served_url]
        command += ["--recipe", str(recipe), "--seed", str(seed), "--model", "standin"]
        command += ["--out", str(self.requests), "--progress", "none"]
        command += ["--start-at", str(self.zero_s - early_s)]
        return self.group.start(f"load-{self.application}", command)

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


@contextmanager
def frozen(processes: list[psutil.Process]) -> Iterator[None]:
    """Processes that do not run for a while."""
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


@contextmanager
def world(
    folder: Path,
    actuation: str,
    begins_in_s: float = 15.0,
    gpus: int = 0,
    gang: int = 0,
    rules: bool = False,
    bare: bool = False,
    beside: str = "",
) -> Iterator[World]:
    """A cluster, its Prometheus with eight earlier seasons, and the daemon, which scales in the way
    of `actuation`; there is none where that is `native`. `gpus` are numbers for Ray's scheduler, of
    which each replica takes a `gang`. With `rules` the alerts at a sixtieth are loaded and the
    daemon is scraped. `bare` is a head that outlives its processes. `beside` is the way in which a
    second application like the first is scaled."""
    group = ProcessGroup(folder / "logs")
    with ExitStack() as ends:
        cluster = ends.enter_context(RayCluster(group, cpus=8, gpus=gpus, bare=bare))
        port = free_ports(1)[0]
        floors_url = f"http://127.0.0.1:{port}" if actuation == "policy" else ""
        ways = {APPLICATION: actuation, **({BESIDE: beside} if beside else {})}
        deployed = [
            applications(way == "external", gang, floors_url, name) for name, way in ways.items()
        ]
        cluster.deploy({"applications": [one for each in deployed for one in each["applications"]]})
        wall_zero_s = float(int(wall_clock_s() + begins_in_s))
        zero_s = time.monotonic() + wall_zero_s - wall_clock_s()
        metrics = PrometheusServer(group, folder / "prometheus", cluster.service_discovery_file)
        if rules:
            metrics.targets["leadtime"] = f"127.0.0.1:{port}"
            metrics.rule_files.append(folder / "rules.yml")
            metrics.rule_files[0].write_text(render_rules(SCALE))
        views = []
        for name, way in ways.items():
            sooner_s = SOONER_S if name == BESIDE else 0.0
            watch = ends.enter_context(Watch(cluster, name, DEPLOYMENT))
            pasts = [earlier_season(seed, sooner_s) for seed in range(8)]
            write_blocks(metrics.data, pasts, wall_zero_s, wall_clock_s(), (name, DEPLOYMENT))
            views.append(
                World(folder, group, cluster, metrics, watch, zero_s, port, way, name, sooner_s)
            )
        made = views[0]
        made.beside = views[1] if beside else None
        metrics.start()
        body = {"model": "standin", "messages": [{"role": "user", "content": "hello"}]}
        for view in views:
            httpx.post(f"{view.served_url}/v1/chat/completions", json=body, timeout=30)
        if actuation != "native":
            made.start_daemon()
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
