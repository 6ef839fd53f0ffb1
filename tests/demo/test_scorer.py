"""The demo's recipe, its model and its scorer, without any server."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from controller.demo import day, model
from controller.demo.history import starts, write_blocks
from controller.demo.processes import ProcessGroup, free_ports
from controller.demo.scorer import (
    busy_replicas,
    score_day,
    score_ramps,
    why_void,
)
from controller.demo.script import STANDIN, Script, vllm_script
from controller.demo.watch import Sight
from serve_app.law import Law
from serve_app.load_results import LoadResult


@pytest.fixture(scope="module")
def the_day() -> day.Day:
    return day.make_day(12)


def sights(counts: list[tuple[float, int]], script: Script = STANDIN) -> list[Sight]:
    """Looks at Serve twice a second; each pair says since when so many are ready."""
    seen = []
    for at_s in np.arange(-10.0, script.season_s + 1, 0.5):
        ready = [count for since_s, count in counts if since_s <= at_s][-1]
        seen.append(Sight(float(at_s), 4, 0, ready, 0))
    return seen


def test_a_seed_is_a_day() -> None:
    once, again, other = day.make_day(3), day.make_day(3), day.make_day(4)
    assert np.array_equal(once.arrivals.arrival_s, again.arrivals.arrival_s)
    assert not np.array_equal(once.arrivals.arrival_s[:50], other.arrivals.arrival_s[:50])


def test_a_day_has_six_ramps_in_order_of_three_replicas_each(the_day: day.Day) -> None:
    begins = [ramp.begins_s for ramp in the_day.ramps]
    assert len(begins) == 6
    assert begins == sorted(begins)
    assert all(np.ceil(r.after) - np.ceil(r.before) >= 3 for r in the_day.ramps)


def test_ramps_move_by_up_to_one_cold_start() -> None:
    usual = [part * STANDIN.part_s + rise for part in range(3) for rise in STANDIN.rises_s]
    moved = np.array(
        [[r.begins_s for r in day.make_day(seed).ramps] for seed in range(60)]
    ) - np.array(usual)
    assert np.abs(moved).max() <= STANDIN.cold_start_s + STANDIN.ramp_s
    assert np.abs(moved).max() > 0.8 * STANDIN.cold_start_s


def test_earlier_days_have_other_seeds() -> None:
    assert len(set(day.history_seeds(12)) | {12}) == 7
    assert not set(day.history_seeds(12)) & set(day.history_seeds(13))


def test_offered_work_is_what_the_recipe_says(the_day: day.Day) -> None:
    times = np.arange(0.0, STANDIN.season_s, 0.5, dtype=np.float64)
    busy = busy_replicas(the_day, times)
    assert busy.max() == pytest.approx(max(STANDIN.levels), rel=0.5)
    total = busy.mean() * STANDIN.season_s
    capacity = STANDIN.law.slots * STANDIN.law.speed(STANDIN.law.slots)
    work = sum(
        STANDIN.law.lone_work_s(int(p), int(o))
        for p, o, at_s in zip(
            the_day.arrivals.prompt_tokens,
            the_day.arrivals.output_tokens,
            the_day.times_s,
            strict=True,
        )
        if -4 <= at_s < STANDIN.season_s
    )
    assert total == pytest.approx(work / capacity, rel=0.05)


def test_a_fleet_that_is_always_large_enough_is_never_late(the_day: day.Day) -> None:
    scores = score_ramps(the_day, sights([(-10, 20)]), 0.0)
    assert all(score.margin_s >= 0 for score in scores)
    assert all(score.ready_at_s == 0 for score in scores)


def test_a_fleet_that_comes_late_is_late_by_that_much(the_day: day.Day) -> None:
    first = the_day.ramps[0].begins_s
    early = score_ramps(the_day, sights([(-10, 2), (first - 5, 20)]), 0.0)[0]
    late = score_ramps(the_day, sights([(-10, 2), (first + 20, 20)]), 0.0)[0]
    assert early.ready_at_s == pytest.approx(first - 5, abs=0.6)
    assert early.margin_s > 0
    assert late.ready_at_s == pytest.approx(first + 20, abs=0.6)
    assert late.margin_s == pytest.approx(late.need_at_s - late.ready_at_s, abs=0.11)
    assert late.margin_s < 0


def test_a_fleet_that_shrinks_too_soon_is_late(the_day: day.Day) -> None:
    first = the_day.ramps[0].begins_s
    gone = score_ramps(the_day, sights([(-10, 20), (first - 3, 2), (first + 20, 20)]), 0.0)[0]
    assert gone.margin_s < 0


def result_of(the_day: day.Day, ttft_s: float, failed: int = 0) -> LoadResult:
    result = LoadResult.unsent(the_day.arrivals, 0.0, "")
    result.ttft_s[:] = ttft_s
    result.error[:failed] = ["timeout"] * failed  # type: ignore[index]
    return result


def test_requests_of_the_warm_up_do_not_count(the_day: day.Day) -> None:
    scored = score_day(STANDIN, result_of(the_day, 0.2), sights([(-10, 4)]), 0.0)
    assert scored.requests == int((the_day.times_s >= 0).sum())
    assert scored.slo_violation_ratio == 0
    assert scored.replica_seconds == pytest.approx(4 * STANDIN.season_s, rel=0.01)


def test_late_and_failed_requests_are_violations(the_day: day.Day) -> None:
    assert (
        score_day(STANDIN, result_of(the_day, 1.5), sights([(-10, 4)]), 0.0).slo_violation_ratio
        == 1
    )
    some = score_day(STANDIN, result_of(the_day, 0.2, failed=200), sights([(-10, 4)]), 0.0)
    warm = int((the_day.times_s < 0).sum())
    assert some.errors == 200 - warm
    assert some.slo_violation_ratio == pytest.approx((200 - warm) / some.requests)


def test_starting_and_stopping_replicas_cost_too() -> None:
    seen = [Sight(float(at_s), 3, 1, 1, 1) for at_s in range(-5, 200)]
    result = score_day(STANDIN, result_of(day.make_day(1), 0.2), seen, 0.0)
    assert result.replica_seconds == pytest.approx(3 * STANDIN.season_s)


@pytest.mark.parametrize(
    ("cpu", "lag_s", "starts", "said"),
    [
        pytest.param(90, 0.01, [12, 13], "CPU", id="the machine was busy"),
        pytest.param(50, 0.09, [12, 13], "send lag", id="the load was late"),
        pytest.param(50, 0.01, [12, 12, 30], "cold start", id="a start took too long"),
        pytest.param(float("nan"), 0.01, [12], "CPU", id="nobody measured"),
    ],
)
def test_a_run_that_measured_the_machine_is_void(
    cpu: float, lag_s: float, starts: list[float], said: str
) -> None:
    assert why_void(STANDIN, 50, 0.01, [12, 13]) == []
    problems = why_void(STANDIN, cpu, lag_s, starts)
    assert len(problems) == 1
    assert said in problems[0]


def test_engines_that_compute_here_make_the_machine_busy() -> None:
    script = vllm_script(STANDIN.law, cold_start_s=30.0)
    assert why_void(script, 100, 0.09, [25, 60]) == []
    assert "send lag" in why_void(script, 100, 0.11, [])[0]


@pytest.mark.parametrize("cold_start_s", [15.0, 56.0, 240.0])
def test_a_day_of_real_engines_needs_the_second_one_at_every_ramp(cold_start_s: float) -> None:
    script = vllm_script(Law(4, 0.3, 2000.0, 0.002), cold_start_s)
    played = day.make_day(7, script)
    assert len(played.ramps) == script.parts
    assert script.least_move == 1
    early = score_ramps(played, sights([(-10, 2)], script), 0.0)
    late = score_ramps(played, sights([(-10, 1)], script), 0.0)
    assert all(score.margin_s >= 0 for score in early)
    assert all(score.margin_s < 0 for score in late)
    busy = busy_replicas(played, np.arange(0.0, script.season_s, 1.0, dtype=np.float64))
    assert busy.max() < 2 * 1.3, "two engines carry the most of it"


def test_the_histogram_of_starts_holds_the_cold_start() -> None:
    below = dict(starts(12.0))
    assert (below["10000.0"], below["20000.0"], below["+Inf"]) == (0, 40, 40)
    assert dict(starts(45.0))["30000.0"] == 0


def test_the_opponent_is_the_cheapest_that_keeps_the_limit() -> None:
    history = [day.make_day(seed) for seed in day.history_seeds(12)[:2]]
    seen: list[float] = []
    best, tried = model.best_native(history, seen.append)
    assert len(tried) == len(model.grid(STANDIN)) == len(seen)
    good = [c for c in tried if c.violation_ratio <= model.MOST_VIOLATIONS]
    assert best in good
    assert best.replica_seconds == min(c.replica_seconds for c in good)


def test_history_ends_before_now(tmp_path: Path) -> None:
    past = model.past_of(day.make_day(5))
    assert past.arrivals[-1] == pytest.approx((day.make_day(5).times_s >= 0).sum(), abs=2)
    write_blocks(tmp_path / "data", [past, past], 1_700_000_000, 1_699_999_950, ("demo", "LLM"))
    (tmp_path / "data" / "wal").mkdir()  # promtool dumps no folder without one
    listed = subprocess.run(
        ["promtool", "tsdb", "dump", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    times = [int(line.rsplit(" ", 1)[1]) / 1000 for line in listed.splitlines() if line]
    assert max(times) <= 1_699_999_950
    assert min(times) == 1_700_000_000 - 2 * STANDIN.season_s + 1
    assert "ray_serve_num_router_requests_total" in listed


def test_a_group_ends_what_it_started_and_nothing_else(tmp_path: Path) -> None:
    other = ProcessGroup(tmp_path / "other")
    stays = other.start("sleep", ["sleep", "60"])
    group = ProcessGroup(tmp_path / "logs")
    # The grandchild leaves its parent's session, as Ray's daemons do.
    group.start("shell", ["sh", "-c", "setsid sleep 61 & echo started; wait"])
    while "started" not in group.log("shell"):
        pass
    assert len(group.members()) >= 2
    group.end(patience_s=0.5)
    assert group.members() == []
    assert stays.poll() is None
    other.end(patience_s=0.5)
    assert stays.poll() is not None


def test_free_ports_differ() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
