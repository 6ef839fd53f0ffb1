"""The composite: each of its published parts by hand, and its forecast quantile's coverage."""

import math

import numpy as np
import pytest

from controller.replay.rivals import composite, foresight
from controller.replay.rivals.composite import latched, released, supplied
from controller.replay.rivals.foresight import SEASONAL, foresee
from controller.replay.rivals.predictors import LAST_VALUE
from tests.replay.rivals.views import Decider, blind_view, with_values

LEAD_S, HOLD_S, CAP, SLOTS = 120.0, 0.0, 40.0, 16.0


def parameters(hold_s: float = HOLD_S, **changes: float) -> list[float]:
    plain = with_values(
        composite.PLAIN_NAMES, composite.STYLES[0] | {"rps_per_replica": 1.0}, **changes
    )
    return [*plain, LEAD_S, hold_s, CAP, SLOTS]


@pytest.mark.parametrize(
    ("target", "demand_rps", "requests", "expected"),
    [
        pytest.param(8, 8.6, 50.0, 11, id="need at 0.85"),
        pytest.param(11, 8.6, 50.0, 11, id="11 are enough, those starting included"),
        pytest.param(12, 8.6, 50.0, 12, id="not a whole replica is spare at 0.70"),
        pytest.param(14, 8.6, 50.0, 13, id="one is"),
        pytest.param(40, 8.6, 50.0, 13, id="the same from far above"),
        pytest.param(40, 8.6, 256.0, 20, id="the rest's slots stay below 0.8 full"),
    ],
)
def test_supply_is_needed_at_085_and_spare_at_070(
    target: int, demand_rps: float, requests: float, expected: int
) -> None:
    assert supplied(target, demand_rps, requests, np.array(parameters())) == expected


def test_panic_never_shrinks_until_a_minute_after_the_last_crossing() -> None:
    memory = np.zeros(composite.MEMORY)
    assert latched(memory, 0.0, 4, 10, 6, False) == 4
    assert latched(memory, 5.0, 4, 10, 12, True) == 12
    assert latched(memory, 60.0, 4, 12, 6, False) == 12
    assert latched(memory, 65.0, 4, 12, 6, False) == 12
    assert latched(memory, 70.0, 4, 12, 6, False) == 4


def test_releases_one_at_a_time_after_the_hold() -> None:
    memory = np.zeros(composite.MEMORY)
    target, targets = 9, []
    for k in range(12):
        target = released(memory, 5.0 * k, 9 if k == 0 else 6, target, 20.0)
        targets.append(target)
    assert targets == [9, 9, 9, 9, 8, 7, 6, 6, 6, 6, 6, 6]


def run_for(decide: Decider, seconds: int, rps: float, **fields: float) -> list[int]:
    return [decide(float(t), arrivals=rps * t, **fields) for t in range(0, seconds, 5)]


def test_the_floor_is_the_forecast_over_a_replicas_capacity() -> None:
    decide = Decider(composite.composite, composite.MEMORY, parameters(), 3)
    targets = run_for(decide, 12_000, rps=10.0)
    # The error begins at a factor of exp(0.25): ceil(12.84), more than the need of ceil(11.76).
    assert targets[:3] == [3, 3, 13]
    # Under a load that never varies it falls to a factor of one; nothing is spare at 0.70, though.
    error = decide.memory[composite.FORESIGHT + foresight.ERROR]
    assert error == pytest.approx(0, abs=0.05)
    assert set(targets[3:]) == {13}


def test_a_backlog_is_demand_spread_over_the_lead() -> None:
    calm = Decider(composite.composite, composite.MEMORY, parameters(quantile=0.5), 3)
    crowd = Decider(composite.composite, composite.MEMORY, parameters(quantile=0.5), 3)
    run_for(calm, 100, rps=10.0)
    # 600 waiting over 120 s are 5 requests/s more: ceil(15 / 0.85).
    assert run_for(crowd, 100, rps=10.0, queued=600.0)[-1] == 18
    assert calm.target < 18


@pytest.mark.parametrize("quantile", [0.7, 0.9])
def test_the_forecast_covers_its_quantile(quantile: float) -> None:
    rng = np.random.default_rng(3)
    memory = np.zeros(foresight.FORESIGHT_LENGTH)
    made: list[float] = []
    covered, count = [], 0.0
    for minute in range(4000):
        rps = 10 * math.exp(0.3 * rng.standard_normal())
        at_s = 60.0 * minute
        if minute > 500:
            covered.append(rps <= made[minute - 2])
        made.append(foresee(memory, 0, LAST_VALUE, quantile, LEAD_S, at_s, rps, count))
        count += 60 * rps
    assert np.mean(covered) == pytest.approx(quantile, abs=0.03)


def test_the_season_lifts_the_forecast_before_yesterdays_rise() -> None:
    memory = np.zeros(foresight.FORESIGHT_LENGTH)
    count, found = 0.0, {}
    for minute in range(2 * 24 * 60):
        rps = 15.0 if minute % 1440 >= 720 else 10.0
        found[minute] = foresee(memory, 0, SEASONAL, 0.5, 600.0, 60.0 * minute, 10.0, count)
        count += 60 * rps
    noon = 24 * 60 + 720
    ratio = found[noon - 7] / found[noon - 30]
    assert ratio == pytest.approx(1.5, rel=0.05)


def test_keeps_the_target_before_the_first_scrape() -> None:
    decide = Decider(composite.composite, composite.MEMORY, parameters(), 4)
    assert composite.composite(blind_view(4), decide.memory, decide.parameters) == 4
