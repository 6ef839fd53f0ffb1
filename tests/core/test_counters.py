"""Increases of counters: per series, reset-safe, tiling time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.counters import CounterTracker
from controller.core.types import Sample


def tracker() -> CounterTracker:
    return CounterTracker(stale_s=20.0, patience_s=120.0)


def test_first_sample_is_a_baseline_not_an_increase() -> None:
    counter = tracker()
    assert counter.advance({"a": Sample(1000, 10)}) is None
    increase = counter.advance({"a": Sample(1030, 20)})
    assert increase is not None
    assert (increase.events, increase.start_s, increase.end_s) == (30, 10, 20)
    assert increase.complete


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param([1e6, 0.0], 0.0, id="S14 a restart from zero adds nothing and no spike"),
        pytest.param([1e6, 40.0], 40.0, id="S14 events since the restart count"),
        pytest.param([50.0, 50.0], 0.0, id="S5 a dead series stays flat and adds nothing"),
    ],
)
def test_restarts_and_dead_series(samples: list[float], expected: float) -> None:
    counter = tracker()
    counter.advance({"a": Sample(samples[0], 10), "b": Sample(0, 10)})
    increase = counter.advance({"a": Sample(samples[1], 20), "b": Sample(7, 20)})
    assert increase is not None
    assert increase.events == expected + 7


def test_a_series_that_appears_counts_from_zero() -> None:
    counter = tracker()
    counter.advance({"a": Sample(5, 10)})
    increase = counter.advance({"a": Sample(5, 20), "b": Sample(3, 20)})
    assert increase is not None
    assert increase.events == 3


def test_no_new_scrape_is_no_news() -> None:
    counter = tracker()
    counter.advance({"a": Sample(5, 10)})
    assert counter.advance({"a": Sample(5, 10)}) is None


def test_a_silent_series_makes_the_increase_incomplete_until_it_is_forgotten() -> None:
    counter = tracker()
    counter.advance({"a": Sample(5, 10), "b": Sample(5, 10)})
    complete = []
    for at_s in range(20, 160, 10):
        increase = counter.advance({"a": Sample(at_s, at_s)})
        assert increase is not None
        complete.append(increase.complete)
    assert complete[:2] == [True, True]
    assert complete[2:12] == [False] * 10
    assert complete[12:] == [True] * 2


def test_targets_scraped_in_turn_are_not_taken_for_silent() -> None:
    counter = tracker()
    counter.advance({"a": Sample(0, 10), "b": Sample(0, 12)})
    increase = counter.advance({"a": Sample(4, 20), "b": Sample(0, 12)})
    assert increase is not None
    assert (increase.events, increase.complete) == (4, True)


def test_a_series_back_after_a_gap_adds_only_its_share() -> None:
    counter = tracker()
    counter.advance({"a": Sample(0, 0), "b": Sample(0, 0)})
    for at_s in range(10, 100, 10):
        counter.advance({"a": Sample(0, at_s)})
    increase = counter.advance({"a": Sample(0, 100), "b": Sample(500, 100)})
    assert increase is not None
    assert increase.events == pytest.approx(50)


def test_a_gap_longer_than_patience_is_not_bridged() -> None:
    counter = tracker()
    counter.advance({"a": Sample(0, 10)})
    assert counter.advance({"a": Sample(900, 500)}) is None
    increase = counter.advance({"a": Sample(905, 510)})
    assert increase is not None
    assert increase.events == 5


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e300, -1.0])
def test_impossible_counts_never_reach_arithmetic(value: float) -> None:
    counter = tracker()
    counter.advance({"a": Sample(5, 10)})
    assert counter.advance({"a": Sample(value, 20)}) is None


@given(
    st.lists(
        st.tuples(st.floats(0.5, 15), st.integers(0, 1000), st.booleans()), min_size=1, max_size=40
    )
)
def test_increases_add_up_whatever_the_restarts(steps: list[tuple[float, int, bool]]) -> None:
    """Events are conserved and intervals tile time, restarts included, while scrapes go on."""
    counter = tracker()
    value, at_s = 17.0, 100.0
    counter.advance({"a": Sample(value, at_s)})
    expected = total = 0.0
    end_s = at_s
    for wait_s, events, restart in steps:
        at_s += wait_s
        value = events if restart and events <= value else value + events
        expected += events
        increase = counter.advance({"a": Sample(value, at_s)})
        assert increase is not None
        assert increase.start_s == end_s
        assert increase.events >= 0
        end_s = increase.end_s
        total += increase.events
    if not any(restart for _, _, restart in steps):
        assert total == expected
    assert total <= expected + 1e-6
