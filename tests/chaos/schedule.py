"""Which faults come when: a schedule is its seed's."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

FIRST_S = 5.0
GAP_S = (6.0, 16.0)
QUIET_END_S = 15.0
"""At the end nothing new is broken, so that recovery is seen under load."""
SETTLES_S = 4.0
"""After a fault its victim is left alone for so long."""


class Victim(StrEnum):
    """Who is struck."""

    CONTROLLER = "Serve controller"
    REPLICA = "replica"
    SERVE_HEAD = "dashboard's Serve process"
    DASHBOARD = "dashboard"
    PROMETHEUS = "Prometheus"
    DAEMON = "daemon"


class Act(StrEnum):
    """What is done to it."""

    KILL = "kill"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of fault. A pause lasts between `least_s` and `most_s`; so long passes after a kill
    until somebody starts the victim again, 0 = whoever started it does that by itself."""

    victim: Victim
    act: Act
    least_s: float
    most_s: float


KINDS = (
    Kind(Victim.CONTROLLER, Act.KILL, 0, 0),
    Kind(Victim.CONTROLLER, Act.PAUSE, 1, 6),
    Kind(Victim.REPLICA, Act.KILL, 0, 0),
    Kind(Victim.REPLICA, Act.PAUSE, 1, 6),
    Kind(Victim.SERVE_HEAD, Act.KILL, 0, 0),
    Kind(Victim.SERVE_HEAD, Act.PAUSE, 2, 20),
    Kind(Victim.DASHBOARD, Act.PAUSE, 2, 20),
    Kind(Victim.PROMETHEUS, Act.KILL, 1, 15),
    Kind(Victim.PROMETHEUS, Act.PAUSE, 2, 20),
    Kind(Victim.DAEMON, Act.KILL, 1, 15),
    Kind(Victim.DAEMON, Act.PAUSE, 2, 20),
)
"""A controller is not paused for longer than a lead: nobody can scale without it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, `at_s` seconds into the load; `pick` in [0, 1) chooses among several replicas."""

    at_s: float
    kind: Kind
    lasts_s: float
    pick: float

    @property
    def busy_until_s(self) -> float:
        """When its victim may be struck again."""
        return self.at_s + self.lasts_s + SETTLES_S

    def __str__(self) -> str:
        return f"{self.kind.act} {self.kind.victim}"


def schedule(seed: int, span_s: float) -> tuple[Fault, ...]:
    """The faults of a load of `span_s` seconds. Every kind comes once before one comes twice;
    faults of different victims may overlap, those of one do not."""
    rng = np.random.default_rng(seed)
    faults: list[Fault] = []
    left: list[Kind] = []
    at_s = FIRST_S
    while at_s < span_s - QUIET_END_S:
        if not left:
            left = [KINDS[index] for index in rng.permutation(len(KINDS))]
        kind = _free(left, faults, at_s)
        pick, share = rng.random(2)
        if kind is not None:
            left.remove(kind)
            lasts_s = kind.least_s + share * (kind.most_s - kind.least_s)
            faults.append(Fault(round(at_s, 2), kind, round(lasts_s, 2), float(pick)))
        at_s += rng.uniform(*GAP_S)
    return tuple(faults)


def without_daemon(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """The same chaos where there is no daemon."""
    return tuple(fault for fault in faults if fault.kind.victim is not Victim.DAEMON)


def _free(left: Sequence[Kind], faults: Sequence[Fault], at_s: float) -> Kind | None:
    """The next kind whose victim is not struck now. The dashboard's Serve process does not answer
    while the dashboard is paused: together they count as one."""
    busy = {_house(fault.kind.victim) for fault in faults if fault.busy_until_s > at_s}
    return next((kind for kind in left if _house(kind.victim) not in busy), None)


def _house(victim: Victim) -> Victim:
    return Victim.DASHBOARD if victim is Victim.SERVE_HEAD else victim
