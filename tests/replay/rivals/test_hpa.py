"""Kubernetes' HPA on a KEDA threshold, against the examples of the Kubernetes documentation."""

import pytest

from controller.replay.rivals import hpa
from controller.replay.rivals.hpa import recommended
from controller.replay.rivals.stabilisation import stepped
from tests.replay.rivals.views import Decider, blind_view, with_values


def a_decider(target: int, cap: float = 100, **changes: float) -> Decider:
    changes = {"requests_per_replica": 10.0} | changes
    parameters = with_values(hpa.NAMES, hpa.DEFAULTS, **changes)
    return Decider(hpa.hpa, hpa.MEMORY, [*parameters, cap], target)


@pytest.mark.parametrize(
    ("replicas", "per_replica", "expected"),
    [
        pytest.param(2, 200.0, 4, id="200m against a target of 100m doubles the replicas"),
        pytest.param(4, 50.0, 2, id="50m halves them"),
        pytest.param(3, 109.0, 3, id="a ratio of 1.09 is left alone"),
        pytest.param(3, 91.0, 3, id="so is one of 0.91"),
        pytest.param(3, 111.0, 4, id="1.11 is not: ceil(3.33)"),
        pytest.param(10, 88.0, 9, id="nor is 0.88: ceil(8.8)"),
    ],
)
def test_desired_is_the_ratio_of_metric_to_target(
    replicas: int, per_replica: float, expected: int
) -> None:
    requests = per_replica * replicas
    assert recommended(requests, float(replicas), replicas, 100.0, 0.1) == expected


def test_kedas_threshold_is_for_the_sum_of_queued_and_running() -> None:
    decide = a_decider(2)
    assert decide(15.0, queued=7.0, ongoing=26.0) == 4


@pytest.mark.parametrize(
    ("wanted", "target", "expected"),
    [(100, 1, 5), (100, 3, 7), (100, 10, 20), (12, 10, 12), (2, 10, 2)],
)
def test_a_step_up_is_double_or_four_more_whichever_is_larger(
    wanted: int, target: int, expected: int
) -> None:
    assert stepped(wanted, target, 100.0, 4.0) == expected


def test_shrinks_to_the_greatest_wanted_in_the_last_five_minutes() -> None:
    decide = a_decider(10)
    loads = [100.0, 70.0, *[40.0] * 60]
    targets = [decide(15.0 * k, ongoing=load) for k, load in enumerate(loads)]
    # 100 wanted at 0 s holds until 285 s, the 70 of 15 s until 300 s.
    assert [targets.index(n) * 15 for n in (10, 7, 4)] == [0, 300, 315]


def test_grows_at_once_and_never_beyond_the_cap() -> None:
    decide = a_decider(4, cap=6)
    assert decide(15.0, ongoing=400.0) == 6
    assert a_decider(1, cap=6)(0.0) == 1


def test_counts_what_is_starting_as_supply() -> None:
    assert a_decider(6)(15.0, ongoing=63.0, ready_replicas=2.0, starting_replicas=4.0) == 6


def test_averages_over_its_window() -> None:
    decide = a_decider(2, average_s=30.0)
    assert decide(0.0, ongoing=20.0) == 2
    assert decide(15.0, ongoing=60.0) == 4
    assert decide(30.0, ongoing=60.0) == 6


def test_keeps_the_target_before_the_first_scrape() -> None:
    decide = a_decider(7)
    assert hpa.hpa(blind_view(7), decide.memory, decide.parameters) == 7
    assert not decide.memory.any()
