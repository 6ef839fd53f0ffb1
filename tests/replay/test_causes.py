"""Why requests were late, on loads and decisions made by hand."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from controller.replay.causes import ORDER, Cause, causes, split, worst_minutes
from controller.replay.layout import REPORT, VIOLATION
from controller.replay.plant import ColdStart, PlantSettings
from controller.replay.runs import DECISION
from controller.replay.scenario import Scenario
from tests.replay.conftest import requests_at

LEAD_S = 60.0
SETTINGS = PlantSettings(
    slots=1,
    beta=0.0,
    cap=8,
    prefill_tokens_per_s=1000.0,
    tpot_s=0.001,
    cold_start=ColdStart(LEAD_S, jitter=0.0),
)


def scenario() -> Scenario:
    """One request of 1 s a second, and three a second in [600, 900)."""
    arrivals_s = np.arange(0.0, 1800.0, 1.0)
    extra_s = np.arange(600.25, 900.0, 0.5)
    times_s = np.sort(np.concatenate([arrivals_s, extra_s])).tolist()
    trace = requests_at(times_s, end_s=1800, output_s=1.0)
    return Scenario("hand", trace, (300.0, 1800.0), SETTINGS, warm_up_s=300.0)


def decided(**changes: float) -> NDArray[Any]:
    """A decision every 10 s: a forecast of 1.2/s at most, two replicas, the true capacity."""
    at_s = np.arange(0.0, 1800.0, 10.0)
    rows = np.zeros(len(at_s), DECISION)
    usual = {"wanted": 2, "ready": 2, "lead_s": LEAD_S, "capacity_rps": 1.0, "horizon_s": 70.0}
    usual |= {"q50_rps": 1.0, "q90_rps": 1.15, "q99_rps": 1.2}
    for name, value in (usual | changes).items():
        rows[name] = value
    rows["at_s"] = at_s
    return rows


def late_at(*arrivals_s: float, prefill_s: float = 0.1) -> NDArray[Any]:
    log = np.zeros(len(arrivals_s), VIOLATION)
    log["arrival_s"], log["wait_s"], log["prefill_s"] = arrivals_s, 3.0, prefill_s
    return log


def cause_of(log: NDArray[Any], decisions: NDArray[Any]) -> list[Cause]:
    return [ORDER[place] for place in causes(scenario(), log, decisions)]


def test_within_one_lead_of_a_rise_above_the_forecast_nobody_could_help() -> None:
    found = cause_of(late_at(620.0, 655.0), decided())
    assert found == [Cause.BURST, Cause.BURST]


def test_later_than_one_lead_the_forecast_should_have_known() -> None:
    assert cause_of(late_at(700.0, 880.0), decided()) == [Cause.FORECAST, Cause.FORECAST]


def test_after_the_burst_its_queue_is_worked_off() -> None:
    assert cause_of(late_at(940.0), decided()) == [Cause.RECOVERY]


def test_a_load_within_the_forecast_is_crowding() -> None:
    assert cause_of(late_at(1500.0), decided()) == [Cause.CROWDING]


def test_a_prompt_too_long_is_late_whatever_else() -> None:
    found = cause_of(late_at(620.0, prefill_s=2.5), decided(wanted=8))
    assert found == [Cause.PREFILL]


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        pytest.param({"wanted": 8}, Cause.CAP, id="the plan asked for the cap"),
        pytest.param({"capacity_rps": 1.5}, Cause.CAPACITY, id="too much was hoped of a replica"),
        pytest.param({"q90_rps": 0.5}, Cause.FORECAST, id="the 90 % forecast was too low"),
    ],
)
def test_each_fault_of_the_plan_has_its_name(changes: dict[str, float], cause: Cause) -> None:
    assert cause_of(late_at(1500.0), decided(**changes)) == [cause]


def test_the_split_adds_up_to_all_late_requests() -> None:
    log = np.concatenate([late_at(620.0, 1500.0), late_at(1400.0, prefill_s=3.0)])
    got = split(scenario(), {"log": log, "decisions": decided()}, 300)
    assert got.unavoidable == pytest.approx(1 / 300)
    assert got.prefill_alone == pytest.approx(1 / 300)
    assert got.avoidable == pytest.approx(1 / 300)
    assert sum(got.causes.values()) == pytest.approx(3 / 300)


def test_no_late_requests_have_no_causes() -> None:
    got = split(scenario(), {"log": late_at(), "decisions": decided()}, 300)
    assert got.avoidable == got.unavoidable == got.prefill_alone == 0


def test_the_worst_minutes_come_first_with_their_commonest_cause() -> None:
    reports = np.zeros(30, REPORT)
    reports["arrivals"] = 60
    reports["violations"][10], reports["violations"][25] = 2, 1
    reports["ready"] = 3
    arrays = {"log": late_at(610.0, 620.0, 1530.0), "decisions": decided(), "reports": reports}
    first, second = worst_minutes(scenario(), arrays)
    assert (first.at_s, first.late, first.cause) == (600.0, 2, Cause.BURST)
    assert (second.at_s, second.cause) == (1500.0, Cause.CROWDING)
    assert (first.ready, first.wanted) == (3, 2)
