"""Rings in a rule's memory: windows, and rates of a scraped counter."""

import numpy as np
import pytest

from controller.replay.rivals.daily import days_length, note_count, same_time
from controller.replay.rivals.rings import greatest, least, mean, remember, ring_length
from controller.replay.rivals.scrapes import note_arrivals, rate
from tests.replay.rivals.views import a_view

BASE, SIZE = 3, 8


@pytest.mark.parametrize("window_s", [0.0, 10.0, 25.0, 1000.0])
def test_windows_hold_what_is_younger_than_they_are_long(window_s: float) -> None:
    memory = np.zeros(BASE + ring_length(SIZE))
    rng = np.random.default_rng(0)
    seen = []
    for k in range(40):
        seen.append((10.0 * k, float(rng.integers(0, 100))))
        remember(memory, BASE, SIZE, *seen[-1])
        inside = [v for t, v in seen[-SIZE:] if t > 10.0 * k - window_s or t == 10.0 * k]
        assert mean(memory, BASE, SIZE, window_s) == pytest.approx(np.mean(inside))
        assert least(memory, BASE, SIZE, window_s) == min(inside)
        assert greatest(memory, BASE, SIZE, window_s) == max(inside)
    assert memory[:BASE].tolist() == [0] * BASE


def test_a_rate_is_the_counters_rise_over_whole_pushes() -> None:
    memory = np.zeros(BASE + ring_length(SIZE))
    rates = []
    for at_s in range(0, 40, 5):
        # 3 requests a second, pushed every 10 s: the counter stands still at every other scrape.
        view = a_view(float(at_s), 1, arrivals=30.0 * (at_s // 10))
        note_arrivals(view, memory, BASE, SIZE)
        note_arrivals(view, memory, BASE, SIZE)
        rates.append(rate(memory, BASE, SIZE, 20.0))
    assert np.isnan(rates[:2]).all()
    assert rates[2:] == [3.0, 2.0, 3.0, 3.0, 3.0, 3.0]


def test_the_same_time_of_previous_days_is_their_mean_or_their_peak() -> None:
    span_s, spans = 3600.0, 96
    memory = np.zeros(BASE + days_length(spans))
    count, closed = 0.0, 0
    for minute in range(30, 3 * 24 * 60):
        at_s = 60.0 * minute
        closed += note_count(memory, BASE, spans, span_s, at_s, count)
        day, hour = divmod(minute // 60, 24)
        count += 60.0 * (day + 1) * hour
    assert closed == 3 * 24 - 2  # the last still fills; the first began half an hour late
    number = 3 * 24 + 10  # 10:00 on the fourth day: 10, 20 and 30 requests/s before
    for days, peak, expected in [(1, False, 30), (2, False, 25), (14, False, 20), (3, True, 30)]:
        found = same_time(memory, BASE, spans, span_s, number, days, peak)
        assert found == pytest.approx(expected)
    assert same_time(memory, BASE, spans, span_s, number + 4 * 24, 1, False) == 0
    # 23:00 on the second day: nothing is known before the recording began.
    assert same_time(memory, BASE, spans, span_s, 24 + 23, 14, False) == pytest.approx(23)
