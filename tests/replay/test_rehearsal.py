"""A deployment's own past played again: the load that was seen, the cluster that was learned."""

import time
from dataclasses import replace

import numpy as np
import pytest

from controller.adapters.rehearser import Limits, Rehearser
from controller.core.capacity import CapacityLaw
from controller.core.choosing import CANDIDATES, DEFAULT, LAST_VALUE, Trial, choose
from controller.core.rehearsal import Rehearsal
from controller.core.stated import PlannerSettings
from controller.core.windows import Values
from controller.rehearsing import rehearse
from controller.replay.cache import Cache
from controller.replay.plant import PlantSettings
from controller.replay.rehearsal import Seen, seasons_played, stage_of, trials
from controller.replay.runs import play_ours
from controller.replay.scenario import Scenario
from controller.replay.trace import Trace, TraceError
from tests.core.loads import DAY, SHORT_DAY, daily
from tests.core.worlds import TARGET

SETTINGS = PlannerSettings(SHORT_DAY, 10, 5, 2.0, 0.95, 1, 24, 60)
LAW = CapacityLaw(16, 5.1, 0.06)
BIN = 19_700 * SHORT_DAY.season_bins + 123
SEASON = SHORT_DAY.season_bins


def job(seasons: float = 3, **changes: object) -> Rehearsal:
    made = Rehearsal(SETTINGS, daily(SHORT_DAY, seasons, seed=1), BIN, LAW, (), 60.0)
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found() -> tuple[Trial, ...]:
    return trials(job())


def test_every_candidate_is_tried_in_order_and_a_choice_can_be_made(
    found: tuple[Trial, ...],
) -> None:
    assert tuple(trial.candidate for trial in found) == CANDIDATES
    assert all(trial.gpu_hours > 0 and 0 < trial.violation_ratio < 0.2 for trial in found)
    assert choose(found, DEFAULT, 0.05) is not None


def test_a_dearer_late_request_costs_gpu_hours_and_is_rarer(found: tuple[Trial, ...]) -> None:
    usual, daring, careful = found[:3]
    assert daring.gpu_hours < usual.gpu_hours < careful.gpu_hours
    assert daring.violation_ratio >= careful.violation_ratio


def test_equal_jobs_give_equal_trials_in_any_process(found: tuple[Trial, ...]) -> None:
    worker = Rehearser(rehearse, Limits())
    worker.submit(TARGET, job(candidates=(LAST_VALUE,)))
    answers = worker.poll()
    until_s = time.monotonic() + 120
    while not answers and time.monotonic() < until_s:
        time.sleep(0.05)
        answers = worker.poll()
    worker.close()
    assert answers == [(TARGET, (found[CANDIDATES.index(LAST_VALUE)],))]


def test_each_bin_has_the_requests_that_were_seen_there_however_it_is_cut() -> None:
    rates = daily(SHORT_DAY, 1, seed=2)
    load = Seen(rates, 10.0, seed=3)
    whole = load.draw(0.0, 7200.0)
    counts = np.bincount((whole.arrival_s // 10).astype(int), minlength=len(rates))
    assert np.abs(counts - rates * 10).max() < 1
    part = load.draw(1234.5, 5000.0)
    np.testing.assert_array_equal(part.arrival_s, whole.between(1234.5, 5000.0).arrival_s)
    np.testing.assert_array_equal(part.output_tokens, whole.between(1234.5, 5000.0).output_tokens)


def test_the_cluster_carries_what_ours_does() -> None:
    settings = stage_of(job()).settings
    prefill_s, decode_s = 800 / settings.prefill_tokens_per_s, 250 * settings.tpot_s
    assert prefill_s == pytest.approx(0.2)
    assert prefill_s + decode_s == pytest.approx(LAW.work_s)
    assert settings.full_speed / LAW.work_s == pytest.approx(LAW.capacity_rps)
    seen = tuple(float(s) for s in range(50, 62))
    assert stage_of(job(starts_s=seen)).settings.cold_start.samples_s == seen
    assert stage_of(job(starts_s=seen[:3])).settings.cold_start.mean_s == 60.0


def test_what_is_scored_comes_after_what_is_learned_from() -> None:
    stage = stage_of(job(4))
    end_s = 4 * 7200.0
    assert stage.scored == (end_s - 2 * 7200, end_s)
    assert stage.trace.start_s == stage.scored[0] - 300
    assert len(stage.known) * 10 == stage.trace.start_s
    assert stage.epoch_s + end_s == BIN * 10


def test_gaps_are_bridged_and_not_scored() -> None:
    rates = daily(SHORT_DAY, 3, seed=1)
    rates[-100:-50] = np.nan
    trace = stage_of(job(rates=rates)).trace
    assert trace.gaps == ((20_600.0, 21_100.0),)
    inside = trace.source.draw(20_600, 21_100).arrival_s
    assert len(inside) > 100


@pytest.mark.parametrize("error", [None, TraceError("too many")], ids=["chosen", "failed"])
def test_a_backtest_may_choose_as_live_and_goes_on_where_that_fails(
    monkeypatch: pytest.MonkeyPatch, error: TraceError | None
) -> None:
    asked: list[Rehearsal] = []

    def cheapest_is_daring(job: Rehearsal) -> list[Trial]:
        asked.append(job)
        if error is not None:
            raise error
        return [Trial(each, 90.0 * each.price_ratio, 0.001) for each in job.candidates]

    monkeypatch.setattr("controller.replay.runs.trials", cheapest_is_daring)
    day_s, hour_s = 86_400.0, 3600.0
    load = Seen(daily(DAY, 3.2, seed=1), 10.0, seed=1)
    trace = Trace("drawn", load, 0.0, 3.2 * day_s)
    scored = (3 * day_s + hour_s, 3 * day_s + 2 * hour_s)
    scenario = Scenario("drawn", trace, scored, PlantSettings(cap=24), initial=8)
    usual = play_ours(scenario, Cache(None))
    assert asked == []
    choosing = play_ours(scenario, Cache(None), choosing=True)
    (job,) = asked
    assert len(job.rates) == pytest.approx(3 * DAY.season_bins, abs=400)
    assert choosing.run.params == {"choosing": 1.0}
    same = choosing.run == replace(usual.run, params=choosing.run.params)
    assert same is (error is not None)


@pytest.mark.parametrize(
    ("seasons", "mean_rps", "played"),
    [(3, 10.0, 1), (5, 10.0, 3), (14, 1.0, 7), (14, 20.0, 3), (14, 200.0, 1)],
    ids=["just enough", "all but two", "seven at most", "many requests", "very many"],
)
def test_how_many_seasons_are_scored(seasons: int, mean_rps: float, played: int) -> None:
    rates = np.full(seasons * DAY.season_bins, mean_rps)
    assert seasons_played(rates, DAY.season_s, DAY.season_bins) == played


@pytest.mark.parametrize(
    "rates",
    [np.ones(2 * 8640), np.full(14 * 8640, np.nan), np.full(14 * 8640, 500.0)],
    ids=["too short", "nothing known", "too many requests"],
)
def test_a_past_that_cannot_be_played_says_so(rates: Values) -> None:
    with pytest.raises(TraceError):
        seasons_played(rates, DAY.season_s, DAY.season_bins)


def test_a_past_without_requests_says_so() -> None:
    with pytest.raises(TraceError, match="nothing arrived"):
        trials(job(rates=np.zeros(3 * SEASON)))
