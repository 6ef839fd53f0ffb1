"""Who is cheapest at what."""

import math

import pytest

from controller.replay.frontier import (
    Result,
    best_by_policy,
    cost_above_frontier,
    geometric_mean,
    pareto,
    summarise,
)
from controller.replay.runs import Run
from controller.replay.tables import as_json, policy_rows
from tests.replay.test_sweep import made


def result(name: str, ours: Run | None, *rivals: Run, lead_s: float = 120.0) -> Result:
    known = made(80, 0.01, "clairvoyant", {"headroom": 1.1})
    return Result(name, lead_s, 6.0, 0.99, ours, known, rivals)


def test_the_frontier_is_what_nobody_beats_in_both() -> None:
    a, b, c, d = made(100, 0.02), made(110, 0.01), made(120, 0.015), made(130, 0.001)
    assert pareto([d, c, b, a]) == [a, b, d]
    assert pareto([]) == []


def test_equal_in_both_counts_once() -> None:
    assert len(pareto([made(100, 0.02), made(100, 0.02), made(100, 0.01)])) == 1


def test_cost_at_equal_violations_is_against_one_that_violates_no_more() -> None:
    cheap, equal, dear = made(90, 0.02), made(120, 0.008), made(150, 0.001)
    got = result("w", made(96, 0.008, "leadtime"), cheap, equal, dear)
    assert got.equal_rival is equal
    assert got.cost_at_equal_violations == pytest.approx(0.8)
    assert got.best_rival is equal
    assert got.over_clairvoyance == pytest.approx(1.2)


def test_where_we_violate_more_than_allowed_the_rival_may_too() -> None:
    got = result("w", made(96, 0.02, "leadtime"), made(80, 0.02), made(120, 0.01))
    assert got.cost_at_equal_violations == pytest.approx(1.2)
    assert got.best_rival is not None
    assert got.best_rival.gpu_hours == 120


def test_no_rival_within_reach_is_no_ratio() -> None:
    got = result("w", made(96, 0.001, "leadtime"), made(80, 0.02))
    assert got.cost_at_equal_violations is None
    assert got.best_rival is None


def test_a_lead_is_summed_up_and_windows_out_of_reach_stand_apart() -> None:
    near = result("near", made(90, 0.009, "leadtime"), made(100, 0.009))
    far = result("far", made(64, 0.03, "leadtime"), made(100, 0.03))
    alone = result("alone", made(90, 0.001, "leadtime"), made(100, 0.009))
    other = result("other", made(90, 0.001, "leadtime"), made(100, 0.001), lead_s=45)
    short, long = summarise([near, far, alone, other])
    assert (short.lead_s, short.scenarios) == (45, 1)
    assert long.violation_ratio == pytest.approx(0.04 / 3)
    assert (long.at_target, long.rival_at_target) == (2, 2)
    assert long.cost == pytest.approx(math.sqrt(0.9 * 0.64))
    assert long.worst_cost == pytest.approx(0.9)
    assert long.out_of_reach == ("alone",)


def test_scenarios_without_us_are_not_summed_up() -> None:
    assert summarise([result("w", None, made(100, 0.01))]) == []


def test_the_best_of_each_policy_and_how_far_above_the_frontier() -> None:
    a, b, c = made(100, 0.01, "a"), made(120, 0.01, "b"), made(90, 0.5, "c")
    assert best_by_policy([a, b, c], 0.01) == {"a": a, "b": b, "c": None}
    assert cost_above_frontier(b, [a, b, c]) == pytest.approx(1.2)
    assert cost_above_frontier(a, []) == 1


def test_the_geometric_mean() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1)
    assert geometric_mean([]) is None


def test_json_has_the_promised_form_and_no_infinity() -> None:
    late = Run("ray", {"size": 2.0}, 100, 50, 0, 1.0, 9.0, math.inf, 70.0, 3, 1, 60.0)
    got = as_json([result("w", made(96, 0.008, "leadtime"), late)], {})
    (scenario,) = got["scenarios"]
    assert set(scenario) == {
        "trace",
        "lead_s",
        "mean_replicas",
        "runs",
        "best_rival",
        "clairvoyant",
        "leadtime",
    }
    assert [run["policy"] for run in scenario["runs"]] == ["leadtime", "clairvoyant", "ray"]
    assert scenario["runs"][2] == {
        "policy": "ray",
        "params": {"size": 2.0},
        "attainment": 0.5,
        "ttft_p99_s": None,
        "gpu_hours": 70.0,
        "changes": 3,
    }
    assert scenario["best_rival"] is None
    assert scenario["leadtime"]["gpu_hours"] == 96


def test_the_table_has_us_first_then_rivals_by_cost() -> None:
    rows = policy_rows(
        result("w", made(96, 0.02, "leadtime"), made(120, 0.01, "b"), made(100, 0.01, "a"))
    )
    assert [policy for policy, _, _ in rows] == ["leadtime", "a", "b", "clairvoyant"]
