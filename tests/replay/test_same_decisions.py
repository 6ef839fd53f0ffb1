"""The planner's result does not depend on who runs it: replay and the live loop decide alike."""

import json
from collections.abc import Iterable, Mapping

import numpy as np

from controller.core.periods import Periods
from controller.core.planning import Planner, PlannerSettings
from controller.core.ports import Known
from controller.core.records import record
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


def planner() -> Planner:
    settings = PlannerSettings(Periods.of_season(86_400, 10), 10, 5, 2.0, 0.99, 1, 16, 120)
    made = Planner(TARGET, settings)
    made.forecaster.backfill(daily(DAY, 3, seed=1), EPOCH_S - 3 * 86_400)
    return made


class Recorded(Leadtime):
    """Our policy, keeping what it was shown and what it decided."""

    def __init__(self) -> None:
        super().__init__(planner(), 16, EPOCH_S)
        self.shown: list[Readings] = []
        self.decided: list[Decision] = []

    def readings(self, view: View) -> Readings:
        self.shown.append(super().readings(view))
        return self.shown[-1]

    def decide(self, readings: Readings) -> Decision:
        self.decided.append(super().decide(readings))
        return self.decided[-1]


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
    policy = Recorded()
    settings = PlantSettings(cold_start=ColdStart(120), cap=16)
    run(Plant(settings, busy_week().between(0, 8 * 3600), initial=3), policy)
    kept = Kept()
    source = Shown(policy.shown)
    loop = Loop(
        source, SamePlanner(), FakeActuator(), (kept,), FakeFits(), Watch(), 10, lambda: 0.0
    )
    await loop.first_fits()
    for _ in policy.shown:
        await loop.tick()
    live = [decision for tick in kept.ticks for decision, _ in tick.decisions]
    assert len({d.plan.wanted for d in live}) > 3
    assert np.isfinite([d.plan.wanted for d in live]).all()
    assert told(live) == told(policy.decided)
