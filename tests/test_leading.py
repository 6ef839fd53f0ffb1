"""What leading means for planners, actuators and recorders."""

import asyncio
from collections.abc import Mapping
from math import inf
from typing import Any

import pytest

from controller.core.types import Action, DeploymentId, Hold, Outcome, ScaleDeployment, Tick
from controller.leading import Alone, FencedActuator, Leadership, LeadersRecorder
from tests.core.worlds import TARGET, World, planner


class HandedLease:
    """A lease given and taken by the test."""

    lease_s = 0.05
    problem = ""
    epoch = 1
    inherited = True

    def __init__(self, left_s: float = 10.0) -> None:
        self.left = left_s
        self.renewals: list[bool] = []
        self.third = asyncio.Event()

    def renew(self, healthy: bool = True) -> bool:
        self.renewals.append(healthy)
        if len(self.renewals) == 3:
            self.third.set()
        return self.left > 0

    def left_s(self) -> float:
        return self.left

    def release(self) -> None:
        self.left = 0.0


class Told:
    def __init__(self) -> None:
        self.led: list[bool] = []
        self.failed: list[str] = []

    def leads(self, leader: bool) -> None:
        self.led.append(leader)

    def failed_source(self, source: str, error: str) -> None:
        self.failed.append(f"{source}: {error}")


class Made:
    """Leadership over one planner, with a clock moved by hand."""

    def __init__(self, left_s: float, learned: Mapping[str, Any] | None = None) -> None:
        self.lease, self.told = HandedLease(left_s), Told()
        self.at_s, self.reached = 100.0, True
        self.planner = planner()
        self.began = 0
        self.leadership = Leadership(
            self.lease,
            lambda _: learned,
            lambda: self.reached,
            self.told,
            10.0,
            self.clock,
            self.begin,
        )

    def begin(self) -> None:
        self.began += 1

    def clock(self) -> float:
        return self.at_s

    def tick(self) -> bool:
        return self.leadership.at_tick({TARGET: self.planner})


def state_wanting(count: int) -> Mapping[str, Any]:
    live, made = World.with_replicas(count), planner()
    live.run(made, 5)
    state = made.state()
    assert state["wanted"] == count
    return state


def test_who_begins_to_lead_goes_on_where_the_one_before_stopped() -> None:
    made = Made(0.0, state_wanting(5))
    made.leadership.begin()
    assert not made.tick()
    assert made.planner.state()["wanted"] is None
    made.lease.left = 10.0
    assert made.tick()
    assert made.planner.state()["wanted"] == 5
    made.tick()
    assert made.began == 1


def test_who_led_from_the_start_is_not_set_back() -> None:
    made = Made(10.0, state_wanting(5))
    made.leadership.begin()
    made.tick()
    assert made.planner.state()["wanted"] is None
    assert made.began == 1


def test_what_cannot_be_restored_is_said_and_the_lead_taken() -> None:
    made = Made(0.0, {"wanted": 3})
    made.leadership.begin()
    made.tick()
    made.lease.left = 10.0
    assert made.tick()
    assert "learned state" in made.told.failed[0]


def test_the_writes_of_the_one_that_led_are_no_conflict() -> None:
    """A11, A2: a standby sees them, and leads without a pause when its time comes."""
    made, live = Made(0.0), World.with_replicas(3)
    made.leadership.begin()
    for setpoint in (3, 7, 2, 8, 3, 9, 1, 3):
        live.replicas = World.with_replicas(setpoint).replicas
        made.tick()
        assert live.step(made.planner).plan.reason != "conflict"


@pytest.mark.parametrize(
    ("ticked_s_ago", "reached", "healthy"),
    [(None, True, False), (0.0, True, True), (29.0, True, True), (31.0, True, False)],
    ids=["no tick yet", "just ticked", "a slow tick", "ticks have stopped"],
)
def test_healthy_is_who_ticks(ticked_s_ago: float | None, reached: bool, healthy: bool) -> None:
    made = Made(10.0)
    if ticked_s_ago is not None:
        made.tick()
        made.at_s += ticked_s_ago
    made.leadership.begin()
    assert made.lease.renewals == [healthy]


def test_who_does_not_reach_serve_is_not_healthy() -> None:
    made = Made(10.0)
    made.reached = False
    made.tick()
    made.leadership.begin()
    assert made.lease.renewals == [False]


async def test_the_lease_is_renewed_until_told_to_stop() -> None:
    made, stop = Made(10.0), asyncio.Event()
    keeping = asyncio.create_task(made.leadership.keep(stop))
    async with asyncio.timeout(5):
        await made.lease.third.wait()
        stop.set()
        await keeping
    assert set(made.told.led) == {True}


class Inner:
    """An actuator and recorder that notes what reaches it; `takes_s` to answer."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.seen: list[Action | Tick] = []
        self._takes_s = takes_s

    async def apply(self, action: Action) -> Outcome:
        await asyncio.sleep(self._takes_s)
        self.seen.append(action)
        return Outcome(action, True, "done")

    def record(self, tick: Tick) -> None:
        self.seen.append(tick)


SCALE = ScaleDeployment(DeploymentId("app", "llm"), 4)


@pytest.mark.parametrize("left_s", [10.0, inf])
async def test_who_leads_acts(left_s: float) -> None:
    inner = Inner()
    assert (await FencedActuator(inner, HandedLease(left_s)).apply(SCALE)).applied
    assert inner.seen == [SCALE]


async def test_a_standby_says_what_it_would_do() -> None:
    inner = Inner()
    outcome = await FencedActuator(inner, HandedLease(0.0)).apply(SCALE)
    assert (outcome.applied, outcome.detail) == (False, "standby: would set 4")
    assert inner.seen == []


async def test_no_write_outlasts_the_lease() -> None:
    inner = Inner(takes_s=5.0)
    outcome = await FencedActuator(inner, HandedLease(0.02)).apply(SCALE)
    assert (outcome.applied, inner.seen) == (False, [])


async def test_holding_needs_no_lease() -> None:
    hold = Hold(TARGET)
    assert (await FencedActuator(Inner(), HandedLease(0.0)).apply(hold)).action == hold


def test_only_the_one_that_leads_keeps_the_journal() -> None:
    tick, inner, lease = Tick(1.0, (), {}), Inner(), HandedLease(0.0)
    recorder = LeadersRecorder(inner, lease)
    recorder.record(tick)
    assert inner.seen == []
    lease.left = 1.0
    recorder.record(tick)
    assert inner.seen == [tick]


def test_who_writes_nothing_needs_nobodys_leave() -> None:
    alone = Alone()
    alone.release()
    assert (alone.renew(False), alone.left_s()) == (True, inf)
