"""The planner's result does not depend on who runs it: replay and the live loop decide alike."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from controller.core.choosing import LAST_VALUE, Candidate, ModelName, Trial
from controller.core.periods import Periods
from controller.core.planning import Planner, PlannerSettings
from controller.core.ports import Chooser, Known
from controller.core.records import record
from controller.core.rehearsal import Rehearsal
from controller.core.types import Decision, DeploymentId, Outcome, Readings
from controller.loop import Loop
from controller.replay.ours import Leadtime
from controller.replay.plant import ColdStart, Plant, PlantSettings, View
from controller.replay.runner import run
from tests.core.loads import DAY, daily
from tests.replay.test_plant import busy_week
from tests.test_loop import FakeActuator, FakeFits, FakePlanners, Kept, Watch

TARGET = DeploymentId("replay", "llm")
EPOCH_S = 1.7e9
SEASONAL = Candidate(ModelName.SEASONAL, 1.0)


def planner() -> Planner:
    settings = PlannerSettings(Periods.of_season(86_400, 10), 10, 5, 2.0, 0.99, 1, 16, 120)
    made = Planner(TARGET, settings)
    made.forecaster.backfill(daily(DAY, 3, seed=1), EPOCH_S - 3 * 86_400)
    return made


class Recorded(Leadtime):
    """Our policy, keeping what it was shown and what it decided."""

    def __init__(self, rehearse: Callable[[Rehearsal], list[Trial]] | None = None) -> None:
        super().__init__(planner(), 16, EPOCH_S, rehearse)
        self.shown: list[Readings] = []
        self.decided: list[Decision] = []

    def readings(self, view: View) -> Readings:
        self.shown.append(super().readings(view))
        return self.shown[-1]

    def decide(self, readings: Readings) -> Decision:
        self.decided.append(super().decide(readings))
        return self.decided[-1]


def seasonal_is_cheapest(job: Rehearsal) -> list[Trial]:
    """A replay that is none."""
    hours = {LAST_VALUE: 90.0, SEASONAL: 50.0}
    return [Trial(each, hours.get(each, 100.0), 0.001) for each in job.candidates]


class InstantChooser:
    """Has each replay's trials at the next look."""

    def __init__(self) -> None:
        self.done: deque[tuple[DeploymentId, list[Trial]]] = deque()

    def submit(self, target: DeploymentId, job: Rehearsal) -> None:
        self.done.append((target, seasonal_is_cheapest(job)))

    def poll(self) -> list[tuple[DeploymentId, list[Trial]]]:
        done, self.done = list(self.done), deque()
        return done


class Shown:
    """A source that tells what the replay was told."""

    failures: tuple[str, ...] = ()

    def __init__(self, shown: list[Readings]) -> None:
        self.left = iter(shown)
        self.now = next(self.left)

    async def replicas(self) -> Known:
        return {TARGET: self.now.replicas}

    async def readings(self, now_s: float, replicas: Known) -> Mapping[DeploymentId, Readings]:
        shown, self.now = self.now, next(self.left, self.now)
        return {TARGET: shown}


class SamePlanner(FakePlanners):
    async def prepare(self, targets: Iterable[DeploymentId]) -> Mapping[DeploymentId, Planner]:
        return {target: planner() for target in targets}


def told(decisions: Iterable[Decision]) -> list[str]:
    return [json.dumps(record(d, Outcome(d.action, True, ""))) for d in decisions]


async def test_the_live_loop_decides_as_the_replay_did_byte_for_byte() -> None:
    await same(Recorded())


async def test_with_model_and_price_chosen_by_a_replay_of_the_past_they_decide_alike_too() -> None:
    policy = Recorded(seasonal_is_cheapest)
    live = await same(policy, chooser=InstantChooser())
    models = [d.near.model for d in live if d.near is not None]
    assert {"location_scale", "seasonal"} <= set(models)
    choice = live[-1].learned.choice
    assert choice is not None
    assert choice.candidate == SEASONAL


async def same(policy: Recorded, chooser: Chooser | None = None) -> list[Decision]:
    """What the live loop decided, after comparing."""
    settings = PlantSettings(cold_start=ColdStart(120), cap=16)
    run(Plant(settings, busy_week().between(0, 8 * 3600), initial=3), policy)
    kept = Kept()
    source = Shown(policy.shown)
    loop = Loop(
        source,
        SamePlanner(),
        FakeActuator(),
        (kept,),
        FakeFits(),
        Watch(),
        10,
        lambda: 0.0,
        chooser=chooser,
    )
    await loop.first_fits()
    for _ in policy.shown:
        await loop.tick()
    live = [decision for tick in kept.ticks for decision, _ in tick.decisions]
    assert len({d.plan.wanted for d in live}) > 3
    assert np.isfinite([d.plan.wanted for d in live]).all()
    assert told(live) == told(policy.decided)
    return live
