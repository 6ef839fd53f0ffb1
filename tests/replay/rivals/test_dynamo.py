"""Dynamo's planner: floor of a forecast interval, load loop of one, consolidation check at 0.8."""

import numpy as np
import pytest

from controller.replay.rivals import dynamo
from controller.replay.rivals.dynamo import load_step
from controller.replay.rivals.predictors import LAST_VALUE
from tests.replay.rivals.views import Decider, blind_view, with_values

CAP, SLOTS, SLO_S = 20.0, 16.0, 2.0


def parameters(**changes: float) -> list[float]:
    changes = {"rps_per_replica": 2.0, "interval_s": 60.0, "predictor": LAST_VALUE} | changes
    return [*with_values(dynamo.NAMES, dynamo.STYLES[0], **changes), CAP, SLOTS, SLO_S]


@pytest.mark.parametrize(
    ("target", "queued", "running", "expected"),
    [
        pytest.param(2, 9.0, 32.0, 1, id="9 over 4 requests/s is 2.25 s, beyond the SLO of 2 s"),
        pytest.param(2, 8.0, 32.0, 0, id="8 is just the SLO"),
        pytest.param(3, 0.0, 25.0, -1, id="2 engines would be 25 / 32 full"),
        pytest.param(3, 0.0, 26.0, 0, id="26 of 32 is above 0.8"),
        pytest.param(3, 6.0, 0.0, -1, id="for 2 engines the wait is 1.5 s, below 0.8 of the SLO"),
        pytest.param(3, 7.0, 0.0, 0, id="1.75 s is not"),
        pytest.param(1, 0.0, 0.0, 0, id="never below one"),
    ],
)
def test_the_load_loop_moves_by_one(
    target: int, queued: float, running: float, expected: int
) -> None:
    requests, p = queued + running, np.array(parameters())
    assert load_step(target, float(target), queued, requests, p) == expected


def run_for(decide: Decider, seconds: int, rps: float, start_s: int = 0) -> list[int]:
    """Ticks of 5 s under a steady rate, half of the slots taken."""
    return [
        decide(float(at_s), arrivals=rps * at_s, ongoing=8.0 * decide.target)
        for at_s in range(start_s, start_s + seconds, 5)
    ]


def test_the_forecast_of_an_interval_is_the_floor() -> None:
    decide = Decider(dynamo.dynamo, dynamo.MEMORY, parameters(), 2)
    targets = run_for(decide, 120, rps=9.0)
    assert targets[: 60 // 5] == [2] * 12
    assert set(targets[60 // 5 :]) == {5}  # ceil(9 / 2)


def test_the_floor_stops_at_the_cap() -> None:
    decide = Decider(dynamo.dynamo, dynamo.MEMORY, parameters(), 2)
    assert run_for(decide, 65, rps=90.0)[-1] == CAP


def test_nothing_moves_while_replicas_are_starting() -> None:
    crowd = {"queued": 100.0, "ready_replicas": 2.0, "starting_replicas": 1.0}
    decide = Decider(dynamo.dynamo, dynamo.MEMORY, parameters(), 3)
    assert decide(5.0, **crowd) == 3
    decide.memory[dynamo.FLOOR] = 7
    assert decide(10.0, **crowd) == 3
    eager = Decider(dynamo.dynamo, dynamo.MEMORY, parameters(waits_for_starts=0.0), 3)
    eager.memory[dynamo.FLOOR] = 7
    assert eager(10.0, **crowd) == 7


def test_keeps_the_target_before_the_first_scrape() -> None:
    decide = Decider(dynamo.dynamo, dynamo.MEMORY, parameters(), 4)
    assert dynamo.dynamo(blind_view(4), decide.memory, decide.parameters) == 4
