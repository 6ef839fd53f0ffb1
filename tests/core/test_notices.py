"""Notices: one when something begins, one when it is over, one for each scaling."""

from typing import Any

from controller.core.notices import Kind, Notice, Watcher
from controller.core.types import Outcome, Sample, Tick
from tests.core.worlds import TARGET, World, planner


class Watched:
    """A world, its planner, and what the watcher says at every step."""

    def __init__(self) -> None:
        self.live = World.with_replicas(4, rate_rps=12)
        self.planner = planner()
        self.watcher = Watcher(lambda _: 0.99)
        self.step(60)

    def step(self, ticks: int = 1, applied: bool = True, **changes: Any) -> list[Notice]:
        found = []
        for _ in range(ticks):
            decision = self.live.step(self.planner, **changes)
            outcome = Outcome(decision.action, applied, "")
            found += self.watcher.notices(Tick(self.live.at_s, ((decision, outcome),), {}))
        return found


def told(notices: list[Notice]) -> list[tuple[Kind, Any]]:
    return [(notice.kind, notice.data.get("state")) for notice in notices]


def test_steady_load_tells_nothing() -> None:
    assert Watched().step(30) == []


def test_a_scaling_is_told_when_it_was_done() -> None:
    watched = Watched()
    watched.live.rate_rps = 30
    scaled = [n for n in watched.step(10) if n.kind is Kind.SCALED]
    assert scaled[-1].data["after"] > 4
    assert scaled[0].target == TARGET
    shadow = Watched()
    shadow.live.rate_rps = 30
    assert [n for n in shadow.step(10, applied=False) if n.kind is Kind.SCALED] == []


def test_a_hold_is_told_once_and_when_it_is_over() -> None:
    watched = Watched()
    assert told(watched.step(10, arrivals=None)) == [(Kind.HELD, "began")]
    over = watched.step(10)
    assert (Kind.HELD, "over") in told(over)


def test_what_comes_and_goes_is_told_once() -> None:
    watched = Watched()
    found = []
    for _ in range(5):
        found += watched.step(1, arrivals=None) + watched.step(1)
    assert told(found) == [(Kind.HELD, "began")]


def test_an_slo_is_at_risk_after_three_late_ticks() -> None:
    watched = Watched()

    def step(share: float, ticks: int) -> list[tuple[Kind, Any]]:
        found = []
        for _ in range(ticks):
            late = {"": Sample(share, watched.live.at_s + 9)}
            found += told(watched.step(1, late_ratio=late))
        return found

    assert step(0.05, 2) == []
    assert (Kind.SLO_AT_RISK, "began") in step(0.05, 1)
    assert (Kind.SLO_AT_RISK, "over") in step(0.0, 5)


def test_no_room_is_told() -> None:
    watched = Watched()
    watched.live.room = 0
    watched.live.rate_rps = 40
    assert (Kind.UNSCHEDULABLE, "began") in told(watched.step(20))


def test_a_second_writer_is_told() -> None:
    watched = Watched()
    found = []
    for tick in range(12):
        watched.live.scale(1 if tick % 2 else 12)
        found += watched.step(1)
    assert (Kind.CONFLICT, "began") in told(found)


def test_the_same_tick_gives_the_same_ids_and_plain_values_give_it_back() -> None:
    first, second = Watched(), Watched()
    one, two = first.step(1, arrivals=None), second.step(1, arrivals=None)
    assert [n.id for n in one] == [n.id for n in two]
    assert Notice.of(one[0].plain()) == one[0]
