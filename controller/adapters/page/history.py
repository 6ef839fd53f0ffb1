"""The last hour of each deployment in small figures, for the page's charts and sums."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from controller.core.records import record
from controller.core.types import DeploymentId, Tick

SPAN_S = 3600.0
MOST_POINTS = 7200
LONGEST_GAP_S = 120.0

Decisions = Callable[[DeploymentId | None, int, float | None], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Point:
    """One decision in figures. `band` is the forecast one lead ahead at the median, 95 and 99 %,
    for `band_at_s`; None = not known."""

    at_s: float
    wanted: int
    requested: int | None
    ready: int | None
    reason: str
    action: int | None
    applied: bool
    detail: str
    demand_rps: float | None
    late_ratio: float | None
    first_tokens_rps: float | None
    band_at_s: float | None
    band: tuple[float, float, float] | None


def point(decision: Mapping[str, Any]) -> Point:
    """The figures of a decision as the journal keeps it."""
    inputs, ahead = decision["inputs"], decision["ahead"]
    tokens = inputs["signals"].get("first_tokens_rps", {})
    return Point(
        decision["at_s"],
        decision["wanted"],
        decision["requested"],
        decision["ready"],
        decision["reason"],
        decision["action"],
        decision["applied"],
        decision["detail"],
        inputs["demand_rps"],
        inputs["late_ratio"],
        tokens.get("value"),
        None if ahead is None else decision["at_s"] + ahead["horizon_s"],
        None if ahead is None else _band(ahead["quantiles"]),
    )


def _band(quantiles: Mapping[str, float]) -> tuple[float, float, float] | None:
    found = [quantiles.get(name) for name in ("0.5", "0.95", "0.99")]
    low, high, top = found
    return None if low is None or high is None or top is None else (low, high, top)


@dataclass(frozen=True, slots=True)
class Slo:
    """What became of first tokens over the points kept: the share in time, and the share of the
    error budget that is spent (1 is all of it); None where nothing was measured."""

    attained: float | None
    spent: float | None


class History:
    """Points by deployment, newest last. What was before this process comes from the journal."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self._points: dict[DeploymentId, deque[Point]] = {}

    def record(self, tick: Tick) -> None:
        """Take one tick."""
        for decision, outcome in tick.decisions:
            kept = self._of(decision.target, tick.at_s)
            kept.append(point(record(decision, outcome)))
            while kept[0].at_s < tick.at_s - SPAN_S:
                kept.popleft()

    def points(self, target: DeploymentId) -> list[Point]:
        """The last hour of a deployment."""
        return list(self._points.get(target, ()))

    def slo(self, target: DeploymentId, attainment: float) -> Slo:
        """Of the last hour."""
        total = late = 0.0
        for before, after in pairwise(self._points.get(target, ())):
            elapsed_s = min(after.at_s - before.at_s, LONGEST_GAP_S)
            if after.first_tokens_rps is not None and after.late_ratio is not None:
                total += after.first_tokens_rps * elapsed_s
                late += after.first_tokens_rps * elapsed_s * after.late_ratio
        if total <= 0:
            return Slo(None, None)
        return Slo(1 - late / total, late / total / (1 - attainment))

    def _of(self, target: DeploymentId, now_s: float) -> deque[Point]:
        if target not in self._points:
            past = self._decisions(target, MOST_POINTS // 2, now_s - 1e-6)
            recent = [point(each) for each in past if each["at_s"] >= now_s - SPAN_S]
            self._points[target] = deque(reversed(recent), MOST_POINTS)
        return self._points[target]


def changes(points: Sequence[Point], most: int) -> list[Point]:
    """The points at which wanted, reason or action changed, newest first."""
    found = [
        after
        for before, after in pairwise(points)
        if (after.wanted, after.reason) != (before.wanted, before.reason)
        or after.action is not None
    ]
    return found[::-1][:most]
