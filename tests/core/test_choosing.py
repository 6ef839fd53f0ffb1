"""Which model and price are in force: a table of trials, and promises for any of them."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.choosing import (
    CANDIDATES,
    DEFAULT,
    LAST_VALUE,
    Candidate,
    Choice,
    Choosing,
    ModelName,
    Trial,
    Verdict,
    choose,
)
from controller.core.price import Price
from tests.core.loads import DAY, daily
from tests.core.worlds import START_S, World, planner

BUDGET = 0.01
CAREFUL = Candidate(ModelName.LOCATION_SCALE, 1.6)
SEASONAL = Candidate(ModelName.SEASONAL, 1.0)
SEASON_S, SEASON_BINS = 86_400.0, 8640
KNOWN = np.ones(3 * SEASON_BINS)


def trials(**of: tuple[float, float]) -> list[Trial]:
    """(GPU-hours, share late) by a candidate's short name."""
    names = {"usual": DEFAULT, "last": LAST_VALUE, "careful": CAREFUL, "seasonal": SEASONAL}
    return [Trial(names[name], *came_to) for name, came_to in of.items()]


@pytest.mark.parametrize(
    ("found", "in_force", "expected"),
    [
        (
            trials(usual=(100, 0.005), last=(110, 0.004), seasonal=(90, 0.009)),
            DEFAULT,
            (SEASONAL, Verdict.CHEAPEST),
        ),
        (
            trials(usual=(100, 0.005), last=(110, 0.004), seasonal=(90, 0.011)),
            DEFAULT,
            (DEFAULT, Verdict.CHEAPEST),
        ),
        (
            trials(usual=(100, 0.005), last=(99.1, 0.004)),
            DEFAULT,
            (DEFAULT, Verdict.KEPT),
        ),
        (
            trials(usual=(100, 0.005), last=(98.9, 0.004)),
            DEFAULT,
            (LAST_VALUE, Verdict.CHEAPEST),
        ),
        (
            trials(usual=(100, 0.0103), last=(130, 0.0099)),
            DEFAULT,
            (LAST_VALUE, Verdict.CHEAPEST),
        ),
        (
            trials(usual=(100, 0.0101), last=(130, 0.0099)),
            DEFAULT,
            (DEFAULT, Verdict.CHEAPEST),
        ),
        (
            trials(usual=(100, 0.02), last=(109.5, 0.0099), careful=(110, 0.009)),
            DEFAULT,
            (CAREFUL, Verdict.CHEAPEST),
        ),
        (
            trials(usual=(100, 0.03), last=(100.9, 0.02), careful=(100.5, 0.025)),
            DEFAULT,
            (LAST_VALUE, Verdict.FEWEST_LATE),
        ),
        (
            trials(usual=(100, 0.03), last=(99, 0.0201), careful=(97, 0.02)),
            LAST_VALUE,
            (CAREFUL, Verdict.FEWEST_LATE),
        ),
        (
            trials(usual=(100, 0.03), last=(102, 0.02), careful=(110, 0.015)),
            LAST_VALUE,
            (DEFAULT, Verdict.FEWEST_LATE),
        ),
        (
            trials(usual=(100, 0.02), last=(120, 0.02)),
            SEASONAL,
            (DEFAULT, Verdict.FEWEST_LATE),
        ),
    ],
    ids=[
        "the cheapest that keeps the budget",
        "one that does not keep it is no choice, however cheap",
        "a gain within noise changes nothing",
        "a gain above it does",
        "what breaks the budget is left at any price",
        "a budget broken by no more than a replay can tell is kept",
        "of those alike the usual model is taken",
        "none keeps it: the fewest late",
        "none keeps it: the cheapest of those about as rarely late",
        "none keeps it: no more than 1 % more is spent on it",
        "what was in force was not tried",
    ],
)
def test_the_choice(
    found: list[Trial], in_force: Candidate, expected: tuple[Candidate, Verdict]
) -> None:
    assert choose(found, in_force, BUDGET) == expected


