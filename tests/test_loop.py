"""The loop: observe, plan, act, record; ticks that neither overlap nor stop at a failure."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import pytest

from controller.core.choosing import DEFAULT, LAST_VALUE, Candidate, Choice, Trial, Verdict
from controller.core.forecasting import fitting
from controller.core.forecasting.fitting import FitJob, Fitted
from controller.core.planning import Planner
from controller.core.ports import Known
from controller.core.rehearsal import Rehearsal
from controller.core.types import Action, DeploymentId, Hold, Outcome, Readings, Tick
from controller.loop import Loop
from tests.core.loads import DAY, daily
from tests.core.worlds import START_S, TARGET, World, planner


class FakeSource:
    def __init__(self, live: World) -> None:
        self.live = live
        self.failures: tuple[str, ...] = ()
        self.breaks = False

    async def replicas(self) -> Known:
        self.live.at_s += 10
        self.live.arrived += 50
        self.live.done += 50
        return {TARGET: self.live.readings().replicas}

    async def readings(self, now_s: float, replicas: Known) -> Mapping[DeploymentId, Readings]:
        if self.breaks:
            raise ZeroDivisionError("nobody expected this")
        return {TARGET: self.live.readings()}


class FakePlanners:
    def __init__(self) -> None:
        self.prepared: list[DeploymentId] = []

    async def prepare(self, targets: Iterable[DeploymentId]) -> Mapping[DeploymentId, Planner]:
        self.prepared += list(targets)
        return {target: planner() for target in self.prepared}

    async def refill(self, planners: Mapping[DeploymentId, Planner], now_s: float) -> None:
        pass


class FakeActuator:
    def __init__(self) -> None:
        self.applied: list[Action] = []

    async def apply(self, action: Action) -> Outcome:
        if not isinstance(action, Hold):
            self.applied.append(action)
        return Outcome(action, applied=True, detail="")


class FakeFits:
    def __init__(self) -> None:
        self.done: list[tuple[DeploymentId, Fitted | Exception]] = []
        self.idle = True

    def submit(self, target: DeploymentId, job: FitJob) -> None:
        self.done.append((target, fitting.run(job)))

    def poll(self) -> list[tuple[DeploymentId, Fitted | Exception]]:
        done, self.done = self.done, []
        return done


class FakeChooser:
    """Answers each replay at the next look, with what it was told to."""

    def __init__(self, *answers: Sequence[Trial] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[Rehearsal] = []
        self.done: list[tuple[DeploymentId, Sequence[Trial] | Exception]] = []

    def submit(self, target: DeploymentId, job: Rehearsal) -> None:
        self.asked.append(job)
        self.done.append((target, self.answers.pop(0)))

    def poll(self) -> list[tuple[DeploymentId, Sequence[Trial] | Exception]]:
        done, self.done = self.done, []
        return done


class Watch:
    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.ticks = 0
        self.fits: list[str] = []
        self.choices: list[Choice] = []
        self.failed = asyncio.Event()

    def failed_tick(self, error: BaseException) -> None:
        self.errors.append(error)
        self.failed.set()

    def ticked(self, seconds: float) -> None:
        self.ticks += 1

    def fitted(self, target: DeploymentId, result: str, detail: str = "") -> None:
        self.fits.append(result)

    def chose(self, target: DeploymentId, choice: Choice) -> None:
        self.choices.append(choice)


class Kept:
    def __init__(self, breaks: bool = False) -> None:
        self.ticks: list[Tick] = []
        self.breaks = breaks
        self.recorded = asyncio.Event()

    def record(self, tick: Tick) -> None:
        if self.breaks:
            raise OSError("disk full")
        self.ticks.append(tick)
        self.recorded.set()


class Made:
    def __init__(self, *recorders: Kept) -> None:
        self.source = FakeSource(World.with_replicas(3))
        self.planners, self.actuator, self.watch = FakePlanners(), FakeActuator(), Watch()
        self.fits = FakeFits()
        self.loop = Loop(
            self.source,
            self.planners,
            self.actuator,
            recorders,
            self.fits,
            self.watch,
            tick_s=0.01,
            clock=lambda: self.source.live.at_s,
        )


async def test_a_tick_observes_plans_acts_and_records() -> None:
    kept = Kept()
    made = Made(kept)
    for _ in range(3):
        await made.loop.tick()
    assert made.planners.prepared == [TARGET]
    assert [tick.at_s for tick in kept.ticks] == [kept.ticks[0].at_s + 10 * n for n in range(3)]
    assert kept.ticks[-1].learned[TARGET] == made.loop.planners[TARGET].state()


async def test_a_fit_is_asked_for_and_adopted_in_a_later_tick() -> None:
    made = Made()
    for _ in range(60):
        await made.loop.tick()
    assert "adopted" in made.watch.fits


async def test_an_unexpected_failure_is_noted_and_the_next_tick_is_the_retry() -> None:
    kept = Kept()
    made = Made(kept)
    stop = asyncio.Event()
    made.source.breaks = True
    running = asyncio.create_task(made.loop.run(stop))
    await made.watch.failed.wait()
    made.source.breaks = False
    await kept.recorded.wait()
    stop.set()
    await running
    assert isinstance(made.watch.errors[0], ZeroDivisionError)
    assert made.watch.ticks >= 2


async def test_a_failing_recorder_stops_neither_scaling_nor_the_others() -> None:
    broken, kept = Kept(breaks=True), Kept()
    made = Made(broken, kept)
    await made.loop.tick()
    assert len(kept.ticks) == 1
    assert isinstance(made.watch.errors[0], OSError)


async def test_a_failed_fit_is_noted() -> None:
    made = Made()
    await made.loop.tick()
    made.fits.done.append((TARGET, RuntimeError("singular")))
    await made.loop.tick()
    assert made.watch.fits == ["failed"]


async def test_what_a_replay_finds_is_in_force_and_a_dead_one_changes_nothing() -> None:
    kept = Kept()
    made = Made(kept)
    found = [Trial(DEFAULT, 100.0, 0.004), Trial(LAST_VALUE, 80.0, 0.004)]
    made.loop.chooser = chooser = FakeChooser(found, RuntimeError("the process died"))
    await made.loop.tick()
    history = daily(DAY, 4, seed=1)
    made.loop.planners[TARGET].forecaster.backfill(history, START_S - 4 * 86_400)
    while not chooser.asked:
        await made.loop.tick()
    assert made.watch.choices == []
    await made.loop.tick()
    assert [choice.verdict for choice in made.watch.choices] == [Verdict.CHEAPEST]
    assert in_force(kept) == LAST_VALUE
    made.source.live.at_s += 86_400
    while len(chooser.asked) < 2:
        await made.loop.tick()
    await made.loop.tick()
    assert made.watch.choices[-1].verdict is Verdict.FAILED
    assert made.watch.choices[-1].problem == "the process died"
    assert in_force(kept) == LAST_VALUE


def in_force(kept: Kept) -> Candidate | None:
    """What the last decision went by."""
    choice = kept.ticks[-1].decisions[0][0].learned.choice
    return None if choice is None else choice.candidate


async def test_stop_ends_the_loop_and_a_hanging_tick() -> None:
    made = Made()
    never = asyncio.Event()

    async def hang() -> Known:
        await never.wait()
        return {}

    made.source.replicas = hang  # type: ignore[method-assign]
    stop = asyncio.Event()
    running = asyncio.create_task(made.loop.run(stop))
    await asyncio.sleep(0)
    stop.set()
    async with asyncio.timeout(4):
        await running
    assert isinstance(made.watch.errors[0], TimeoutError)


@pytest.mark.parametrize("gone", [True, False])
async def test_a_deployment_that_is_not_there_now_is_kept(gone: bool) -> None:
    made = Made()
    await made.loop.tick()
    first = made.loop.planners[TARGET]
    if gone:
        made.source.live.replicas = []
    await made.loop.tick()
    assert made.loop.planners[TARGET] is first
