"""GPU-hours against violations: who is cheapest at what, and by how much."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.replay.runs import Run


def pareto(runs: Iterable[Run]) -> list[Run]:
    """The runs that no other beats in both; cheapest first, each with fewer violations."""
    frontier: list[Run] = []
    for run in sorted(runs, key=lambda run: (run.gpu_hours, run.violation_ratio)):
        if not frontier or run.violation_ratio < frontier[-1].violation_ratio:
            frontier.append(run)
    return frontier


def cheapest_within(runs: Iterable[Run], violation_ratio: float) -> Run | None:
    """The cheapest run that violates no more than that; None if none does."""
    within = [run for run in runs if run.violation_ratio <= violation_ratio]
    return min(within, key=lambda run: run.gpu_hours, default=None)


def cost_above_frontier(run: Run, runs: Iterable[Run]) -> float:
    """Its GPU-hours over those of the cheapest of `runs` that violates no more."""
    best = cheapest_within(runs, run.violation_ratio)
    return 1.0 if best is None else run.gpu_hours / best.gpu_hours


def best_by_policy(runs: Iterable[Run], violation_ratio: float) -> dict[str, Run | None]:
    """Each policy's cheapest run within a violation ratio; None where it never gets there."""
    by_policy: dict[str, list[Run]] = {}
    for run in runs:
        by_policy.setdefault(run.policy, []).append(run)
    return {policy: cheapest_within(own, violation_ratio) for policy, own in by_policy.items()}


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that was run in one scenario. `ours` is None if we were not asked for."""

    name: str
    lead_s: float
    mean_replicas: float
    attainment: float
    ours: Run | None
    clairvoyant: Run | None
    rivals: tuple[Run, ...]

    @property
    def budget(self) -> float:
        return 1 - self.attainment

    @property
    def best_rival(self) -> Run | None:
        """The cheapest rival setting that meets the SLO, in hindsight."""
        return cheapest_within(self.rivals, self.budget)

    @property
    def equal_rival(self) -> Run | None:
        """The cheapest rival setting that violates no more than we did."""
        if self.ours is None:
            return None
        return cheapest_within(self.rivals, self.ours.violation_ratio)

    @property
    def cost_at_equal_violations(self) -> float | None:
        """Our GPU-hours over that rival's; None where no rival reaches ours."""
        rival = self.equal_rival
        if self.ours is None or rival is None:
            return None
        return self.ours.gpu_hours / rival.gpu_hours

    @property
    def over_clairvoyance(self) -> float | None:
        """Our GPU-hours over those of the clairvoyant that meets the SLO."""
        if self.ours is None or self.clairvoyant is None:
            return None
        return self.ours.gpu_hours / self.clairvoyant.gpu_hours


@dataclass(frozen=True, slots=True)
class Summary:
    """Several scenarios of one lead. `out_of_reach` are those in which no rival setting violates
    as little as we did: they are in no mean of costs."""

    lead_s: float
    scenarios: int
    violation_ratio: float
    prefill_violation_ratio: float
    at_target: int
    rival_at_target: int
    cost: float | None
    worst_cost: float | None
    over_clairvoyance: float | None
    gpu_hours: float
    out_of_reach: tuple[str, ...]


def summarise(results: Sequence[Result]) -> list[Summary]:
    """One summary a lead, shortest first, of the scenarios that we played in."""
    played = [result for result in results if result.ours is not None]
    return [
        _summary(lead_s, [result for result in played if result.lead_s == lead_s])
        for lead_s in sorted({result.lead_s for result in played})
    ]


def _summary(lead_s: float, results: Sequence[Result]) -> Summary:
    ours = [result.ours for result in results if result.ours is not None]
    requests = max(sum(run.requests for run in ours), 1)
    costs = [c for result in results if (c := result.cost_at_equal_violations) is not None]
    above = [c for result in results if (c := result.over_clairvoyance) is not None]
    return Summary(
        lead_s=lead_s,
        scenarios=len(results),
        violation_ratio=sum(run.violations for run in ours) / requests,
        prefill_violation_ratio=sum(run.prefill_violations for run in ours) / requests,
        at_target=sum(
            run.violation_ratio <= result.budget for run, result in zip(ours, results, strict=True)
        ),
        rival_at_target=sum(result.best_rival is not None for result in results),
        cost=geometric_mean(costs),
        worst_cost=max(costs, default=None),
        over_clairvoyance=geometric_mean(above),
        gpu_hours=sum(run.gpu_hours for run in ours),
        out_of_reach=tuple(
            result.name for result in results if result.cost_at_equal_violations is None
        ),
    )


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """None of nothing."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