@pytest.mark.parametrize(
    "found",
    [
        [],
        trials(usual=(100, 0.005)),
        trials(last=(100, 0.005)),
        trials(usual=(100, 0.005), last=(float("nan"), 0.004)),
        trials(usual=(100, 0.005), last=(0.0, 0.004)),
        trials(usual=(100, 0.005), last=(90, 1.5)),
    ],
    ids=[
        "none",
        "last value is missing",
        "the usual one is missing",
        "not a number",
        "no GPU time",
        "more late than came",
    ],
)
def test_nothing_is_chosen_on_trials_that_do_not_tell(found: list[Trial]) -> None:
    assert choose(found, SEASONAL, BUDGET) is None


numbers = st.floats(0.1, 1e6) | st.just(float("nan")) | st.just(float("inf"))
shares = st.floats(0, 0.05) | st.just(float("nan"))
some_trials = st.permutations(CANDIDATES).flatmap(
    lambda order: st.tuples(*(st.builds(Trial, st.just(c), numbers, shares) for c in order))
)


@given(some_trials, st.sampled_from(CANDIDATES))
def test_never_worse_than_last_value_by_more_than_two_percent(
    found: Sequence[Trial], in_force: Candidate
) -> None:
    came_to = {trial.candidate: trial for trial in found}
    chosen = choose(found, in_force, BUDGET)
    last, usual = came_to[LAST_VALUE], came_to[DEFAULT]
    if chosen is None:
        assert not np.isfinite([*last[1:], *usual[1:]]).all()
        return
    ours = came_to[chosen[0]]
    if last.violation_ratio <= BUDGET:
        assert ours.violation_ratio <= 1.02 * BUDGET
        assert ours.gpu_hours <= 1.02 * last.gpu_hours
    elif ours.violation_ratio > 1.02 * BUDGET:
        fewer_late = 1.1 * last.violation_ratio < ours.violation_ratio
        assert not (fewer_late and last.gpu_hours < usual.gpu_hours)
        assert ours.gpu_hours <= 1.01 * usual.gpu_hours


@given(some_trials, st.sampled_from(CANDIDATES))
def test_a_choice_made_again_on_the_same_trials_stays(
    found: Sequence[Trial], in_force: Candidate
) -> None:
    once = choose(found, in_force, BUDGET)
    if once is not None:
        again = choose(found, once[0], BUDGET)
        assert again is not None
        assert again[0] == once[0]


def test_a_replay_is_due_half_an_hour_after_the_start_and_then_once_a_day() -> None:
    made = Choosing(SEASON_S)
    asked = [at_s for at_s in range(0, 260_000, 100) if made.due(at_s, KNOWN, SEASON_BINS)]
    assert asked == [1800, 88_200, 174_600]


def test_nothing_is_replayed_while_the_history_is_short_or_full_of_gaps() -> None:
    made, gaps = Choosing(SEASON_S), KNOWN.copy()
    gaps[:SEASON_BINS] = np.nan
    times = range(0, 200_000, 100)
    assert not any(made.due(at_s, KNOWN[1 : 2 * SEASON_BINS], SEASON_BINS) for at_s in times)
    assert not any(Choosing(SEASON_S).due(at_s, gaps, SEASON_BINS) for at_s in times)


def test_a_failed_replay_keeps_what_is_in_force_says_so_and_is_tried_again_sooner() -> None:
    made = Choosing(SEASON_S)
    made.due(0, KNOWN, SEASON_BINS)
    assert made.due(1800, KNOWN, SEASON_BINS)
    made.take(trials(usual=(100, 0.005), last=(90, 0.005)), 1900, BUDGET)
    made.fail("the worker died", 2000)
    assert made.choice.candidate == LAST_VALUE
    assert (made.choice.verdict, made.choice.problem) == (Verdict.FAILED, "the worker died")
    assert made.choice.chosen_s == 1900
    assert not made.due(2000 + SEASON_S / 4 - 1, KNOWN, SEASON_BINS)
    assert made.due(2000 + SEASON_S / 4, KNOWN, SEASON_BINS)
    made.take([], 2100, BUDGET)
    assert made.choice.verdict is Verdict.FAILED
    made.take(trials(usual=(80, 0.005), last=(90, 0.005)), 2200, BUDGET)
    assert (made.choice.candidate, made.choice.problem) == (DEFAULT, "")


