"""AWS-style: predictive scaling by the documentation's example, target tracking by its alarms."""

import numpy as np
import pytest

from controller.replay.rivals import aws
from controller.replay.rivals.aws import tracked
from controller.replay.rivals.daily import days_length
from controller.replay.trace import DAY_S
from tests.replay.rivals.views import Decider, blind_view, with_values

SPANS, CAP = 72, 50.0
MEMORY = aws.PAST + days_length(SPANS)


def parameters(**changes: float) -> list[float]:
    changes = {"rps_per_replica": 2.0} | changes
    return [*with_values(aws.NAMES, aws.STYLES[0], **changes), CAP, float(SPANS)]


def two_days(decide: Decider) -> dict[float, int]:
    """2 requests/s, 40 from 10:00 to 11:00 on the first day only; targets by minute."""
    targets, count = {}, 0.0
    for minute in range(2 * 24 * 60):
        at_s = 60.0 * minute
        targets[at_s] = decide(at_s, arrivals=count)
        count += 60.0 * (40.0 if 600 <= minute < 660 else 2.0)
    return targets


def test_capacity_for_ten_oclock_is_there_from_five_to_ten() -> None:
    """ "add capacity at 10:00 AM ... pre-launch by 5 minutes ... launched at 9:55 AM"."""
    targets = two_days(Decider(aws.aws, MEMORY, parameters(), 1))
    ten = DAY_S + 36_000.0
    assert targets[ten - 360.0] == 1
    assert [targets[ten - 300.0], targets[ten], targets[ten + 3540.0]] == [20, 20, 20]
    # A forecast never shrinks; target tracking does, once its low alarm has rung long enough.
    assert targets[ten + 3600.0] == 1


def test_without_previous_days_only_the_load_counts() -> None:
    targets = two_days(Decider(aws.aws, MEMORY, parameters(days=0.0), 1))
    assert {targets[DAY_S + 60.0 * minute] for minute in range(24 * 60)} == {1}


@pytest.mark.parametrize(
    ("rps", "target", "expected"),
    [
        pytest.param(9.0, 4, [4, 4, 5], id="above the target for three periods"),
        pytest.param(8.0, 4, [4, 4, 4], id="at the target nothing moves"),
        pytest.param(7.3, 4, [4] * 20, id="nor within a tenth below it"),
        pytest.param(5.0, 4, [4] * 14 + [3], id="below it for fifteen"),
    ],
)
def test_target_tracking_waits_for_its_alarms(rps: float, target: int, expected: list[int]) -> None:
    memory, p = np.zeros(MEMORY), np.array(parameters())
    assert [tracked(memory, p, rps, target, 0.0) for _ in expected] == expected


def test_target_tracking_does_not_shrink_while_replicas_are_starting() -> None:
    memory, p = np.zeros(MEMORY), np.array(parameters())
    assert [tracked(memory, p, 1.0, 4, 1.0) for _ in range(20)] == [4] * 20
    assert tracked(memory, p, 1.0, 4, 0.0) == 1


def test_keeps_the_target_before_the_first_scrape() -> None:
    decide = Decider(aws.aws, MEMORY, parameters(), 4)
    assert aws.aws(blind_view(4), decide.memory, decide.parameters) == 4
