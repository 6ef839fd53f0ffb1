"""Finds the processes that a fault strikes, strikes them by id, and sees to what nobody else would
start again. Only processes that bear the mark of the world's group are ever touched."""

import contextlib
import signal
import time
from collections.abc import Iterable, Iterator

import psutil

from tests.chaos.invariants import Strike
from tests.chaos.schedule import Act, Fault, Victim
from tests.e2e.served import APPLICATION, DEPLOYMENT
from tests.e2e.world import World, wait_for

PATIENCE_S = 20.0
TITLES = {
    Victim.CONTROLLER: "ServeController",
    Victim.REPLICA: f"ServeReplica:{APPLICATION}:{DEPLOYMENT}",
    Victim.DASHBOARD: "dashboard/dashboard.py",
    Victim.PROMETHEUS: "--storage.tsdb.path",
    Victim.DAEMON: "leadtime run",
}


SERVE_TITLE = "ray-dashboard-ServeHead"


class Chaos:
    """Strikes one world. Use from several threads."""

    def __init__(self, live: World) -> None:
        self._live = live

    def strike(self, fault: Fault) -> Strike:
        """Carry a fault out; returns when it is over and what it killed is started again. An
        AssertionError says that its victim did not turn up."""
        struck = self._await(fault)
        at_s = self._now_s()
        if fault.kind.act is Act.KILL:
            _send(struck, signal.SIGKILL)
            over_s = self._now_s()
            self._start_again(fault)
        else:
            with _paused(struck):
                time.sleep(fault.lasts_s)
            over_s = self._now_s()
        return Strike(fault, at_s, over_s)

    def _now_s(self) -> float:
        return time.monotonic() - self._live.zero_s

    def _await(self, fault: Fault) -> list[psutil.Process]:
        """What a fault strikes, which may be on its way back from an earlier one."""
        found: list[psutil.Process] = []

        def turned_up() -> bool:
            found[:] = processes(self._live, fault.kind.victim)
            return bool(found)

        wait_for(turned_up, PATIENCE_S, f"a process to strike: {fault}")
        if fault.kind.victim is Victim.REPLICA:
            return [found[int(fault.pick * len(found))]]
        return found

    def _start_again(self, fault: Fault) -> None:
        """Ray starts its own again; Prometheus and the daemon have us for a supervisor."""
        if fault.kind.victim not in (Victim.PROMETHEUS, Victim.DAEMON):
            return
        time.sleep(fault.lasts_s)
        if fault.kind.victim is Victim.PROMETHEUS:
            self._live.metrics.start()
        else:
            self._live.launch_daemon()


def processes(live: World, victim: Victim) -> list[psutil.Process]:
    """A victim's processes, oldest first. The dashboard's Serve process has written its title over
    its environment, mark and all: it is ours as the child of what bears the mark."""
    if victim is Victim.SERVE_HEAD:
        parents = _titled(live.group.members(), TITLES[Victim.DASHBOARD])
        return _titled([child for parent in parents for child in _children(parent)], SERVE_TITLE)
    return _titled(live.group.members(), TITLES[victim])


def _titled(found: Iterable[psutil.Process], title: str) -> list[psutil.Process]:
    titled = []
    for process in found:
        with contextlib.suppress(psutil.Error):
            if title in " ".join(process.cmdline()):
                titled.append((process.create_time(), process.pid, process))
    return [process for _, _, process in sorted(titled, key=lambda each: each[:2])]


def _children(parent: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return parent.children(recursive=True)
    return []


@contextlib.contextmanager
def _paused(struck: list[psutil.Process]) -> Iterator[None]:
    _send(struck, signal.SIGSTOP)
    try:
        yield
    finally:
        _send(struck, signal.SIGCONT)


def _send(struck: list[psutil.Process], number: signal.Signals) -> None:
    for process in struck:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
