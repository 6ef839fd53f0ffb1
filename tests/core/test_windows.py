"""Counts spread over equal bins, with gaps that stay gaps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.periods import Periods
from controller.core.windows import History, Tail

DAY = Periods.of_season(86_400, 10)


def test_a_day_has_bins_of_ten_seconds_and_windows_up_to_an_hour() -> None:
    assert (DAY.bin_s, DAY.season_bins, DAY.window_s) == (10, 8640, 60)
    assert DAY.recent_bins == (1, 3, 12, 30, 60, 180, 360)
    assert DAY.refit_s == 6 * 3600
    assert DAY.memory_bins == 14 * 8640


@pytest.mark.parametrize(
    ("season_s", "tick_s", "bins"),
    [(180, 1, 180), (86_400, 60, 1440), (604_800, 10, 8640), (86_400, 7, 8640), (90, 2, 45)],
)
def test_bins_divide_every_season(season_s: float, tick_s: float, bins: int) -> None:
    periods = Periods.of_season(season_s, tick_s)
    assert periods.season_bins == bins
    assert periods.bin_s * bins == pytest.approx(season_s)
    assert periods.bin_s >= min(tick_s, 10) * 0.99


def test_counts_are_spread_over_the_bins_they_cover() -> None:
    history = History(DAY)
    assert list(history.add(5, 100, 104)) == []
    assert list(history.add(5, 104, 112)) == [0.875]
    history.add(8, 112, 120)
    assert history.rates[1] == pytest.approx(0.925)


def test_gaps_stay_gaps() -> None:
    history = History(DAY)
    history.add(10, 100, 110)
    history.add(10, 150, 160)
    assert np.isnan(history.rates).tolist() == [False, True, True, True, True, False]


def test_a_bin_known_for_less_than_half_is_not_known() -> None:
    history = History(DAY)
    history.add(3, 106, 110)
    assert np.isnan(history.rates).tolist() == [True]


def test_what_was_loaded_is_not_counted_twice() -> None:
    history = History(DAY)
    history.load([1.0, 2.0], 100)
    assert list(history.add(100, 100, 120)) == []
    history.add(30, 120, 130)
    assert history.rates.tolist() == [1, 2, 3]


def test_a_gap_longer_than_memory_begins_anew() -> None:
    short = Periods.of_season(60, 10)
    history = History(short)
    history.add(10, 0, 10)
    history.add(10, 100_000, 100_010)
    history.add(20, 100_010, 100_020)
    assert history.end_s == 100_020
    assert len(history.rates) <= short.memory_bins


def test_memory_is_bounded() -> None:
    short = Periods.of_season(60, 10)
    history = History(short)
    for step in range(1000):
        history.add(step, step * 10, step * 10 + 10)
    assert len(history.rates) == short.memory_bins
    assert history.rates[-1] == 99.9
    assert history.end_bin == 1000


@given(st.lists(st.tuples(st.floats(0.1, 50), st.floats(0, 100)), min_size=1, max_size=50))
def test_events_are_conserved(steps: list[tuple[float, float]]) -> None:
    history = History(DAY)
    at_s, total = 1000.0, 0.0
    for length_s, events in steps:
        history.add(events, at_s, at_s + length_s)
        at_s += length_s
        total += events
    closed = float(np.nansum(history.rates) * DAY.bin_s)
    slack = max((events / length_s for length_s, events in steps), default=0) * DAY.bin_s
    assert closed <= total + slack + 1e-6
    assert closed >= total - 2 * slack - max(events for _, events in steps) - 1e-6


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 50))
def test_a_tail_is_the_end_of_all_that_was_added(sizes: list[int], limit: int) -> None:
    tail, everything = Tail(limit), np.empty(0)
    for size in sizes:
        fresh = np.arange(len(everything), len(everything) + size, dtype=float)
        everything = np.concatenate([everything, fresh])
        tail.extend(fresh.reshape(-1, 1))
    assert tail.view[:, 0].tolist() == everything[-limit:].tolist()
    assert tail.first + len(tail) == len(everything)
