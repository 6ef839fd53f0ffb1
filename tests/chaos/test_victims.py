"""Strikes hit the processes that are meant, of our own only."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from controller.demo.processes import ProcessGroup
from tests.chaos.schedule import KINDS, Act, Fault, Victim
from tests.chaos.victims import SERVE_TITLE, TITLES, Chaos, processes
from tests.e2e.world import World, wait_for

SLEEPS = "import time; time.sleep(60)"


class Stage:
    """Sleeping processes that are called like victims; `started_again` is who was asked for."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.started_again: list[str] = []
        metrics = SimpleNamespace(start=lambda: self.started_again.append("prometheus"))
        stage = SimpleNamespace(group=group, zero_s=time.monotonic(), metrics=metrics)
        stage.launch_daemon = lambda: self.started_again.append("daemon")
        self.live = cast("World", stage)
        self.chaos = Chaos(self.live)

    def add(self, victim: Victim) -> psutil.Process:
        command = [sys.executable, "-c", SLEEPS, TITLES[victim]]
        return psutil.Process(self.group.start("victim", command).pid)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ProcessGroup(tmp_path) as group:
        yield Stage(group)


def fault(victim: Victim, act: Act, lasts_s: float = 0.0, pick: float = 0.0) -> Fault:
    kind = next(kind for kind in KINDS if (kind.victim, kind.act) == (victim, act))
    return Fault(0.0, kind, lasts_s, pick)


def dead(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_kill_hits_its_victim_alone(stage: Stage) -> None:
    struck, other = stage.add(Victim.CONTROLLER), stage.add(Victim.PROMETHEUS)
    strike = stage.chaos.strike(fault(Victim.CONTROLLER, Act.KILL))
    wait_for(lambda: dead(struck), 5, "the kill")
    assert not dead(other)
    assert strike.over_s - strike.at_s < 1.0
    assert stage.started_again == []


def test_a_replica_is_picked_by_its_age(stage: Stage) -> None:
    replicas = [stage.add(Victim.REPLICA) for _ in range(3)]
    wait_for(lambda: len(processes(stage.live, Victim.REPLICA)) == 3, 5, "the starts")
    stage.chaos.strike(fault(Victim.REPLICA, Act.KILL, pick=0.5))
    wait_for(lambda: dead(replicas[1]), 5, "the kill")
    assert [dead(process) for process in replicas] == [False, True, False]


def test_a_pause_ends(stage: Stage) -> None:
    struck = stage.add(Victim.DASHBOARD)
    wait_for(lambda: bool(processes(stage.live, Victim.DASHBOARD)), 5, "a start")
    pausing = threading.Thread(
        target=stage.chaos.strike, args=(fault(Victim.DASHBOARD, Act.PAUSE, lasts_s=0.5),)
    )
    pausing.start()
    wait_for(lambda: struck.status() == psutil.STATUS_STOPPED, 5, "the pause")
    pausing.join()
    wait_for(lambda: struck.status() != psutil.STATUS_STOPPED, 5, "its end")


def test_the_dashboards_serve_process_is_known_as_its_child(stage: Stage) -> None:
    parent = (
        "import subprocess, sys, time;"
        f"subprocess.Popen([sys.executable, '-c', {SLEEPS!r}, {SERVE_TITLE!r}], env={{}});"
        "time.sleep(60)"
    )
    command = [sys.executable, "-c", parent, TITLES[Victim.DASHBOARD]]
    dashboard = psutil.Process(stage.group.start("victim", command).pid)
    stage.chaos.strike(fault(Victim.SERVE_HEAD, Act.KILL))
    wait_for(lambda: all(dead(each) for each in dashboard.children()), 5, "the kill")
    assert not dead(dashboard)


@pytest.mark.parametrize(
    ("victim", "who"), [(Victim.PROMETHEUS, "prometheus"), (Victim.DAEMON, "daemon")]
)
def test_what_nobody_else_starts_again_is_started(stage: Stage, victim: Victim, who: str) -> None:
    stage.add(victim)
    stage.chaos.strike(fault(victim, Act.KILL))
    assert stage.started_again == [who]


def test_processes_of_others_are_never_victims(stage: Stage) -> None:
    command = [sys.executable, "-c", SLEEPS, TITLES[Victim.DAEMON]]
    other = subprocess.Popen(command)
    try:
        ours = stage.add(Victim.DAEMON)
        wait_for(lambda: bool(processes(stage.live, Victim.DAEMON)), 5, "a start")
        assert [process.pid for process in processes(stage.live, Victim.DAEMON)] == [ours.pid]
    finally:
        other.kill()
        other.wait()
