"""A schedule is its seed's, hits everyone and strikes nobody twice at once."""

from itertools import pairwise

import pytest

from tests.chaos.schedule import (
    KINDS,
    QUIET_END_S,
    SETTLES_S,
    Act,
    Victim,
    schedule,
    without_daemon,
)

SEEDS = range(20)
TEN_MINUTES_S = 600.0


def test_same_seed_same_faults() -> None:
    assert schedule(3, TEN_MINUTES_S) == schedule(3, TEN_MINUTES_S)
    assert schedule(3, TEN_MINUTES_S) != schedule(4, TEN_MINUTES_S)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_comes_in_ten_minutes(seed: int) -> None:
    faults = schedule(seed, TEN_MINUTES_S)
    counts = [sum(fault.kind == kind for fault in faults) for kind in KINDS]
    assert min(counts) >= 3
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_two_minutes_strike_every_victim(seed: int) -> None:
    assert len({fault.kind.victim for fault in schedule(seed, 120.0)}) >= len(Victim) - 1


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_is_struck_while_struck(seed: int) -> None:
    faults = schedule(seed, TEN_MINUTES_S)
    for victim in Victim:
        own = [fault for fault in faults if fault.kind.victim is victim]
        assert all(a.at_s + a.lasts_s + SETTLES_S <= b.at_s for a, b in pairwise(own))


@pytest.mark.parametrize("seed", SEEDS)
def test_pauses_keep_within_their_limits(seed: int) -> None:
    faults = schedule(seed, TEN_MINUTES_S)
    for fault in faults:
        assert fault.kind.least_s <= fault.lasts_s <= fault.kind.most_s
        if fault.kind.act is Act.PAUSE:
            assert 0 < fault.lasts_s <= 20
    assert max(fault.at_s for fault in faults) < TEN_MINUTES_S - QUIET_END_S


def test_faults_of_different_victims_overlap() -> None:
    faults = schedule(1, TEN_MINUTES_S)
    assert any(a.at_s + a.lasts_s > b.at_s for a, b in pairwise(faults))


def test_native_autoscaling_gets_the_same_but_those_of_the_daemon() -> None:
    faults = schedule(1, TEN_MINUTES_S)
    left = without_daemon(faults)
    assert set(faults) - set(left) == {f for f in faults if f.kind.victim is Victim.DAEMON}
    assert list(left) == sorted(left, key=lambda fault: fault.at_s)
