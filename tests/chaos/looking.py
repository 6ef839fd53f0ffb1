"""Looks at a world twice a second: what Serve says, which replicas live, who answers."""

import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
import psutil

from tests.chaos.invariants import Look
from tests.e2e.served import APPLICATION, DEPLOYMENT
from tests.e2e.world import World

EVERY_S = 0.5
PATIENCE_S = 2.0
STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


@dataclass
class Looking:
    """Looks from a thread of its own, between `with` and its end. A look's time is when it began:
    what it found cannot be older."""

    live: World
    with_daemon: bool
    looks: list[Look] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._looked = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5 * PATIENCE_S)

    def now_s(self) -> float:
        """Seconds into the load."""
        return time.monotonic() - self.live.zero_s

    def of_load(self) -> list[Look]:
        """The looks since the load began."""
        return [look for look in list(self.looks) if look.at_s >= 0]

    def await_next(self) -> None:
        """Wait until one more look is done."""
        with self._looked:
            self._looked.wait(5 * PATIENCE_S)

    def _run(self) -> None:
        with httpx.Client(timeout=PATIENCE_S) as client:
            while not self._stop.wait(EVERY_S):
                look = self._look(client)
                with self._looked:
                    self.looks.append(look)
                    self._looked.notify_all()

    def _look(self, client: httpx.Client) -> Look:
        at_s = self.now_s()
        target, serving = None, 0
        with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):
            url = f"{self.live.cluster.dashboard_url}/api/serve/applications/"
            application = client.get(url).json()["applications"][APPLICATION]
            seen = application["deployments"][DEPLOYMENT]
            target, serving = int(seen["target_num_replicas"]), _serving(seen["replicas"])
        well = _answers(client, f"{self.live.metrics.url}/-/ready")
        if self.with_daemon:
            well = well and _answers(client, f"{self.live.url}/readyz")
        return Look(at_s, target, serving, well)


def from_metrics(live: World, span_s: float) -> list[Look]:
    """Serve's targets as it reported them, for the seconds in which it did not answer; none where
    Prometheus does not answer, which is no recovery."""
    name = "ray_serve_autoscaling_target_replicas"
    selector = f'{name}{{application="{APPLICATION}",deployment="{DEPLOYMENT}"}}'
    try:
        series = live.metrics.query(f"{selector}[{round(span_s) + 60}s]")
    except httpx.HTTPError:
        return []
    samples = [sample for each in series for sample in each["values"]]
    zero_s = live.wall_zero_s
    return [Look(at_s - zero_s, int(float(value)), 0, False) for at_s, value in samples]


def filled(looks: list[Look], reported: list[Look]) -> list[Look]:
    """Looks in order of time, with reported ones from where Serve had not answered for a second."""
    known_s = [look.at_s for look in looks if look.target is not None]
    wanting = [
        look
        for look in reported
        if 0 <= look.at_s <= looks[-1].at_s
        and all(abs(look.at_s - at_s) > 2 * EVERY_S for at_s in known_s)
    ]
    return sorted([*looks, *wanting], key=lambda look: look.at_s)


def _serving(replicas: list[dict[str, Any]]) -> int:
    """Replicas that Serve believes to run and whose process does: a killed one is listed on for
    some seconds."""
    return sum(each["state"] == "RUNNING" and _lives(each.get("pid")) for each in replicas)


def _lives(pid: int | None) -> bool:
    with contextlib.suppress(psutil.Error):
        return pid is not None and psutil.Process(pid).status() not in STOPPED
    return False


def _answers(client: httpx.Client, url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return client.get(url).status_code == 200
    return False
