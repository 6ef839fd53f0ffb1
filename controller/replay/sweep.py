"""Every rival at its best: its size swept on a log scale, in each of its styles.

A place 0..1 on a rival's scale is a size: cheapest x (dearest / cheapest) ^ place. Dearer sizes
cost more and violate less, but for noise; nothing here needs that to hold strictly.

Two ways to sweep. `cover` draws the frontier: every style at five places, then, for the published
defaults and for every style with a point no more than 10 % dearer than the rival's frontier, more
places until neighbours between 0.05 % and 10 % violations are within 5 % in GPU-hours. `aim` only
finds the cheapest setting at given violations: per style it closes in on the crossing until the
settings on both sides are within 2 %, and leaves a style as soon as a setting that violates too
much costs more than the best one found that does not: dearer sizes of that style cannot win. The
published defaults come first. `polish` then looks closer around the best of all.
"""

import math
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from controller.replay.frontier import cheapest_within, cost_above_frontier
from controller.replay.runs import Run

if TYPE_CHECKING:
    from controller.replay.rivals.registry import Params, Rival, Size

STEP_RATIO = 1.05
AIM_RATIO = 1.02
REGION = (0.0005, 0.10)
COARSE = (0.0, 0.25, 0.5, 0.75, 1.0)
PROMISING_RATIO = 1.10
NARROWEST = 1 / 256
FIRST_STEP = 0.2
HINTED_STEP = 0.06
JUST_DEARER = 1.02
CLOSE_RATIO = 1.04
POLISH_RUNS = 5
POLISH_STEP = 0.015
LEAST_VIOLATIONS = 1e-6
MOST_RUNS = 40

Evaluate = Callable[["Params"], Run]
"""A rival's run at these parameters."""


def size_at(size: "Size", place: float) -> float:
    """The size at a place between cheapest (0) and dearest (1)."""
    return float(size.cheapest * (size.dearest / size.cheapest) ** place)


@dataclass
class Curve:
    """One style of a rival: the runs made so far, by place on its scale."""

    rival: "Rival"
    style: "Params"
    evaluate: Evaluate
    points: list[tuple[float, Run]] = field(default_factory=list)

    def play(self, place: float) -> Run:
        """Run at a place, once."""
        for known, run in self.points:
            if known == place:
                return run
        size = self.rival.size
        run = self.evaluate({**self.style, size.name: size_at(size, place)})
        insort(self.points, (place, run), key=lambda point: point[0])
        return run

    @property
    def runs(self) -> list[Run]:
        return [run for _, run in self.points]

    def bracket(self, goal: float) -> tuple[float | None, float | None]:
        """Neighbouring places: the last that violates more than `goal` before the cheapest one
        that does not, and that one; None where there is none."""
        within = [point for point in self.points if point[1].violation_ratio <= goal]
        if not within:
            return (self.points[-1][0] if self.points else None), None
        high = min(within, key=lambda point: (point[1].gpu_hours, point[0]))[0]
        below = [place for place, run in self.points if place < high and run.violation_ratio > goal]
        return (below[-1] if below else None), high


def cover(rival: "Rival", evaluate: Evaluate) -> list[Run]:
    """Runs that draw the rival's frontier."""
    curves = [Curve(rival, style, evaluate) for style in rival.styles]
    for curve in curves:
        for place in COARSE:
            curve.play(place)
    coarse = runs_of(curves)
    for position, curve in enumerate(curves):
        if position == 0 or _promising(curve.runs, coarse):
            _fill(curve)
    return runs_of(curves)


def _promising(runs: Iterable[Run], rivals_runs: Sequence[Run]) -> bool:
    return any(
        cost_above_frontier(run, rivals_runs) <= PROMISING_RATIO
        for run in runs
        if run.violation_ratio <= REGION[1]
    )


def _fill(curve: Curve) -> None:
    """Halve the widest step of the region until all are small enough."""
    while len(curve.points) < MOST_RUNS:
        steps = [
            (_cost_ratio(low[1], high[1]), (low[0] + high[0]) / 2)
            for low, high in pairwise(curve.points)
            if high[0] - low[0] > NARROWEST and _in_region(low[1], high[1])
        ]
        ratio, place = max(steps, default=(1.0, 0.0))
        if ratio <= STEP_RATIO:
            return
        curve.play(place)


def _cost_ratio(one: Run, other: Run) -> float:
    less, more = sorted((one.gpu_hours, other.gpu_hours))
    return more / less if less > 0 else math.inf


def _in_region(one: Run, other: Run) -> bool:
    less, more = sorted((one.violation_ratio, other.violation_ratio))
    return less <= REGION[1] and more >= REGION[0]


Hints = dict[tuple[str, int], float]
"""Where on its scale a style of a rival crossed the loosest goal in a scenario like this one."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A violation ratio to be met at the least cost. A style is left once it must cost more than
    its rival's best so far, or than `slack` x the best of all rivals so far."""

    violation_ratio: float
    slack: float = math.inf


def aim(
    rival: "Rival",
    evaluate: Evaluate,
    goals: Sequence[Goal],
    found: Sequence[Run] = (),
    hints: Hints | None = None,
) -> list[Curve]:
    """Curves that hold the rival's cheapest setting at each goal.

    `found` are runs of other rivals; `hints` are read and updated. The strictest goal comes first:
    what rules a style out there mostly rules it out everywhere.
    """
    hints = {} if hints is None else hints
    curves: list[Curve] = []
    for position, style in enumerate(rival.styles):
        curve = Curve(rival, style, evaluate)
        curves.append(curve)
        for goal in sorted(goals, key=lambda goal: goal.violation_ratio):
            incumbent = min(_cost_at(goal, runs_of(curves)), goal.slack * _cost_at(goal, found))
            hint = hints.get((rival.name, position))
            _Search(curve, goal.violation_ratio, incumbent, hint, curves[0]).close_in()
        loosest = max(goal.violation_ratio for goal in goals)
        crossing = curve.bracket(loosest)[1]
        if crossing is not None:
            hints[rival.name, position] = crossing
    return curves


