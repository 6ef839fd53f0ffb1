"""Scenarios: scaling, what is scored, what is known of the past, the fifteen windows."""

from pathlib import Path

import numpy as np
import pytest

from controller.replay.plant import ColdStart, PlantSettings
from controller.replay.scenario import (
    Scenario,
    fifteen_windows,
    full_replica_rps,
    scale,
    split,
)
from controller.replay.trace import DAY_S, Bins, Requests, TraceError
from tests.replay.conftest import plain, requests_at


def flat(bins: int, requests: float, *, missing: tuple[int, ...] = ()) -> Bins:
    kept = np.array([k for k in range(bins) if k not in missing])
    unknown = np.full(len(kept), np.nan)
    return Bins("flat", 600.0, kept * 600.0, np.full(len(kept), requests), unknown, unknown)


def test_a_full_replica_of_the_defaults_completes_1_64_a_second() -> None:
    assert full_replica_rps(PlantSettings(), 800, 250) == pytest.approx(1.64, abs=0.005)


def test_bins_are_scaled_to_a_mean_number_of_full_replicas() -> None:
    trace, mean = scale("a", flat(36, 1.0), 5.0, PlantSettings())
    rate_rps = len(trace.requests().arrival_s) / trace.end_s
    assert mean == 5.0
    assert rate_rps == pytest.approx(5 * 1.64, rel=0.05)


def test_recorded_lengths_make_fewer_requests_fill_a_replica() -> None:
    bins = flat(36, 1.0)
    longer = Bins("b", 600.0, bins.start_s, bins.requests, bins.requests * 800, bins.requests * 500)
    plenty, _ = scale("a", bins, 5.0, PlantSettings())
    few, _ = scale("b", longer, 5.0, PlantSettings())
    ratio = len(plenty.requests().arrival_s) / len(few.requests().arrival_s)
    assert ratio == pytest.approx((0.1333 + 10) / (0.1333 + 5), rel=0.05)


def test_requests_are_scaled_by_keeping_or_repeating_them() -> None:
    arrival_s = np.arange(0, 1000, 0.5, dtype=np.float64)
    tokens = np.full(len(arrival_s), 250, np.int32)
    requests = Requests(arrival_s, np.full(len(arrival_s), 800, np.int32), tokens)
    trace, _ = scale("r", requests, 3.0, PlantSettings())
    assert len(trace.requests().arrival_s) / 1000 == pytest.approx(3 * 1.64, rel=0.05)


def test_without_a_mean_the_rate_is_as_recorded_and_its_size_is_told() -> None:
    _, mean = scale("a", flat(36, 1640.0), None, PlantSettings())
    assert mean == pytest.approx(1640 / 600 / 1.64, rel=0.01)


def test_a_warm_up_that_leaves_nothing_is_refused() -> None:
    trace = requests_at([1.0], end_s=100)
    assert split(trace, 40) == (40.0, 100.0)
    with pytest.raises(TraceError, match="leaves nothing"):
        split(trace, 100)


def test_only_the_scored_span_counts_and_the_warm_up_is_played() -> None:
    trace = requests_at([10.0, 110.0, 120.0, 190.0], end_s=200)
    scenario = Scenario("s", trace, (100.0, 180.0), plain(), warm_up_s=50.0, initial=1)
    plant = scenario.plant()
    assert plant.start_s == 50
    score = plant.finish()
    assert score.requests == 2
    assert score.gpu_hours == pytest.approx(80 / 3600)


def test_with_its_requests_in_memory_a_run_is_the_same() -> None:
    trace, _ = scale("a", flat(36, 1.0), 3.0, PlantSettings())
    scenario = Scenario("s", trace, (9000.0, 12_000.0), PlantSettings(), warm_up_s=600.0)
    for past_s in (0.0, 3000.0):
        drawn, held = scenario.plant(past_s).finish(), scenario.held(5000.0).plant(past_s).finish()
        assert (drawn.requests, drawn.violations) == (held.requests, held.violations)
        assert drawn.histogram.tolist() == held.histogram.tolist()


def test_one_that_learns_plays_more_of_the_past_as_far_as_there_is_one() -> None:
    scenario = Scenario("s", requests_at([], end_s=200), (100.0, 180.0), plain(), warm_up_s=20.0)
    assert scenario.played().start_s == 80
    assert scenario.played(60.0).start_s == 40
    assert scenario.played(1e6).start_s == 0


def test_the_past_ends_where_the_play_begins_and_gaps_are_not_known() -> None:
    trace = requests_at([1.0, 2.0, 15.0, 41.0], end_s=200)
    gapped = type(trace)(trace.name, trace.source, 0.0, 200.0, ((20.0, 30.0),))
    scenario = Scenario("s", gapped, (60.0, 180.0), plain(), warm_up_s=20.0)
    rates, start_s = scenario.past_rates(10.0)
    assert start_s == 0
    assert rates.tolist() == pytest.approx([0.2, 0.1, np.nan, 0.0], nan_ok=True)


def test_a_trace_that_begins_with_the_play_has_no_past() -> None:
    scenario = Scenario("s", requests_at([1.0], end_s=200), (10.0, 180.0), plain())
    rates, _ = scenario.past_rates()
    assert len(rates) == 0


def test_another_lead_changes_nothing_else() -> None:
    settings = PlantSettings(cold_start=ColdStart(120, jitter=0.3), cap=9)
    scenario = Scenario("s", requests_at([], end_s=10), (0.0, 10.0), settings).with_lead(300)
    assert scenario.lead_s == 300
    assert (scenario.settings.cold_start.jitter, scenario.settings.cap) == (0.3, 9)


def test_the_fifteen_windows_are_those_of_the_findings(public_traces: Path) -> None:
    scenarios = fifteen_windows(public_traces)
    assert len(scenarios) == 45
    assert {s.lead_s for s in scenarios} == {45, 120, 300}
    assert {round(s.scored[1] - s.scored[0]) for s in scenarios} == {1.25 * DAY_S}
    first = scenarios[0]
    assert (first.settings.cap, first.initial, first.attainment) == (48, 8, 0.99)
    last = fifteen_windows(public_traces, (45.0,), last_only=True)
    assert [s.name for s in last] == [
        "azure_s0@5.5",
        "azure_s10@5.5",
        "nyc@12.5",
        "nasa@12.5",
        "m_mid@12.5",
        "m_small@7.5",
    ]


def test_missing_public_traces_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nasa_jul95\.csv\.gz"):
        fifteen_windows(tmp_path)
