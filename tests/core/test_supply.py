"""Which replicas may be counted on, when Serve does as it was asked, when shrinking had better
wait. Case ids are those of the field cases that the project collects."""

from itertools import pairwise
from typing import Any

import pytest

from controller.core.compliance import PAUSES_S, Compliance
from controller.core.draining import Drain
from controller.core.supply import FIRST_PAUSE_S, LONGEST_PAUSE_S, Supply
from controller.core.types import Load, Replica, Replicas, ReplicaState

LEAD_S = 60.0
TIMEOUT_S = 3600.0


def fleet(running: int, starting: int = 0, start_s: float = 0.0, **changes: Any) -> Replicas:
    members = [Replica(f"r{n}", ReplicaState.RUNNING, -1e4) for n in range(running)]
    members += [Replica(f"s{n}", ReplicaState.STARTING, start_s) for n in range(starting)]
    count = changes.pop("requested", running + starting)
    return Replicas(count, count, tuple(members), **changes)


def attainable(supply: Supply) -> int | None:
    return supply.attainable


def flaps(supply: Supply) -> bool:
    return supply.flapping


def waits(drain: Drain) -> bool:
    return drain.busy


def test_a_start_that_never_ends_is_given_up_and_tried_again() -> None:
    """D8: after an hour no more are asked for than there are; later the start is tried anew."""
    supply = Supply(TIMEOUT_S)
    for at_s in range(0, 3601, 600):
        supply.observe(at_s, fleet(2, 3), LEAD_S)
        assert attainable(supply) is None
    supply.observe(3610, fleet(2, 3), LEAD_S)
    assert attainable(supply) == 2
    assert supply.coming_s(LEAD_S) == ()
    supply.observe(3620, fleet(2), LEAD_S)
    assert attainable(supply) == 2
    supply.observe(3610 + FIRST_PAUSE_S, fleet(2), LEAD_S)
    assert attainable(supply) is None


def test_each_failed_start_is_retried_later() -> None:
    supply, at_s, pauses = Supply(TIMEOUT_S), 0.0, []
    for attempt in range(6):
        begin_s = at_s
        while attainable(supply) is None:
            member = Replica(f"s{attempt}", ReplicaState.STARTING, begin_s)
            supply.observe(at_s, Replicas(3, 3, (*fleet(2).members, member)), LEAD_S)
            at_s += 10
        given_up_s = at_s
        while attainable(supply) is not None:
            supply.observe(at_s, fleet(2), LEAD_S)
            at_s += 10
        pauses.append(at_s - given_up_s)
    assert pauses == sorted(pauses)
    assert pauses[0] == pytest.approx(FIRST_PAUSE_S, abs=20)
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE_S, abs=20)


def test_a_start_that_the_minimum_keeps_does_not_hinder_a_new_try() -> None:
    supply = Supply(100.0)
    supply.observe(0, fleet(1, 1), LEAD_S)
    supply.observe(110, fleet(1, 1), LEAD_S)
    assert attainable(supply) == 1
    later_s = 110 + FIRST_PAUSE_S
    supply.observe(later_s, fleet(1, 1), LEAD_S)
    assert attainable(supply) is None
    fresh = Replica("s9", ReplicaState.STARTING, later_s)
    supply.observe(later_s + 10, Replicas(3, 3, (*fleet(1, 1).members, fresh)), LEAD_S)
    assert attainable(supply) is None


def test_replicas_without_a_place_are_no_supply_where_none_can_be_added() -> None:
    """A5 in kind: pending for want of room; with an elastic cluster a node may come."""
    waiting = Replica("s0", ReplicaState.STARTING, 0.0, placed=False)
    for room, coming in ((0, ()), (None, (50.0,))):
        supply = Supply(TIMEOUT_S)
        supply.observe(10, Replicas(2, 2, (*fleet(1).members, waiting), room), LEAD_S)
        assert supply.coming_s(LEAD_S) == coming


