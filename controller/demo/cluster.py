"""A private Ray cluster on this machine: own folder, own ports, ended without a trace."""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from controller.demo.processes import ProcessGroup, free_ports

REPORT_INTERVAL_MS = 1000


class DidNotStart(RuntimeError):
    """A server did not come up in time; the message ends with its log."""


@dataclass
class RayCluster:
    """`with RayCluster(...) as cluster:` a head node with the dashboard, ready for Serve.

    Logical `cpus`, `gpus` and `resources` are numbers for Ray's scheduler, not cores. A `bare` head
    goes on without those of its processes that die; else the first one to die ends them all.
    """

    group: ProcessGroup
    cpus: int = 8
    gpus: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    bare: bool = False

    def __post_init__(self) -> None:
        ports = free_ports(9)
        self.gcs_port, self.dashboard_port, self.metrics_port, self.http_port = ports[:4]
        self._agent_ports = ports[4:6]
        self._client_port = ports[6]
        self._own_metric_ports = ports[7:9]
        # Ray keeps unix sockets below this folder and their paths must stay under 107 bytes.
        self.temp_dir = Path(tempfile.mkdtemp(prefix="lt-ray-", dir="/tmp"))

    @property
    def dashboard_url(self) -> str:
        return f"http://127.0.0.1:{self.dashboard_port}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def service_discovery_file(self) -> Path:
        """The file in which Ray lists its metric targets for Prometheus."""
        return self.temp_dir / "prom_metrics_service_discovery.json"

    def __enter__(self) -> Self:
        try:
            self.group.start("ray", self._command(), env=self._environment())
            self._await(self._answers, what="Ray's dashboard", within_s=60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.group.end()
        shutil.rmtree(self.temp_dir, ignore_errors=True)

    def deploy(self, config: Mapping[str, Any], within_s: float = 120) -> None:
        """PUT a Serve config and return once each of its applications is RUNNING."""
        config = {
            "http_options": {"host": "127.0.0.1", "port": self.http_port},
            "proxy_location": "HeadOnly",
            **config,
        }
        answer = httpx.put(f"{self.dashboard_url}/api/serve/applications/", json=config, timeout=60)
        if answer.status_code != 200:
            raise DidNotStart(f"Serve refused the config: {answer.text[:2000]}")
        names = {application["name"] for application in config["applications"]}
        self._await(lambda: self._running(names), what="the Serve applications", within_s=within_s)

    def applications(self) -> dict[str, Any]:
        """Serve's own account of its applications."""
        answer = httpx.get(f"{self.dashboard_url}/api/serve/applications/", timeout=10)
        answer.raise_for_status()
        applications: dict[str, Any] = answer.json()["applications"]
        return applications

    def _running(self, names: set[str]) -> bool:
        applications = self.applications()
        failed = [
            f"{name}: {applications[name]['message']}"
            for name in names & applications.keys()
            if applications[name]["status"] == "DEPLOY_FAILED"
        ]
        if failed:
            raise DidNotStart("; ".join(failed)[:2000])
        return all(
            name in applications and applications[name]["status"] == "RUNNING" for name in names
        )

    def _answers(self) -> bool:
        return httpx.get(f"{self.dashboard_url}/api/version", timeout=2).status_code == 200

    def _await(self, condition: Callable[[], bool], what: str, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                if condition():
                    return
            time.sleep(0.1)
        raise DidNotStart(f"{what} not up within {within_s:.0f} s:\n{self.group.log('ray')}")

    def _command(self) -> list[str]:
        options = {
            "port": self.gcs_port,
            "node-ip-address": "127.0.0.1",
            "dashboard-host": "127.0.0.1",
            "dashboard-port": self.dashboard_port,
            "metrics-export-port": self.metrics_port,
            "dashboard-agent-listen-port": self._agent_ports[0],
            "dashboard-agent-grpc-port": self._agent_ports[1],
            "ray-client-server-port": self._client_port,
            "num-cpus": self.cpus,
            "num-gpus": self.gpus,
            "object-store-memory": 100_000_000,
            "temp-dir": self.temp_dir,
        }
        ray = Path(sys.executable).with_name("ray")
        command = [str(ray), "start", "--head", "--disable-usage-stats"]
        command += [] if self.bare else ["--block"]
        command += [f"--{name}={value}" for name, value in options.items()]
        if self.resources:
            pairs = ", ".join(f'"{name}": {value}' for name, value in self.resources.items())
            command.append(f"--resources={{{pairs}}}")
        return command

    def _environment(self) -> dict[str, str]:
        root = str(Path(__file__).resolve().parents[2])
        return {
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_metrics_report_interval_ms": str(REPORT_INTERVAL_MS),
            "AUTOSCALER_METRIC_PORT": str(self._own_metric_ports[0]),
            "DASHBOARD_METRIC_PORT": str(self._own_metric_ports[1]),
            "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
            **self.env,
        }
