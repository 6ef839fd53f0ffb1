"""A private Prometheus over a private Ray cluster, in a folder of its own."""

import contextlib
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from controller.demo.cluster import DidNotStart
from controller.demo.processes import ProcessGroup, free_ports, stop


@dataclass
class PrometheusServer:
    """Scrapes what Ray's service discovery file lists, plus `targets` by job name; evaluates
    `rule_files` and sends alerts to `alertmanagers` (host:port).

    `folder` holds its configuration and data; data put there before the start are served.
    """

    group: ProcessGroup
    folder: Path
    service_discovery_file: Path | None = None
    targets: dict[str, str] = field(default_factory=dict)
    scrape_s: float = 1.0
    rule_files: list[Path] = field(default_factory=list)
    alertmanagers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = free_ports(1)[0]
        self._process: Any = None

    @property
    def url(self) -> str:
        """Base URL of its API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """Where its blocks lie."""
        return self.folder / "data"

    def start(self, within_s: float = 30.0) -> None:
        """Start and wait until it answers."""
        if shutil.which("prometheus") is None:
            raise DidNotStart("prometheus is not installed: make setup")
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(self._config()))
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self.data}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--storage.tsdb.retention.time=30d",
            "--log.level=warn",
        ]
        self._process = self.group.start("prometheus", command)
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/-/ready", timeout=2).status_code == 200:
                    return
            time.sleep(0.1)
        raise DidNotStart(f"Prometheus not up:\n{self.group.log('prometheus')}")

    def stop(self) -> None:
        """End it; its data stay."""
        if self._process is not None:
            stop(self._process)

    def query(self, promql: str) -> list[Any]:
        """The result of an instant query."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": promql}, timeout=10)
        answer.raise_for_status()
        result: list[Any] = answer.json()["data"]["result"]
        return result

    def over(self, promql: str, start_s: float, end_s: float, step_s: float = 1.0) -> list[Any]:
        """The series of a query over a span, in seconds since the epoch."""
        span: dict[str, str | float] = {"query": promql, "start": start_s, "end": end_s}
        span["step"] = step_s
        answer = httpx.get(f"{self.url}/api/v1/query_range", params=span, timeout=10)
        answer.raise_for_status()
        result: list[Any] = answer.json()["data"]["result"]
        return result

    def _config(self) -> dict[str, Any]:
        jobs: list[dict[str, Any]] = [
            {"job_name": name, "static_configs": [{"targets": [target]}]}
            for name, target in self.targets.items()
        ]
        if self.service_discovery_file is not None:
            files = {"files": [str(self.service_discovery_file)], "refresh_interval": "1s"}
            jobs.append({"job_name": "ray", "file_sd_configs": [files]})
        interval = f"{round(self.scrape_s * 1000)}ms"
        config = {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": [str(path) for path in self.rule_files],
            "scrape_configs": jobs,
        }
        if self.alertmanagers:
            receivers = [{"static_configs": [{"targets": self.alertmanagers}]}]
            config["alerting"] = {"alertmanagers": receivers}
        return config
