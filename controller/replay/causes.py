"""Why requests were late, as far as the plant's log and our own decisions tell.

Demand is the largest mean of 30 s that holds an arrival; the forecast it is held against is the
last one issued a whole mean lead before. Each late request has the first cause that holds:

- prefill alone: it would have been late without any wait;
- burst: demand rose above the 99 % forecast less than one lead ago (nobody could have had a
  replica ready by then);
- cap: the plan asked for the cap;
- capacity: a replica was believed to carry over 10 % more than the load's own lengths allow;
- forecast: demand was above the 90 % forecast;
- recovery: a burst ended less than one lead ago and its queue was still there;
- crowding: the load was as forecast, and the queue is what the plan's price allowed.

Unavoidable are the first two kinds' like: `burst`; apart stands `prefill`; the rest is avoidable.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.replay.cache import Arrays
from controller.replay.clairvoyant import arriving_work
from controller.replay.scenario import Scenario
from controller.replay.trace import Floats

STEP_S = 10.0
BLOCK_STEPS = 3
WORK_STEPS = 60
MISJUDGED_RATIO = 1.10
WORST_MINUTES = 10


class Cause(StrEnum):
    """Why a request was late, in the order in which they are asked for."""

    PREFILL = "prefill alone"
    BURST = "burst faster than the lead"
    CAP = "cap"
    CAPACITY = "capacity misjudged"
    FORECAST = "forecast late"
    RECOVERY = "recovery from a burst"
    CROWDING = "crowding within the forecast"


ORDER = tuple(Cause)


@dataclass(frozen=True, slots=True)
class Split:
    """Late requests as shares of all requests."""

    unavoidable: float
    prefill_alone: float
    avoidable: float
    causes: Mapping[Cause, float]


@dataclass(frozen=True, slots=True)
class Minute:
    """A bad minute: when (on the trace's clock), how many came, how many were late, why most."""

    at_s: float
    arrivals: int
    late: int
    cause: Cause
    ready: int
    wanted: int


def split(scenario: Scenario, arrays: Arrays, requests: int) -> Split:
    """The causes of our run's late requests."""
    found = causes(scenario, arrays["log"], arrays["decisions"])
    counts = np.bincount(found, minlength=len(ORDER)) / max(requests, 1)
    shares = {cause: float(counts[place]) for place, cause in enumerate(ORDER)}
    burst, prefill = shares[Cause.BURST], shares[Cause.PREFILL]
    return Split(burst, prefill, sum(shares.values()) - burst - prefill, shares)


def causes(scenario: Scenario, log: NDArray[Any], decisions: NDArray[Any]) -> NDArray[np.intp]:
    """The place in ORDER of each violation's cause."""
    if not len(log):
        return np.zeros(0, np.intp)
    step = _Steps(scenario, decisions)
    at = step.index(log["arrival_s"])
    chosen = np.full(len(log), ORDER.index(Cause.CROWDING))
    alone = log["prefill_s"] > scenario.settings.slo_ttft_s
    held = {cause: places[at] for cause, places in step.holds().items()} | {Cause.PREFILL: alone}
    for cause in reversed(ORDER[:-1]):
        chosen[held[cause]] = ORDER.index(cause)
    return chosen


class _Steps:
    """Demand, and the decisions in force, by step of 10 s over the scored span."""

    def __init__(self, scenario: Scenario, decisions: NDArray[Any]) -> None:
        self._scenario = scenario
        self._start_s, end_s = scenario.scored
        self._size = math.ceil((end_s - self._start_s) / STEP_S)
        self._lead_steps = math.ceil(scenario.lead_s / STEP_S)
        self._decisions = decisions
        self._edges_s = self._start_s + STEP_S * np.arange(self._size)

    def index(self, at_s: Floats) -> NDArray[np.intp]:
        """The step that holds a time."""
        steps = np.floor((at_s - self._start_s) / STEP_S).astype(np.intp)
        return np.clip(steps, 0, self._size - 1)

    def holds(self) -> dict[Cause, NDArray[np.bool_]]:
        """Where each cause but the request's own holds."""
        demand_rps, capacity_rps = self._load()
        ahead = self._in_force(self._scenario.lead_s)
        now = self._in_force(0.0)
        above = demand_rps > ahead["q99_rps"]
        # The means that hold an arrival look up to two steps ahead, so that onsets are early.
        burst = self._spells(above, self._lead_steps + BLOCK_STEPS - 1)
        return {
            Cause.BURST: burst,
            Cause.CAP: now["wanted"] >= self._scenario.settings.cap,
            Cause.CAPACITY: ahead["capacity_rps"] > MISJUDGED_RATIO * capacity_rps,
            Cause.FORECAST: demand_rps > ahead["q90_rps"],
            Cause.RECOVERY: _after(above | burst, self._lead_steps),
        }

    def _load(self) -> tuple[Floats, Floats]:
        """(demand, requests per second that a full replica carried given their lengths)."""
        trace = self._scenario.trace.between(*self._scenario.scored)
        work = arriving_work(trace, self._scenario.settings, STEP_S)
        counts = np.zeros(self._size)
        for _, requests in trace.chunks():
            counts += np.bincount(self.index(requests.arrival_s), minlength=self._size)
        padded = np.pad(counts, BLOCK_STEPS - 1, mode="edge")
        means = np.convolve(padded, np.ones(BLOCK_STEPS), "valid") / (BLOCK_STEPS * STEP_S)
        blocks = np.lib.stride_tricks.sliding_window_view(means, BLOCK_STEPS)
        smooth = np.ones(WORK_STEPS)
        lately = np.convolve(work * STEP_S, smooth)[: self._size]
        mean_work_s = lately / np.maximum(np.convolve(counts, smooth)[: self._size], 1.0)
        full_speed = self._scenario.settings.full_speed
        return blocks.max(axis=1), full_speed / np.maximum(mean_work_s, 1e-9)

    def _in_force(self, before_s: float) -> NDArray[Any]:
        """The last decision made `before_s` before each step."""
        place = np.searchsorted(self._decisions["at_s"], self._edges_s - before_s, "right") - 1
        found: NDArray[Any] = self._decisions[np.maximum(place, 0)]
        return found

    @staticmethod
    def _spells(above: NDArray[np.bool_], lead_steps: int) -> NDArray[np.bool_]:
        """From the onset of each spell above the forecast, for one lead."""
        onset = above & ~np.concatenate(([False], above[:-1]))
        return _after(onset, lead_steps)


def _after(held: NDArray[np.bool_], steps: int) -> NDArray[np.bool_]:
    """Where something held now or within the last `steps`."""
    recent = np.convolve(held.astype(np.float64), np.ones(steps + 1))[: len(held)]
    return recent > 0.5


def worst_minutes(scenario: Scenario, arrays: Arrays) -> list[Minute]:
    """The minutes with most late requests, worst first, each with its commonest cause."""
    log, reports, decisions = arrays["log"], arrays["reports"], arrays["decisions"]
    if not len(log):
        return []
    start_s = scenario.play_start_s
    minute = ((log["arrival_s"] - start_s) / 60.0).astype(np.int64)
    found = causes(scenario, log, decisions)
    late = reports["violations"]
    worst = np.argsort(-late, kind="stable")[:WORST_MINUTES]
    return list(_minutes(worst[late[worst] > 0], minute, found, (reports, decisions), start_s))


def _minutes(
    worst: NDArray[np.intp],
    minute: NDArray[np.int64],
    found: NDArray[np.intp],
    told: tuple[NDArray[Any], NDArray[Any]],
    start_s: float,
) -> Iterator[Minute]:
    reports, decisions = told
    for at in worst.tolist():
        own = found[minute == at]
        commonest = ORDER[int(np.bincount(own).argmax())] if len(own) else Cause.CROWDING
        begin_s = start_s + 60.0 * at
        place = max(int(np.searchsorted(decisions["at_s"], begin_s, "right")) - 1, 0)
        row = reports[at]
        yield Minute(
            begin_s,
            int(row["arrivals"]),
            int(row["violations"]),
            commonest,
            int(row["ready"]),
            int(decisions[place]["wanted"]),
        )