def polish(curves: Sequence[Curve], goals: Sequence[Goal]) -> None:
    """Look once more just below the best settings: violations are noisy in the size, and a cheaper
    one may do by luck. Every curve that comes within 4 % of the best at a goal gets five more runs,
    each 1.5 % cheaper than the one before."""
    for goal in goals:
        best = _cost_at(goal, runs_of(curves))
        for curve in curves:
            own = cheapest_within(curve.runs, goal.violation_ratio)
            if own is not None and own.gpu_hours <= CLOSE_RATIO * best:
                _look_below(curve, own)


def _look_below(curve: Curve, run: Run) -> None:
    place = next(place for place, known in curve.points if known is run)
    slope = _slope(curve) or _usual_slope(curve.rival.size)
    for turn in range(1, POLISH_RUNS + 1):
        below = place - turn * POLISH_STEP / slope
        if below >= 0:
            curve.play(below)


def runs_of(curves: Iterable[Curve]) -> list[Run]:
    """Every run of some curves."""
    return [run for curve in curves for run in curve.runs]


def _cost_at(goal: Goal, runs: Iterable[Run]) -> float:
    best = cheapest_within(runs, goal.violation_ratio)
    return math.inf if best is None else best.gpu_hours


@dataclass
class _Search:
    """Closes in on the place where a curve begins to violate no more than `goal`; gives up once
    that is dearer than `incumbent` GPU-hours. `model` is a curve that is probably alike."""

    curve: Curve
    goal: float
    incumbent: float
    hint: float | None
    model: Curve

    def close_in(self) -> None:
        step, unchanged = HINTED_STEP if self.hint is not None else FIRST_STEP, 0
        for turn in range(MOST_RUNS):
            low, high = self.curve.bracket(self.goal)
            place = None if self._settled(low, high) else self._next(low, high, step, turn)
            if place is None:
                return
            before = [self.curve.play(end) for end in (low, high) if end is not None]
            run = self.curve.play(place)
            unchanged += any(_same(run, end) for end in before)
            if unchanged == 2:
                return
            if low is None or high is None:
                step = min(2 * step, 0.5)

    def _settled(self, low: float | None, high: float | None) -> bool:
        """Whether the crossing is known to a step, or known to be dearer than the incumbent."""
        if low is None:
            return False
        violating = self.curve.play(low)
        if violating.gpu_hours >= self.incumbent:
            return True
        if high is None:
            return False
        return high - low <= NARROWEST or _cost_ratio(violating, self.curve.play(high)) <= AIM_RATIO

    def _next(self, low: float | None, high: float | None, step: float, turn: int) -> float | None:
        """Where to look next: outward until the goal is between two places, then inward."""
        if low is None and high is None:
            return self._start()
        if high is None:
            assert low is not None
            return None if low == 1.0 else min(low + self._step(low, step), 1.0)
        if low is None:
            return None if high == 0.0 else max(high - self._step(high, step), 0.0)
        return low + (high - low) * (self._share(low, high) if turn % 2 == 0 else 0.5)

    def _start(self) -> float:
        """Where this curve costs what the incumbent does, if the model tells."""
        if self.incumbent == math.inf or not self.model.points:
            return 0.5 if self.hint is None else self.hint
        place, run = min(self.model.points, key=lambda point: self._missing(point[1]))
        return min(max(place + self._signed(run), 0.0), 1.0)

    def _step(self, place: float, step: float) -> float:
        """How far to go from a place, at most `step`: to where the curve should be just dearer
        than the incumbent. A violation there ends the search at once."""
        run = self.curve.play(place)
        if self.incumbent == math.inf or (run.violation_ratio > self.goal) != (
            run.gpu_hours < self.incumbent
        ):
            return step
        return min(max(abs(self._signed(run)), NARROWEST), step)

    def _missing(self, run: Run) -> float:
        """Distance of its cost, as a logarithm, from just above the incumbent's."""
        return abs(math.log(self.incumbent * JUST_DEARER / max(run.gpu_hours, 1e-9)))

    def _signed(self, run: Run) -> float:
        """The way in places from a run to where the curve is just dearer than the incumbent."""
        slope = _slope(self.curve) or _slope(self.model) or _usual_slope(self.curve.rival.size)
        return math.log(self.incumbent * JUST_DEARER / max(run.gpu_hours, 1e-9)) / slope

    def _share(self, low: float, high: float) -> float:
        """How far from low to high the goal lies, violations being taken as exponential."""
        above, target, below = (
            math.log(max(ratio, LEAST_VIOLATIONS))
            for ratio in (
                self.curve.play(low).violation_ratio,
                self.goal,
                self.curve.play(high).violation_ratio,
            )
        )
        return min(max((above - target) / max(above - below, 1e-9), 0.15), 0.85)


def _usual_slope(size: "Size") -> float:
    """As if GPU-hours were proportional to the size, or to its inverse."""
    return abs(math.log(size.dearest / size.cheapest))


def _slope(curve: Curve) -> float | None:
    """Growth of the logarithm of GPU-hours per unit of place; None if it does not grow."""
    if len(curve.points) < 2:
        return None
    (low, less), (high, more) = curve.points[0], curve.points[-1]
    growth = math.log(max(more.gpu_hours, 1e-9) / max(less.gpu_hours, 1e-9)) / (high - low)
    return growth if growth > 0 else None


def _same(one: Run, other: Run) -> bool:
    return one.gpu_hours == other.gpu_hours and one.violations == other.violations
