"""What Serve says of the replicas while a day is played, and how busy the machine is."""

import contextlib
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Self

import httpx
import numpy as np
import psutil

from controller.demo.cluster import RayCluster

POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Sight:
    """One look: when (time.monotonic), Serve's target, and replicas by state."""

    at_s: float
    target: int
    starting: int
    running: int
    stopping: int


@dataclass
class Watch:
    """Polls Serve's API in a thread of its own, between `with` and its end."""

    cluster: RayCluster
    application: str
    deployment: str
    sights: list[Sight] = field(default_factory=list)
    cpu: list[tuple[float, float]] = field(default_factory=list)
    cold_starts_s: list[float] = field(default_factory=list)
    missed: int = 0

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._starting: dict[str, float] = {}

    def __enter__(self) -> Self:
        psutil.cpu_percent()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5)

    def cpu_p95(self, start_s: float, end_s: float) -> float:
        """95th percentile of the host's busy share in percent, over seconds in that span."""
        busy = [percent for at_s, percent in self.cpu if start_s <= at_s < end_s]
        return float(np.percentile(busy, 95)) if busy else float("nan")

    def _run(self) -> None:
        due_s = time.monotonic()
        with httpx.Client(base_url=self.cluster.dashboard_url, timeout=5) as client:
            while not self._stop.wait(max(0.0, due_s - time.monotonic())):
                due_s += POLL_S
                self._look(client)
                if not self.cpu or time.monotonic() - self.cpu[-1][0] >= 1.0:
                    self.cpu.append((time.monotonic(), psutil.cpu_percent()))

    def _look(self, client: httpx.Client) -> None:
        try:
            answer = client.get("/api/serve/applications/").json()
            seen = answer["applications"][self.application]["deployments"][self.deployment]
        except (httpx.HTTPError, KeyError, ValueError):
            self.missed += 1
            return
        now_s = time.monotonic()
        states = Counter(replica["state"] for replica in seen["replicas"])
        running = sum(n for state, n in states.items() if state not in ("STARTING", "STOPPING"))
        self.sights.append(
            Sight(
                now_s,
                seen["target_num_replicas"],
                states["STARTING"],
                running,
                states["STOPPING"],
            )
        )
        for replica in seen["replicas"]:
            if replica["state"] == "STARTING":
                self._starting.setdefault(replica["replica_id"], now_s)
            elif replica["state"] == "RUNNING":
                with contextlib.suppress(KeyError):
                    self.cold_starts_s.append(now_s - self._starting.pop(replica["replica_id"]))
