"""Known events: never lower, ready a lead before, not counted twice, given back after."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.core.events import KnownEvent, KnownEvents, raised
from controller.core.periods import Periods
from controller.core.planning import Planner
from controller.core.types import Decision, Forecast, Reason
from tests.core.worlds import START_S, World, planner

PERIODS = Periods.of_season(86_400, 10)
LEVELS = (0.1, 0.5, 0.9)
WARM = 60
BEGINS_S = START_S + 1500
ENDS_S = BEGINS_S + 600
LAUNCH = KnownEvent("launch", BEGINS_S, ENDS_S, multiple=3.0)


def forecast(*quantiles: float, at_s: float = 0.0, horizon_s: float = 0.0) -> Forecast:
    return Forecast(at_s, horizon_s, LEVELS, quantiles, "test")


def event(start_s: float, end_s: float, **load: float) -> KnownEvent:
    return KnownEvent("sale", start_s, end_s, **load)


USUAL = forecast(8, 10, 14)


@pytest.mark.parametrize(
    ("events", "made", "expected"),
    [
        pytest.param([], USUAL, (8, 10, 14), id="no event"),
        pytest.param([event(60, 90, multiple=3)], USUAL, (8, 10, 14), id="begins as it closes"),
        pytest.param([event(59, 90, multiple=3)], USUAL, (24, 30, 42), id="begins inside"),
        pytest.param([event(-50, 1, multiple=3)], USUAL, (24, 30, 42), id="ends inside"),
        pytest.param([event(-50, 0, multiple=3)], USUAL, (8, 10, 14), id="ended as it opened"),
        pytest.param([event(-9, 900, multiple=3)], USUAL, (24, 30, 42), id="goes on all along"),
        pytest.param(
            [event(100, 110, multiple=3)],
            forecast(8, 10, 14, horizon_s=70),
            (24, 30, 42),
            id="a short one in the window ahead",
        ),
        pytest.param(
            [event(0, 60, multiple=2), event(30, 90, multiple=3)],
            USUAL,
            (24, 30, 42),
            id="of two the larger",
        ),
        pytest.param(
            [event(0, 60, multiple=2)], forecast(1, 25, 30), (16, 25, 30), id="seen to be larger"
        ),
        pytest.param([event(0, 60, rate_rps=50)], USUAL, (40, 50, 70), id="a rate is spread alike"),
        pytest.param([event(0, 60, rate_rps=5)], USUAL, (8, 10, 14), id="a rate below the usual"),
        pytest.param(
            [event(0, 60, rate_rps=10), event(0, 60, multiple=3)],
            USUAL,
            (24, 30, 42),
            id="a rate and a larger multiple",
        ),
    ],
)
def test_a_forecast_has_what_the_events_bring(
    events: list[KnownEvent], made: Forecast, expected: tuple[float, ...]
) -> None:
    found = raised(made, events, USUAL, PERIODS.window_s)
    assert found.quantiles == pytest.approx(expected)
    assert (found is made) == (found.quantiles == made.quantiles)
    assert found.otherwise is (None if found is made else made)


@pytest.mark.parametrize(
    ("usual", "expected"),
    [
        pytest.param(forecast(0, 0, 2), (50, 50, 50), id="none usual, no spread"),
        pytest.param(forecast(0, 0.01, 1), (50 / 3, 50, 150), id="nearly none, a bounded one"),
    ],
)
def test_the_spread_of_nearly_nothing_says_nothing(
    usual: Forecast, expected: tuple[float, ...]
) -> None:
    found = raised(usual, [event(0, 60, rate_rps=50)], usual, PERIODS.window_s)
    assert found.quantiles == pytest.approx(expected)


rates = st.floats(0, 1e4)
quantiles = st.lists(rates, min_size=3, max_size=3).map(lambda made: tuple(sorted(made)))
loads = st.one_of(
    st.fixed_dictionaries({"multiple": st.floats(1, 1000)}),
    st.fixed_dictionaries({"rate_rps": st.floats(0.01, 1e6)}),
)
events_ = st.builds(
    lambda start_s, lasts_s, load: event(start_s, start_s + lasts_s, **load),
    st.floats(0, 3000),
    st.floats(1, 2000),
    loads,
)


@example([event(0, 61, multiple=1.0)], [(2e-309, 2e-309, 1.0), (0.0, 1.0, 1.0)], 0.0)
@given(st.lists(events_, max_size=4), st.lists(quantiles, min_size=1, max_size=30), st.floats(0, 9))
def test_an_event_never_lowers_a_forecast_nor_crosses_its_quantiles(
    events: list[KnownEvent], series: list[tuple[float, ...]], pace: float
) -> None:
    known = KnownEvents(PERIODS)
    known.events = tuple(events)
    for tick, seen in enumerate(series):
        at_s = tick * 10.0**pace / 1e5 + tick * 60
        pair = forecast(*seen, at_s=at_s), forecast(*seen, at_s=at_s, horizon_s=70)
        for before, after in zip(pair, known.apply(*pair), strict=True):
            assert all(map(float.__ge__, map(float, after.quantiles), before.quantiles))
            low, middle, high = after.quantiles
            assert low <= middle * (1 + 1e-9)
            assert middle <= high * (1 + 1e-9)


def level(known: KnownEvents, at_s: float, seen_rps: float) -> float:
    """The median forecast for now when so much is seen."""
    near = forecast(seen_rps, seen_rps, seen_rps, at_s=at_s)
    return known.apply(near, forecast(*near.quantiles, at_s=at_s, horizon_s=70))[0].at(0.5)


def knowing(*events: KnownEvent) -> KnownEvents:
    known = KnownEvents(PERIODS)
    known.events = events
    return known


def test_an_event_is_not_multiplied_twice() -> None:
    known = knowing(event(1000, 4000, multiple=3))
    assert [level(known, at_s, 10) for at_s in (0, 500, 930)] == [10, 10, 10]
    assert level(known, 980, 10) == 30
    assert [level(known, at_s, 30) for at_s in (1000, 1060, 2000, 3990)] == [30] * 4
    assert level(known, 4000, 30) == 30
    assert level(known, 4010, 10) == 10


def test_what_the_event_brought_yesterday_is_not_multiplied_today() -> None:
    """The model ahead knows of the event from past days: it says 30 where 10 is usual."""
    known = knowing(event(1000, 4000, multiple=3))
    for at_s in range(0, 1000, 10):
        near = forecast(10, 10, 10, at_s=at_s)
        opens_s = at_s + 70
        learned = 30.0 if opens_s + 60 > 1000 else 10.0
        ahead = forecast(learned, learned, learned, at_s=at_s, horizon_s=70)
        assert known.apply(near, ahead)[1].at(0.5) == pytest.approx(learned)


def test_a_slow_rise_within_the_event_keeps_its_room() -> None:
    known = knowing(event(1000, 4000, multiple=3))
    made = [level(known, at_s, 10) for at_s in range(0, 1000, 10)]
    made += [level(known, at_s, min(10 + at_s / 100, 30)) for at_s in range(1000, 3000, 10)]
    assert min(made[100:]) == pytest.approx(30)
    assert max(made) == pytest.approx(30)


def test_a_silence_of_a_minute_before_the_event_does_not_hide_it() -> None:
    known = knowing(event(1000, 4000, multiple=3))
    for at_s in range(0, 800, 10):
        level(known, at_s, 10)
    for at_s in range(800, 870, 10):
        level(known, at_s, 0)
    assert level(known, 990, 10) == pytest.approx(30, rel=0.12)


def test_a_long_event_follows_the_day() -> None:
    """Twelve hours at twice the usual, from noon's 20 to midnight's 4: not 40 until the end."""
    known = knowing(event(1000, 44_200, multiple=2))
    level(known, 0, 20)
    assert level(known, 990, 20) == 40
    made = 0.0
    for at_s in range(1000, 44_200, 60):
        made = level(known, at_s, 2 * (20 - 16 * (at_s - 1000) / 43_200))
    assert 8 <= made <= 22


def test_a_short_event_within_a_long_one_counts() -> None:
    """A week half as much again began at night with 2; the noon's push brings 3 times 20."""
    known = knowing(event(1000, 600_000, multiple=1.5), event(45_000, 46_000, multiple=3))
    level(known, 0, 2)
    for at_s in range(1000, 44_990, 60):
        level(known, at_s, 1.5 * (2 + 18 * at_s / 45_000))
    assert level(known, 44_990, 30) >= 0.9 * 60


