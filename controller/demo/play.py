"""One compressed day on a real cluster of its own, under one policy."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import httpx
import yaml

from alerts.generate import render_rules
from controller.demo.cluster import DidNotStart, RayCluster
from controller.demo.day import Day
from controller.demo.history import write_blocks
from controller.demo.metrics_server import PrometheusServer
from controller.demo.model import Past
from controller.demo.processes import ProcessGroup, free_ports
from controller.demo.script import Script
from controller.demo.watch import Sight, Watch
from controller.loop import wall_clock_s
from controller.replay.native import NativeSettings
from serve_app.load_results import LoadResult

APPLICATION, DEPLOYMENT = "demo", "LLM"
GET_READY_S = 9.0
ALERTS_SCALE = 60
OF_THE_HOST = frozenset({"RayHeadCpuSaturated"})
# A third less CPU a request on a small machine; the same for both policies.
LEAN = {
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
}
DAEMON_READY_S = 45.0
LOAD_PATIENCE_S = 45.0
Show = Callable[["Scene"], None]


@dataclass(frozen=True)
class Scene:
    """How a day stands: its second (negative before it begins), the load player's last line
    and Serve's last account."""

    policy: str
    at_s: float
    load: Mapping[str, Any]
    sight: Sight | None
    phase: str


@dataclass(frozen=True)
class Played:
    """A played day: what became of each request, of the replicas, who decided what, and which
    alerts were pending or firing."""

    policy: str
    load: LoadResult
    sights: Sequence[Sight]
    zero_s: float
    zero_wall_s: float
    cold_starts_s: Sequence[float]
    cpu_p95: float
    decisions: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    alerts: Sequence[str] = ()


def safety_net(script: Script) -> NativeSettings:
    """Serve's own autoscaler under Leadtime's floor: it acts when the floor is not enough."""
    return NativeSettings(
        min_replicas=script.min_replicas,
        max_replicas=script.max_replicas,
        target_ongoing_requests=script.law.slots - 1,
        upscale_delay_s=3.0,
        downscale_delay_s=1.0,
        metrics_interval_s=1.0,
        look_back_period_s=3.0,
    )


def serve_config(script: Script, autoscaling: NativeSettings) -> dict[str, Any]:
    """The demo application with Serve's own autoscaler set as given."""
    scaling = {k: v for k, v in asdict(autoscaling).items() if v is not None}
    actor: dict[str, Any] = {"num_cpus": script.cpus}
    if script.replica_env:
        actor["runtime_env"] = {"env_vars": dict(script.replica_env)}
    application = {
        "name": APPLICATION,
        "route_prefix": "/",
        "import_path": "serve_app.app:build",
        "logging_config": {"enable_access_log": False},
        "args": {
            "model": script.model,
            "slo_ttft_s": [script.ttft_s],
            "engine": dict(script.engine),
        },
        "deployments": [
            {
                "name": "Ingress",
                "num_replicas": 1,
                "max_ongoing_requests": 1000,
                "ray_actor_options": {"num_cpus": 0.1},
            },
            {
                "name": DEPLOYMENT,
                "max_ongoing_requests": script.law.slots,
                "ray_actor_options": actor,
                "graceful_shutdown_timeout_s": 20.0,
                "autoscaling_config": scaling,
            },
        ],
    }
    return {"applications": [application]}


def play(
    played: Day,
    folder: Path,
    native: NativeSettings | None,
    pasts: Sequence[Past],
    show: Show,
) -> Played:
    """Play a day under Serve's own autoscaler (`native`) or, with None, under Leadtime.

    Everything started is ended before this returns or raises.
    """
    policy = "leadtime" if native is None else "native"
    stage = Stage(policy, played.script, folder, show)
    return stage.play(played, native, pasts)


