"""Prometheus or Serve gone: the daemon holds, says so, and recovers by itself."""

import signal
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from tests.e2e.world import World, wait_for, world

BLIND = ("blind", "stale")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def problems(live: World) -> str:
    answer = live.get("/readyz")
    return " ".join(answer.json()["problems"]) if answer.status_code == 503 else ""


def reason(live: World) -> str:
    return str(live.decisions(limit=5)[-1]["reason"])


def ready(live: World) -> bool:
    return live.get("/readyz").status_code == 200


def metric(live: World, name: str) -> float:
    lines = live.get("/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def dashboard(live: World) -> list[psutil.Process]:
    """The processes that answer for Serve over REST."""
    return [
        process
        for process in live.group.members()
        if "dashboard.py" in " ".join(process.cmdline())
        or "ServeHead" in process.name()
        or "ServeHead" in " ".join(process.cmdline())
    ]


def assert_blind_held(live: World) -> None:
    """No decision made blind wants fewer than the one before it."""
    for before, blind in pairwise(live.decisions()):
        if blind["reason"] in BLIND:
            assert blind["wanted"] >= before["wanted"], (before, blind)


def test_holds_and_recovers(tmp_path: Path) -> None:
    with world(tmp_path, "floor") as live:
        live.play_load(seasons=2, seed=7)
        live.wait_until(3)

        # Prometheus stops answering.
        live.metrics.stop()
        wait_for(lambda: "prometheus" in problems(live), 20, "readyz to name Prometheus")
        wait_for(lambda: reason(live) in BLIND, 20, "a blind decision")
        assert metric(live, 'leadtime_source_errors_total{source="prometheus"}') > 0
        assert_blind_held(live)
        assert "no usable answer" in live.group.log("leadtime", 100_000)
        live.metrics.start()
        wait_for(lambda: ready(live), 30, "recovery from Prometheus's absence")

        # Prometheus answers, and has nothing: a vector without series is no zero.
        live.metrics.stop()
        discovery, live.metrics.service_discovery_file = live.metrics.service_discovery_file, None
        live.metrics.start()
        wait_for(lambda: reason(live) in BLIND, 40, "a blind decision on no series")
        assert_blind_held(live)
        live.metrics.stop()
        live.metrics.service_discovery_file = discovery
        live.metrics.start()
        wait_for(lambda: ready(live), 30, "recovery from empty answers")

        # Serve's API stops answering, and comes back.
        frozen = dashboard(live)
        assert frozen
        for process in frozen:
            process.send_signal(signal.SIGSTOP)
        try:
            wait_for(lambda: reason(live) == "serve_unreachable", 30, "serve_unreachable")
            assert "serve" in problems(live)
        finally:
            for process in frozen:
                process.send_signal(signal.SIGCONT)
        wait_for(lambda: ready(live), 30, "recovery from Serve's absence")
        assert live.decisions()[-1]["wanted"] >= 1

        # SIGTERM ends it within five seconds, with 0.
        assert live.daemon is not None
        live.daemon.terminate()
        assert live.daemon.wait(5) == 0