def test_one_event_after_another_is_measured_by_what_was_before_both() -> None:
    known = knowing(event(1000, 2000, multiple=2), event(2000, 3000, multiple=3))
    level(known, 0, 10)
    for at_s in range(10, 1000, 10):
        level(known, at_s, 10)
    for at_s in range(1000, 1950, 10):
        level(known, at_s, 20)
    assert level(known, 1990, 20) == pytest.approx(30)


def test_an_event_that_runs_at_the_first_start_is_taken_as_seen() -> None:
    assert level(knowing(event(0, 4000, multiple=3)), 500, 30) == pytest.approx(30)


def test_the_usual_load_survives_a_restart() -> None:
    known = knowing(event(1000, 4000, multiple=3))
    level(known, 900, 10)
    level(known, 1500, 30)
    again = knowing(*known.events)
    again.restore(json.loads(json.dumps(known.state())))
    assert again.state() == known.state()
    assert level(again, 1510, 12) == level(known, 1510, 12) == pytest.approx(30, rel=0.02)


def lived(made: Planner, live: World, until_s: float) -> list[Decision]:
    """Steps until then; the launch triples the load."""
    decisions = []
    while live.at_s < until_s:
        live.rate_rps = 15.0 if BEGINS_S <= live.at_s + 10 < ENDS_S else 5.0
        decisions.append(live.step(made))
    return decisions