def test_replicas_that_come_and_go_are_no_supply() -> None:
    """Three losses that nobody asked for: only what has served for a lead counts."""
    supply = Supply(TIMEOUT_S)
    stable = [Replica(f"r{n}", ReplicaState.RUNNING, 0.0) for n in range(2)]
    for number in range(4):
        flapping = Replica(f"f{number}", ReplicaState.RUNNING, 0.0)
        supply.observe(20 * number, Replicas(3, 3, (*stable, flapping)), LEAD_S)
    assert flaps(supply)
    assert supply.ready == 2
    for at_s in range(80, 200, 10):
        supply.observe(at_s, Replicas(3, 3, (*stable, flapping)), LEAD_S)
    assert supply.ready == 3
    for at_s in range(200, 900, 10):
        supply.observe(at_s, Replicas(3, 3, (*stable, flapping)), LEAD_S)
    assert not flaps(supply)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(lambda n: {"requested": 8 - n}, id="fewer were asked for"),
        pytest.param(lambda n: {"requested": 8, "deployed_s": float(n)}, id="a redeploy"),
    ],
)
def test_replicas_that_went_for_a_reason_are_no_losses(changes: Any) -> None:
    supply = Supply(TIMEOUT_S)
    for number in range(6):
        members = tuple(Replica(f"r{n}", ReplicaState.RUNNING, 0.0) for n in range(number, 8))
        said = changes(number)
        replicas = Replicas(said["requested"], 8, members, deployed_s=said.get("deployed_s", 0.0))
        supply.observe(10 * number, replicas, LEAD_S)
    assert not flaps(supply)


def test_what_runs_when_we_start_is_supply() -> None:
    supply = Supply(TIMEOUT_S)
    supply.observe(1e9, fleet(4), LEAD_S)
    assert supply.ready == 4


def test_a_number_without_effect_is_asked_for_ever_more_rarely() -> None:
    """A4 in kind: every write clears Serve's timers. After three it is said."""
    compliance, asked, complies = Compliance(), [], []
    for at_s in range(0, 120):
        complies.append(compliance.observe(at_s, fleet(2)))
        if compliance.ask(at_s, 6):
            asked.append(at_s)
    gaps = [b - a for a, b in pairwise(asked)]
    assert gaps == [1.0, *PAUSES_S[1:], 30.0]
    assert complies[asked[2]]
    assert not complies[asked[2] + 1]


def test_another_number_is_asked_for_at_once() -> None:
    compliance = Compliance()
    for at_s in range(30):
        compliance.observe(at_s, fleet(2))
        compliance.ask(at_s, 6)
    assert compliance.ask(30, 7)


def test_a_number_that_was_honoured_and_reset_is_asked_for_at_once() -> None:
    """A1: restored within one tick."""
    compliance = Compliance()
    assert compliance.ask(0, 6)
    assert compliance.observe(10, fleet(6))
    compliance.observe(20, fleet(1))
    assert compliance.ask(20, 6)


def test_a_target_that_stays_below_our_floor_is_no_compliance() -> None:
    compliance = Compliance()
    below = Replicas(2, 5, fleet(2).members)
    assert compliance.observe(0, below)
    assert compliance.observe(50, below)
    assert not compliance.observe(60, below)
    assert compliance.observe(70, fleet(5))


def load(running: float) -> Load:
    return Load(queued=0.0, ongoing=running)


@pytest.mark.parametrize(
    ("drain_s", "stay_s", "waits"),
    [
        pytest.param(20.0, 30.0, True, id="A7 streams outlive the graceful shutdown"),
        pytest.param(200.0, 30.0, False, id="they end in time"),
        pytest.param(None, 30.0, False, id="the time-out is not known"),
        pytest.param(20.0, None, False, id="the stay is not known"),
    ],
)
def test_a_shrink_waits_only_where_requests_would_be_cut_off(
    drain_s: float | None, stay_s: float | None, waits: bool
) -> None:
    drain = Drain()
    for at_s in range(0, 100, 10):
        drain.observe(at_s, load(12), fleet(3, drain_s=drain_s), stay_s, LEAD_S)
    assert drain.busy is waits


def test_a_shrink_waits_for_a_quiet_moment_within_its_budget() -> None:
    """A7: quiet is a fifth less than usual; after one lead it goes ahead anyway."""
    drain, replicas = Drain(), fleet(3, drain_s=20.0)
    for at_s in range(0, 100, 10):
        drain.observe(at_s, load(12), replicas, 30.0, LEAD_S)
    drain.observe(100, load(8), replicas, 30.0, LEAD_S)
    assert not waits(drain)
    waited = 0
    for at_s in range(110, 300, 10):
        drain.observe(at_s, load(12), replicas, 30.0, LEAD_S)
        if not waits(drain):
            break
        drain.waits(at_s, True)
        waited += 10
    assert waited == LEAD_S
