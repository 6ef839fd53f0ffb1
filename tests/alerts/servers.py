"""A real Alertmanager, and a receiver that keeps what it is sent."""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from controller.demo.processes import ProcessGroup, free_ports, stop
from tests.adapters.fake_server import Answer, Fake, serving


@dataclass
class AlertmanagerServer:
    """Alertmanager on a free loopback port; `configuration` is its file as text."""

    group: ProcessGroup
    folder: Path
    configuration: str
    port: int = field(default_factory=lambda: free_ports(1)[0])

    def __post_init__(self) -> None:
        self._process: Any = None

    @property
    def address(self) -> str:
        """Host and port, as Prometheus wants it."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Base URL of its API."""
        return f"http://{self.address}"

    def start(self, within_s: float = 20.0) -> None:
        """Start and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "alertmanager.yml"
        config.write_text(self.configuration)
        command = [
            "prometheus-alertmanager",
            f"--config.file={config}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address={self.address}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ]
        self._process = self.group.start("alertmanager", command)
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/-/ready", timeout=2).status_code == 200:
                    return
            time.sleep(0.1)
        raise AssertionError(f"Alertmanager not up:\n{self.group.log('alertmanager')}")

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            stop(self._process)

    def alerts(self, **parameters: str) -> list[dict[str, Any]]:
        """The alerts it has, as its API tells them."""
        answer = httpx.get(f"{self.url}/api/v2/alerts", params=parameters, timeout=5)
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()
        return found

    def post(self, *labels: dict[str, str]) -> None:
        """Fire alerts, as Prometheus would."""
        body = [{"labels": of_one, "annotations": {"summary": "test"}} for of_one in labels]
        httpx.post(f"{self.url}/api/v2/alerts", json=body, timeout=5).raise_for_status()


@dataclass
class Receiver:
    """A webhook that answers 200 and keeps the bodies, by path."""

    fake: Fake

    @property
    def url(self) -> str:
        return self.fake.url

    def names(self, path: str) -> set[str]:
        """Names of the alerts sent to a path."""
        return {
            alert["labels"]["alertname"]
            for asked in self.fake.asked
            if asked["path"] == path
            for alert in json.loads(asked["body"])["alerts"]
        }

    def headers(self, path: str) -> list[dict[str, str]]:
        """Headers of what was sent to a path."""
        both = zip(self.fake.asked, self.fake.headers, strict=True)
        return [headers for asked, headers in both if asked["path"] == path]


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    """A receiver on a free loopback port."""

    def answer(path: str, parameters: dict[str, str]) -> Answer:
        return 200, "application/json", b"{}"

    with serving(answer) as fake:
        yield Receiver(fake)