def test_a_clock_that_is_put_back_by_days_does_not_end_replays() -> None:
    made = Choosing(SEASON_S)
    made.due(10 * SEASON_S, KNOWN, SEASON_BINS)
    assert not made.due(SEASON_S, KNOWN, SEASON_BINS)
    assert made.due(SEASON_S + 1800, KNOWN, SEASON_BINS)


def test_a_replay_that_is_lost_in_a_restart_or_a_reload_comes_again() -> None:
    made, restarted = Choosing(SEASON_S), Choosing(SEASON_S)
    made.due(0, KNOWN, SEASON_BINS)
    assert made.due(1800, KNOWN, SEASON_BINS)
    restarted.restore(json.loads(json.dumps(made.state())))
    made.forget()
    for each in (made, restarted):
        assert not each.due(1900, KNOWN, SEASON_BINS)
        assert each.due(3700, KNOWN, SEASON_BINS)
    made.take(trials(usual=(100, 0.005), last=(90, 0.005)), 3800, BUDGET)
    made.forget()
    assert not made.due(3700 + SEASON_S - 1, KNOWN, SEASON_BINS)


def test_a_choice_survives_a_restart() -> None:
    before, after = Choosing(SEASON_S), Choosing(SEASON_S)
    before.due(0, KNOWN, SEASON_BINS)
    before.take(trials(usual=(100, 0.005), last=(90, 0.005)), 500, BUDGET)
    after.restore(json.loads(json.dumps(before.state())))
    assert after == before
    before.again()
    after.restore(json.loads(json.dumps(before.state())))
    assert after.due(501, KNOWN, SEASON_BINS)


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        {"model": "prophet"},
        {**Choice().plain(), "model": "prophet", "due_s": 1.0},
        {**Choice().plain(), "price_ratio": 1e9, "due_s": 1.0},
        {**Choice().plain(), "trials": 3, "due_s": 1.0},
    ],
    ids=["none", "empty", "cut off", "a model of another version", "a wild price", "no list"],
)
def test_what_cannot_be_continued_is_the_default(state: dict[str, object] | None) -> None:
    made = Choosing(SEASON_S)
    made.take(trials(usual=(100, 0.005), last=(90, 0.005)), 500, BUDGET)
    made.restore(state)
    assert made.choice.candidate == DEFAULT


def test_the_ratio_multiplies_the_price() -> None:
    usual, careful = Price(0.99, SEASON_S), Price(0.99, SEASON_S, ratio=1.6)
    assert careful.gpu_s(120, 1.64) == pytest.approx(1.6 * usual.gpu_s(120, 1.64))


def test_a_planner_goes_by_what_it_weighed_and_remembers_it() -> None:
    made, live = planner(), World.with_replicas(3)
    made.forecaster.backfill(daily(DAY, 4, seed=1), START_S - 4 * 86_400)
    due = None
    while due is None:
        live.run(made, 1)
        due = made.rehearsal_due()
    assert made.rehearsal_due() is None
    assert due.law.capacity_rps == made.learned().capacity_rps
    assert len(due.rates) == len(made.forecaster.history.rates)
    price = made.learned().price_gpu_s
    made.weigh(trials(usual=(100, 0.005), last=(90, 0.005), seasonal=(70, 0.004)))
    job = made.fit_due()
    assert job is not None
    assert job.model is ModelName.SEASONAL
    choice = made.learned().choice
    assert choice is not None
    assert choice.candidate == SEASONAL
    assert made.learned().price_gpu_s == price
    made.put_in_force(CAREFUL)
    assert made.learned().price_gpu_s == pytest.approx(1.6 * price)

    again = planner()
    again.restore(json.loads(json.dumps(made.state())))
    assert again.learned().choice == choice
    again.forecaster.backfill(daily(DAY, 4, seed=1), START_S - 4 * 86_400)
    fit = again.fit_due()
    assert fit is not None
    assert fit.model is ModelName.SEASONAL