@pytest.mark.parametrize("load", [{"multiple": 3.0}, {"rate_rps": 15.0}], ids=["multiple", "rate"])
def test_replicas_are_there_when_it_begins_and_given_back_after_it(load: dict[str, Any]) -> None:
    live, made = World.with_replicas(3), planner()
    made.expect([KnownEvent("launch", BEGINS_S, ENDS_S, **load)])
    quiet = lived(made, live, BEGINS_S - 200)[-1].plan.wanted
    coming = lived(made, live, BEGINS_S - 60)
    asked = coming[-1].plan.wanted
    assert asked >= 15 * 2.1 / 8
    assert coming[-1].plan.reason is Reason.EVENT
    assert len([r for r in live.replicas if live.at_s - r[1] >= 0]) == asked
    at_start = lived(made, live, BEGINS_S)[-1]
    assert at_start.observation.replicas is not None
    assert at_start.observation.replicas.ready == asked
    running = lived(made, live, ENDS_S)
    assert min(d.plan.wanted for d in running) >= asked - 1
    assert lived(made, live, ENDS_S + 400)[-1].plan.wanted <= quiet


def test_without_the_event_nothing_is_asked_for_before_it() -> None:
    live, made = World.with_replicas(3), planner()
    quiet = lived(made, live, BEGINS_S - 200)[-1].plan.wanted
    assert max(d.plan.wanted for d in lived(made, live, BEGINS_S)) <= quiet


def test_a_restart_within_an_event_changes_nothing() -> None:
    live, made = World.with_replicas(3), planner()
    made.expect([LAUNCH])
    asked = lived(made, live, BEGINS_S - 10)[-1].plan.wanted
    before = lived(made, live, BEGINS_S + 200)[-1]
    again = planner()
    again.restore(json.loads(json.dumps(made.state())))
    again.expect([LAUNCH])
    assert again.state() == made.state()
    assert again.learned() == before.learned
    assert min(d.plan.wanted for d in lived(again, live, ENDS_S - 100)) >= asked - 1


def test_state_of_before_there_were_events_is_read() -> None:
    state = planner().state()
    del state["usual"]
    again = planner()
    again.restore(state)
    assert again.state()["usual"] is None


@settings(max_examples=10, deadline=None)
@given(st.floats(1.5, 6), st.floats(60, 900), st.sampled_from([30.0, 60.0, 120.0]))
def test_capacity_is_asked_for_a_lead_before_any_event(
    multiple: float, lasts_s: float, lead_s: float
) -> None:
    live, made = World.with_replicas(2, lead_s=lead_s), planner(lead_prior_s=lead_s)
    made.expect([KnownEvent("launch", BEGINS_S, BEGINS_S + lasts_s, multiple=multiple)])
    while live.at_s < BEGINS_S - lead_s:
        live.step(made)
    asked = made.state()["wanted"]
    assert asked >= min(16, 5 * multiple * 2.1 / 8)
    # Nothing comes: what was asked for is kept while the event runs, and given back after it.
    kept = []
    while live.at_s < BEGINS_S + lasts_s:
        kept.append(live.step(made).plan.wanted)
    assert min(kept) >= 0.85 * asked
    live.run(made, round(lead_s / 10) + 12)
    assert live.target < asked
