"""The simulated cluster by hand: times to first token, life of replicas, GPU time, metrics."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.replay import layout
from controller.replay.plant import ColdStart, MetricsPath, Plant, PlantSettings
from controller.replay.score import Score
from controller.replay.series import Recipe, draw
from controller.replay.trace import DAY_S, Bins, Trace
from tests.replay.conftest import plain, requests_at


def phases(plant: Plant) -> tuple[int, int, int]:
    view = plant.view()
    return view.starting, view.ready, view.draining


def test_first_token_comes_when_the_prefill_has_been_served_under_sharing() -> None:
    # v(2) = 1/2. The first prefill (1 s) is alone for 0.5 s, then shared for 1 s: done at 1.5 s.
    # The second has had 0.5 s by then; the first now decodes, so it is shared on: done at 2.5 s.
    trace = requests_at([0.0, 0.5], end_s=20, prompt_s=1, output_s=2)
    score = Plant(plain(slots=2, beta=1.0), trace).finish()
    assert score.ttft_mean_s == pytest.approx((1.5 + 2.0) / 2)
    # 6 s of work end at 6 s; the first has had 3 s at 5.5 s.
    assert score.response_mean_s == pytest.approx((5.5 + 5.5) / 2)


def test_a_wait_beyond_the_slo_is_a_violation_with_its_parts() -> None:
    trace = requests_at([0.0, 0.0, 0.0], end_s=60, prompt_s=0.5, output_s=1.5)
    score = Plant(plain(), trace).finish()
    # One slot: first tokens after 0.5, 2.5 and 4.5 s.
    assert (score.requests, score.violations, score.prefill_violations) == (3, 2, 0)
    assert score.log["wait_s"].tolist() == pytest.approx([2.0, 4.0])
    assert score.log["prefill_s"].tolist() == pytest.approx([0.5, 0.5])
    assert score.reports["violations"].tolist() == [2]


def test_a_prefill_beyond_the_slo_is_told_apart() -> None:
    score = Plant(plain(), requests_at([0.0], end_s=60, prompt_s=3)).finish()
    assert (score.violations, score.prefill_violations) == (1, 1)


def test_gpu_time_counts_starting_ready_and_draining() -> None:
    trace = requests_at([5.0], end_s=100, output_s=20)
    plant = Plant(plain(cold_start_s=10), trace, initial=1)
    plant.set_target(2)  # starting 0-10
    plant.advance(10)
    assert phases(plant) == (0, 2, 0)
    plant.set_target(0)  # the idle one goes at once, the other drains until 25
    assert phases(plant) == (0, 0, 1)
    plant.advance(30)
    assert phases(plant) == (0, 0, 0)
    score = plant.finish()
    assert (score.starting_gpu_s, score.ready_gpu_s, score.draining_gpu_s) == (10, 10, 15)
    assert score.gpu_hours == pytest.approx(35 / 3600)
    assert (score.starts, score.cancelled, score.drains, score.changes) == (1, 0, 2, 2)


def test_only_scored_spans_count() -> None:
    trace = requests_at([5.0, 15.0, 25.0], end_s=100)
    score = Plant(plain(), trace, scored=[(10, 20), (50, 60)]).finish()
    assert score.requests == 1
    assert score.ready_gpu_s == 20


def test_shrinking_cancels_the_youngest_start_first_then_drains_the_least_loaded() -> None:
    plant = Plant(plain(slots=4), requests_at([1.0, 1.0, 1.0], end_s=100, output_s=50), initial=2)
    plant.advance(2)  # two requests on one replica, one on the other
    plant.set_target(3)
    plant.advance(4)
    plant.set_target(5)
    assert plant.view().starting_since_s.tolist() == [2, 4, 4]
    plant.set_target(3)
    assert plant.view().starting_since_s.tolist() == [2]
    plant.set_target(1)
    assert phases(plant) == (0, 1, 1)
    replicas = plant.cluster.replicas
    draining = replicas[replicas["phase"] == layout.DRAINING]
    assert draining["running"].tolist() == [1]


def test_a_draining_replica_takes_no_new_request() -> None:
    plant = Plant(plain(slots=4), requests_at([1.0, 3.0], end_s=100, output_s=10), initial=1)
    plant.advance(2)
    plant.set_target(0)
    plant.advance(4)
    assert plant.cluster.state[0]["running"] == 1
    score = plant.finish()
    assert (score.completed, score.unserved, score.violations) == (1, 1, 1)


def test_a_killed_replica_fails_its_requests_once() -> None:
    settings_ = replace(plain(slots=2), drain_timeout_s=5.0)
    # Had its first token; is still in its prefill.
    trace = requests_at([0.0, 8.0], end_s=100, prompt_s=4, output_s=50)
    plant = Plant(settings_, trace, initial=1)
    plant.advance(10)
    plant.set_target(0)
    plant.advance(14.9)
    assert phases(plant) == (0, 0, 1)
    plant.advance(15)
    assert phases(plant) == (0, 0, 0)
    score = plant.finish()
    # The first was late already (prefill 4 s), so it is one violation, not two.
    assert (score.failed, score.violations, score.prefill_violations) == (2, 2, 2)


def test_the_cap_may_count_draining_replicas() -> None:
    trace = requests_at([0.0], end_s=100, output_s=30)
    for counted, starting in ((True, 0), (False, 1)):
        plant = Plant(replace(plain(cap=1), cap_counts_draining=counted), trace, initial=1)
        plant.advance(1)
        plant.set_target(0)
        plant.set_target(1)
        assert phases(plant) == (starting, 0, 1)
        plant.advance(31)  # the drained one has left its GPU
        assert phases(plant)[0] == 1 - starting
        assert plant.view().target == 1


def test_queued_requests_go_to_a_new_replica_in_order_of_arrival() -> None:
    plant = Plant(plain(slots=1), requests_at([0.0, 1.0, 2.0], end_s=60), initial=0)
    plant.set_target(1)
    score = plant.finish()
    # Ready at 10 s: waits of 10, 10 and 10 s.
    assert score.log["arrival_s"].tolist() == [0, 1, 2]
    assert score.log["wait_s"].tolist() == [10, 10, 10]


def test_metrics_are_as_old_as_push_scrape_and_lag_make_them() -> None:
    metrics = MetricsPath(push_s=10, push_offset_s=5, scrape_s=4, lag_s=1)
    trace = requests_at([k + 0.5 for k in range(59)], end_s=60, output_s=0.8)
    plant = Plant(replace(plain(), metrics=metrics), trace)
    plant.advance(8)
    assert math.isnan(plant.view().scraped_at_s)
    plant.advance(9)  # scrape of 8 s, which finds the push of 5 s
    view = plant.view()
    assert (view.at_s, view.scraped_at_s, view.arrivals) == (9, 8, 5)
    plant.advance(18)  # scrape of 16 s, push of 15 s; the scrape of 20 s is not there yet
    view = plant.view()
    assert (view.scraped_at_s, view.arrivals, view.completions) == (16, 15, 14)
    assert (view.ongoing, view.queued, view.first_tokens) == (1, 0, 15)


def busy_week(days: float = 1.0) -> Trace:
    starts_s = np.arange(0, days * DAY_S, 600, dtype=np.float64)
    level = 3000 + 2000 * np.sin(starts_s / DAY_S * 2 * math.pi)
    unknown = np.full(len(starts_s), math.nan)
    return draw(Bins("wave", 600.0, starts_s, level, unknown, unknown), Recipe(spikes=4))


def swing(plant: Plant, step_s: float) -> Score:
    """A target that moves every ten minutes."""
    rng = np.random.default_rng(1)
    at_s = 0.0
    while at_s < plant.end_s:
        if at_s % 600 == 0:
            plant.set_target(int(rng.integers(3, 12)))
        at_s += step_s
        plant.advance(at_s)
    return plant.finish()


def comparable(score: Score) -> dict[str, object]:
    values = {name: getattr(score, name) for name in Score.__slots__}
    return {k: v.tobytes() if isinstance(v, np.ndarray) else v for k, v in values.items()}


def test_equal_seeds_give_equal_runs_and_other_seeds_do_not() -> None:
    runs = [swing(Plant(PlantSettings(), busy_week(), seed=seed), 600) for seed in (1, 1, 2)]
    first, again, other = (comparable(run) for run in runs)
    assert first == again
    assert first["ttft_mean_s"] != other["ttft_mean_s"]


def test_how_often_one_looks_changes_nothing() -> None:
    seldom, often = (swing(Plant(PlantSettings(), busy_week()), step_s) for step_s in (600, 0.5))
    assert comparable(seldom) == comparable(often)


def test_reports_add_up_to_the_score() -> None:
    score = swing(Plant(PlantSettings(), busy_week()), 600)
    assert score.reports["arrivals"].sum() == score.requests
    assert score.reports["violations"].sum() + score.unserved == score.violations
    assert score.histogram.sum() + score.unserved == score.requests
    assert len(score.log) == score.violations - score.unserved
    late = score.log["wait_s"] + score.log["prefill_s"] > 2
    assert (late | np.isnan(score.log["prefill_s"])).sum() >= len(score.log) - score.failed


moves = st.lists(st.tuples(st.floats(0.1, 40), st.integers(-2, 9)), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(
    moves=moves,
    rate_rps=st.floats(0.05, 6),
    slots=st.integers(1, 5),
    beta=st.sampled_from([0.0, 0.1, 1.0]),
    counted=st.booleans(),
    timeout_s=st.sampled_from([0.0, 3.0, 60.0]),
    seed=st.integers(0, 9),
)
def test_no_request_is_lost_and_the_cap_holds(
    moves: list[tuple[float, int]],
    rate_rps: float,
    slots: int,
    beta: float,
    counted: bool,
    timeout_s: float,
    seed: int,
) -> None:
    cap = 6
    rng = np.random.default_rng(seed)
    end_s = sum(pause for pause, _ in moves)
    arrivals = np.sort(rng.uniform(0, end_s, rng.poisson(rate_rps * end_s)))
    plant = Plant(
        replace(
            plain(slots=slots, beta=beta, cap=cap),
            cap_counts_draining=counted,
            drain_timeout_s=timeout_s,
            cold_start=ColdStart(15, jitter=0.5),
        ),
        requests_at(arrivals.tolist(), end_s=end_s, prompt_s=0.3, output_s=2.0),
        seed=seed,
    )
    for pause_s, target in moves:
        plant.set_target(target)
        starting, ready, draining = phases(plant)
        assert starting + ready + draining * counted <= cap
        assert starting + ready <= max(target, 0)
        state = plant.cluster.state[0]
        waiting = state["tail"] - state["head"]
        ended = state["completions"] + state["failures"]
        assert state["arrivals"] == waiting + state["running"] + ended
        assert state["running"] == plant.cluster.replicas["running"].sum()
        plant.advance(plant.now_s + pause_s)
    score = plant.finish()
    assert score.requests == len(arrivals)
    assert score.completed + score.failed + score.unserved == score.requests
    assert score.failed + score.unserved <= score.violations <= score.requests
