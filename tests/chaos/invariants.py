"""What must hold while everything is struck, judged from what was seen. Nothing here runs anything.

Seconds count from the beginning of the load.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tests.chaos.schedule import Act, Fault, Victim

LOAD_WINDOW_S = 10.0
RECOVERY_S = 60.0
CAUGHT_S = 3.0
"""A request that a killed replica held fails within so long."""
LUCK = 0.01


@dataclass(frozen=True, slots=True)
class Rules:
    """The deployment's bounds, the requests a second and the requests at once of a replica."""

    minimum: int
    maximum: int
    capacity_rps: float
    slots: int


@dataclass(frozen=True, slots=True)
class Look:
    """What was found at a moment: Serve's target, None where it did not answer; replicas that
    serve; whether all others that should answer (Prometheus, the daemon) did."""

    at_s: float
    target: int | None
    serving: int
    well: bool


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that was carried out. It is over at `over_s`: after a kill at once."""

    fault: Fault
    at_s: float
    over_s: float


@dataclass(frozen=True)
class Timeline:
    """One run: looks and strikes in order of time, when requests were due and when those that
    failed did, the share that was late or failed, every number that the daemon wanted, one lead."""

    looks: Sequence[Look]
    strikes: Sequence[Strike]
    due_s: NDArray[np.float64]
    failed_s: Sequence[float]
    late_ratio: float
    wanted: Sequence[int]
    lead_s: float


def need(run: Timeline, at_s: float, rules: Rules) -> int:
    """Replicas that carry the load of the last 10 s, within the bounds: what one who only reacts
    would ask for."""
    begin, end = np.searchsorted(run.due_s, (at_s - LOAD_WINDOW_S, at_s))
    count = math.ceil(int(end - begin) / LOAD_WINDOW_S / rules.capacity_rps)
    return min(max(count, rules.minimum), rules.maximum)


def out_of_bounds(run: Timeline, rules: Rules) -> list[str]:
    """Numbers asked for, of Serve or by the daemon, that the bounds forbid."""
    seen = [(f"at {look.at_s:.0f} s", look.target) for look in run.looks]
    seen += [("the daemon wanted it", wanted) for wanted in run.wanted]
    return [
        f"out of bounds: {count} replicas requested, {where}"
        for where, count in seen
        if count is not None and not rules.minimum <= count <= rules.maximum
    ]


def shortages(run: Timeline, rules: Rules) -> list[tuple[float, float]]:
    """Spans in which fewer were requested than the need was. Where Serve did not answer, a span
    goes on if it does before and after."""
    known = [look for look in run.looks if look.target is not None]
    spans: list[tuple[float, float]] = []
    since_s = None
    for look in known:
        short = look.target is not None and look.target < need(run, look.at_s, rules)
        if short and since_s is None:
            since_s = look.at_s
        elif not short and since_s is not None:
            spans.append((since_s, look.at_s))
            since_s = None
    if since_s is not None:
        spans.append((since_s, known[-1].at_s))
    return spans


def too_short(run: Timeline, rules: Rules) -> list[str]:
    """Times for which fewer were requested than a reactive need for longer than one lead."""
    return [
        f"below the reactive need from {begin_s:.1f} to {end_s:.1f} s, a lead is {run.lead_s:.1f} s"
        for begin_s, end_s in shortages(run, rules)
        if end_s - begin_s > run.lead_s
    ]


def recovered_after_s(run: Timeline, strike: Strike, rules: Rules) -> float | None:
    """Seconds from the end of a fault until all answer and the load is carried."""
    for look in run.looks:
        if look.at_s >= strike.over_s and _sound(run, look, rules):
            return look.at_s - strike.over_s
    return None


def unrecovered(run: Timeline, rules: Rules) -> list[str]:
    """Faults after which it took longer than 60 s, and an end at which it is not so."""
    broken = []
    for strike in run.strikes:
        took_s = recovered_after_s(run, strike, rules)
        if took_s is None or took_s > RECOVERY_S:
            told = "never" if took_s is None else f"after {took_s:.0f} s"
            broken.append(f"{strike.fault} at {strike.at_s:.0f} s: recovered {told}")
    if not run.looks or not _sound(run, run.looks[-1], rules):
        broken.append("not recovered at the end")
    return broken


def caught(run: Timeline, rules: Rules) -> int:
    """Failed requests that were inside killed replicas: of each kill at most what one holds."""
    count = 0
    for strike in run.strikes:
        if (strike.fault.kind.victim, strike.fault.kind.act) == (Victim.REPLICA, Act.KILL):
            end_s = strike.at_s + CAUGHT_S
            inside = sum(strike.at_s <= failed_s < end_s for failed_s in run.failed_s)
            count += min(inside, rules.slots)
    return count


def more_failed(ours: Timeline, native: Timeline, rules: Rules) -> list[str]:
    """Whether more requests failed than in the same chaos without us.

    How many requests are in a replica when it is killed is chance: one caught is as likely to be
    of either run. More than half of them may be ours as far as that would come of a fair coin in
    1 of 100 runs: 9 of 11, not 10 (test_invariants.py). Of those that fail otherwise there may be
    none more.
    """
    broken = []
    by_kill = caught(ours, rules), caught(native, rules)
    otherwise = len(ours.failed_s) - by_kill[0], len(native.failed_s) - by_kill[1]
    if chance_of(by_kill[0], sum(by_kill)) < LUCK:
        broken.append(f"kills caught {by_kill[0]} requests, {by_kill[1]} under native autoscaling")
    if otherwise[0] > otherwise[1]:
        told = f"{otherwise[0]} requests failed otherwise, {otherwise[1]}"
        broken.append(f"{told} under native autoscaling")
    return broken


def chance_of(count: int, total: int) -> float:
    """The probability that of `total` throws of a fair coin `count` or more are heads."""
    return sum(math.comb(total, heads) for heads in range(count, total + 1)) / 2.0**total


def failed_by(run: Timeline) -> list[int]:
    """Failed requests by strike: each counts for the last one before it; the first count is of
    those before any."""
    begins_s = [-math.inf, *(strike.at_s for strike in run.strikes), math.inf]
    return [sum(a <= failed_s < b for failed_s in run.failed_s) for a, b in pairwise(begins_s)]


ALONE: tuple[Callable[[Timeline, Rules], list[str]], ...] = (out_of_bounds, too_short, unrecovered)


def broken(ours: Timeline, native: Timeline, rules: Rules) -> list[str]:
    """Every invariant that does not hold, in words; native autoscaling is only compared with."""
    told = [each for check in ALONE for each in check(ours, rules)]
    return told + more_failed(ours, native, rules)


def _sound(run: Timeline, look: Look, rules: Rules) -> bool:
    answers = look.well and look.target is not None
    return answers and look.serving >= need(run, look.at_s, rules)