class Stage:
    """The servers of one played day."""

    def __init__(self, policy: str, script: Script, folder: Path, show: Show) -> None:
        self.policy = policy
        self.script = script
        self.folder = folder
        self._show = show
        self._daemon_url: str | None = None
        self._port = free_ports(1)[0]

    def play(self, played: Day, native: NativeSettings | None, pasts: Sequence[Past]) -> Played:
        """Start everything, play the day, take everything down."""
        group = ProcessGroup(self.folder / "logs")
        with ExitStack() as ends:
            self._tell("starting Ray")
            cluster = RayCluster(group, cpus=16, env=LEAN)
            ends.enter_context(cluster)
            self._tell("deploying")
            script = self.script
            config = serve_config(script, native or safety_net(script))
            cluster.deploy(config, within_s=script.ready_within_s)
            self._warm(cluster)
            watch = ends.enter_context(Watch(cluster, APPLICATION, DEPLOYMENT))
            wall_zero_s = ceil(wall_clock_s()) + GET_READY_S + script.warm_up_s
            zero_s = time.monotonic() + wall_zero_s - wall_clock_s()
            metrics = self._start_metrics(group, cluster, pasts, wall_zero_s)
            if native is None:
                self._start_daemon(group, cluster, metrics, zero_s)
            load = self._play_load(group, cluster, played, watch, zero_s)
            return Played(
                self.policy,
                load,
                list(watch.sights),
                zero_s,
                wall_zero_s,
                list(watch.cold_starts_s),
                watch.cpu_p95(zero_s, zero_s + script.season_s),
                self._decisions(),
                self._alerts(metrics, wall_zero_s),
            )

    def _start_metrics(
        self,
        group: ProcessGroup,
        cluster: RayCluster,
        pasts: Sequence[Past],
        wall_zero_s: float,
    ) -> PrometheusServer:
        self._tell("starting Prometheus")
        discovery = cluster.service_discovery_file
        metrics = PrometheusServer(group, self.folder / "prometheus", discovery)
        if self.policy == "leadtime":
            target = (APPLICATION, DEPLOYMENT)
            cold_start_s = self.script.cold_start_s
            write_blocks(metrics.data, pasts, wall_zero_s, wall_clock_s(), target, cold_start_s)
            metrics.targets["leadtime"] = f"127.0.0.1:{self._port}"
            rules = self.folder / "rules.yml"
            rules.write_text(render_rules(ALERTS_SCALE))
            metrics.rule_files.append(rules)
        metrics.start()
        return metrics

    def _start_daemon(
        self,
        group: ProcessGroup,
        cluster: RayCluster,
        metrics: PrometheusServer,
        zero_s: float,
    ) -> None:
        self._tell("starting Leadtime")
        config = self.folder / "leadtime.yaml"
        config.write_text(yaml.safe_dump(self._daemon_config(cluster, metrics, self._port)))
        leadtime = Path(sys.executable).with_name("leadtime")
        group.start("leadtime", [str(leadtime), "run", "--config", str(config)])
        self._daemon_url = f"http://127.0.0.1:{self._port}"
        deadline_s = time.monotonic() + DAEMON_READY_S
        while time.monotonic() < deadline_s:
            try:
                if httpx.get(f"{self._daemon_url}/readyz", timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if time.monotonic() > zero_s - 1.0:
                break
            time.sleep(0.1)
        raise DidNotStart(f"Leadtime is not ready:\n{group.log('leadtime')}")

    def _daemon_config(
        self, cluster: RayCluster, metrics: PrometheusServer, port: int
    ) -> dict[str, Any]:
        """The season, the tick and the scrape are the demo's; all else is the user's part: the
        SLO, the bounds, where things are."""
        return {
            "mode": "active",
            "season_s": self.script.season_s,
            "tick_s": 1.0,
            "slo": {
                "ttft_s": self.script.ttft_s,
                "attainment": self.script.attainment,
                "min_replicas": self.script.min_replicas,
                "max_replicas": self.script.max_replicas,
            },
            "prometheus": {"url": metrics.url, "scrape_s": metrics.scrape_s},
            "serve": {"url": cluster.dashboard_url},
            "http": {"port": port},
            "journal": {"path": str(self.folder / "leadtime.db")},
            "log": {"format": "json"},
        }

    def _warm(self, cluster: RayCluster) -> None:
        """One request before anything is measured: the first of all is slow, and not the load's."""
        body = {
            "model": self.script.model,
            "messages": [{"role": "user", "content": "warm up"}],
            "max_tokens": 1,
        }
        httpx.post(f"{cluster.http_url}/v1/chat/completions", json=body, timeout=30)

    def _play_load(
        self,
        group: ProcessGroup,
        cluster: RayCluster,
        played: Day,
        watch: Watch,
        zero_s: float,
    ) -> LoadResult:
        trace, out = self.folder / "day.csv", self.folder / "requests.csv"
        played.arrivals.save(trace)
        command = [sys.executable, "-m", "serve_app.loadgen", "--url", cluster.http_url]
        command += ["--trace", str(trace), "--seed", str(played.seed), "--out", str(out)]
        command += ["--model", self.script.model, "--progress", "json"]
        command += ["--start-at", str(zero_s - self.script.warm_up_s)]
        player = group.start("load", command)
        deadline_s = zero_s + self.script.season_s + LOAD_PATIENCE_S
        while player.poll() is None and time.monotonic() < deadline_s:
            time.sleep(0.5)
            at_s = time.monotonic() - zero_s
            phase = "warm-up" if at_s < 0 else "playing the day"
            sight = watch.sights[-1] if watch.sights else None
            self._show(Scene(self.policy, at_s, _last_progress(group.log("load")), sight, phase))
        if player.poll() != 0 or not out.exists():
            raise DidNotStart(f"the load was not played:\n{group.log('load')}")
        return LoadResult.read_csv(out)

    def _decisions(self) -> list[Mapping[str, Any]]:
        if self._daemon_url is None:
            return []
        answer = httpx.get(
            f"{self._daemon_url}/api/v1/decisions", params={"limit": 1000}, timeout=10
        )
        answer.raise_for_status()
        decisions: list[Mapping[str, Any]] = answer.json()["decisions"]
        return decisions[::-1]

    def _alerts(self, metrics: PrometheusServer, wall_zero_s: float) -> list[str]:
        """Alerts of the day as `name state`; the host's CPU is told by its own figure."""
        if self._daemon_url is None:
            return []
        found = metrics.over("ALERTS", wall_zero_s, wall_zero_s + self.script.season_s)
        names = {(s["metric"]["alertname"], s["metric"]["alertstate"]) for s in found}
        return sorted(f"{name} {state}" for name, state in names if name not in OF_THE_HOST)

    def _tell(self, phase: str) -> None:
        self._show(Scene(self.policy, float("-inf"), {}, None, phase))


def _last_progress(log: str) -> Mapping[str, Any]:
    """The load player's last complete line of progress."""
    for line in reversed(log.splitlines()):
        try:
            said: Mapping[str, Any] = json.loads(line)
        except ValueError:
            continue
        if said.get("kind") == "progress":
            return said
    return {}
