"""Scenarios and policies in, results out: the tasks of a comparison, in parallel."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache as once
from typing import TYPE_CHECKING

from controller.replay.cache import Cache
from controller.replay.frontier import Result
from controller.replay.pool import Engine, each
from controller.replay.runs import (
    CLAIRVOYANT,
    LONGEST_PAST_S,
    OURS,
    Run,
    best_clairvoyant,
    play_ours,
    play_rival,
)
from controller.replay.scenario import Scenario
from controller.replay.sweep import Curve, Evaluate, Goal, Hints, aim, cover, polish, runs_of

if TYPE_CHECKING:
    from controller.replay.rivals.registry import Params, Rival


FIRST = ("apa", "hpa", "kpa")
NAMED_RATIO = 1.25
"""At the budget each rival's own best is found, if that is no dearer than so many times the best of
all."""


@dataclass(frozen=True)
class Task:
    """One policy in one scenario; a rival is swept, `quick` only at the SLO's budget; ours chooses
    model and price as live if `choosing`."""

    scenario: Scenario
    policy: str
    rival: "Rival | None"
    cache: Cache
    quick: bool
    choosing: bool = False


def do(task: Task) -> list[Run]:
    """The runs of a task."""
    if task.policy == OURS:
        return [play_ours(task.scenario, task.cache, choosing=task.choosing).run]
    if task.policy == CLAIRVOYANT:
        best = best_clairvoyant(task.scenario, task.cache)
        return [] if best is None else [best]
    assert task.rival is not None
    evaluate = evaluation(task.scenario, task.rival, task.cache, holding(task.scenario))
    if task.quick:
        goals = [Goal(task.scenario.budget)]
        curves = aim(task.rival, evaluate, goals)
        polish(curves, goals)
        return runs_of(curves)
    return cover(task.rival, evaluate)


def evaluation(
    scenario: Scenario, rival: "Rival", cache: Cache, held: Callable[[], Scenario]
) -> Evaluate:
    """What the sweep calls for a run of that rival."""

    def evaluate(params: "Params") -> Run:
        return play_rival(scenario, rival, params, cache, held=held).run

    return evaluate


def holding(scenario: Scenario) -> Callable[[], Scenario]:
    """Gives the scenario with its requests in memory, which are drawn at the first call."""
    return once(lambda: scenario.held(LONGEST_PAST_S))


@dataclass(frozen=True)
class Comparison:
    """Every chosen policy in every scenario. A policy is `leadtime`, `clairvoyant` or a rival."""

    scenarios: Sequence[Scenario]
    policies: Sequence[str]
    rivals: Mapping[str, "Rival"]
    cache: Cache
    quick: bool = False
    choosing: bool = False

    @property
    def tasks(self) -> list[Task]:
        return [
            Task(scenario, policy, self.rivals.get(policy), self.cache, self.quick, self.choosing)
            for scenario in self.scenarios
            for policy in self.policies
        ]

    def run(self, engine: Engine, workers: int) -> Iterator[tuple[Task, list[Run]]]:
        """Each task with its runs, as they come."""
        tasks = self.tasks
        for place, runs in each(do, tasks, engine, workers):
            yield tasks[place], runs

    def results(self, done: Sequence[tuple[Task, list[Run]]]) -> list[Result]:
        """One result a scenario, in the order of the scenarios."""
        found = {(id(task.scenario), task.policy): runs for task, runs in done}
        return [
            result_of(
                scenario, [run for p in self.policies for run in found.get((id(scenario), p), [])]
            )
            for scenario in self.scenarios
        ]


def result_of(scenario: Scenario, runs: Sequence[Run]) -> Result:
    """A scenario's runs, told apart."""
    ours = [run for run in runs if run.policy == OURS]
    known = [run for run in runs if run.policy == CLAIRVOYANT]
    return Result(
        name=scenario.name,
        lead_s=scenario.lead_s,
        mean_replicas=scenario.mean_replicas,
        attainment=scenario.attainment,
        ours=ours[0] if ours else None,
        clairvoyant=known[0] if known else None,
        rivals=tuple(run for run in runs if run.policy not in (OURS, CLAIRVOYANT)),
    )


@dataclass(frozen=True)
class Chain:
    """Scenarios alike, one after the other: where rivals crossed in one is a hint for the next."""

    scenarios: tuple[Scenario, ...]
    rivals: tuple["Rival", ...]
    cache: Cache
    choosing: bool = False


def decide(chain: Chain) -> list[Result]:
    """Our planner, the clairvoyant, and the rivals' cheapest settings, both at the SLO's budget
    and at what we violated."""
    hints: Hints = {}
    return [_decide(scenario, chain, hints) for scenario in chain.scenarios]


def _decide(scenario: Scenario, chain: Chain, hints: Hints) -> Result:
    ours = play_ours(scenario, chain.cache, choosing=chain.choosing).run
    known = best_clairvoyant(scenario, chain.cache)
    goals = [Goal(ours.violation_ratio, 1.0), Goal(scenario.budget, NAMED_RATIO)]
    curves: list[Curve] = []
    held = holding(scenario)
    for rival in sorted(chain.rivals, key=_order):
        evaluate = evaluation(scenario, rival, chain.cache, held)
        curves += aim(rival, evaluate, goals, runs_of(curves), hints)
    polish(curves, goals)
    return result_of(scenario, [ours, *([known] if known else []), *runs_of(curves)])


def _order(rival: "Rival") -> int:
    """Those first that are quick to run and mostly good: they rule out many settings of others."""
    return FIRST.index(rival.name) if rival.name in FIRST else len(FIRST)


def decide_all(
    chains: Sequence[Chain], engine: Engine, workers: int
) -> Iterator[tuple[int, list[Result]]]:
    """(place of the chain, its results) as they come."""
    yield from each(decide, chains, engine, workers)
