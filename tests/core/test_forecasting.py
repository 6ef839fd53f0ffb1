"""Features, models, calibration and the forecaster that holds them together."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.forecasting import fitting, last_value, location_scale, seasons
from controller.core.forecasting.calibration import Calibration
from controller.core.forecasting.features import Frame, Rows
from controller.core.forecasting.forecaster import PROBABILITIES, Forecaster
from controller.core.types import Demand
from controller.core.windows import Values
from tests.core.loads import DAY, SHORT_DAY, daily

HORIZON = 6


def frame_of(rates: Values, reach: int = 4) -> Frame:
    frame = Frame(SHORT_DAY, 0.05, reach, 0)
    frame.extend(rates)
    return frame


def every_feature(frame: Frame, rows: Rows) -> Values:
    return frame.features(rows, HORIZON)


def test_features_are_the_same_bin_by_bin_as_at_once() -> None:
    rates = daily(SHORT_DAY, 3, seed=1)
    rates[500:560] = np.nan
    whole = frame_of(rates)
    grown = frame_of(rates[:1400])
    for rate in rates[1400:]:
        grown.extend(np.array([rate]))
    rows = np.arange(1400, len(rates))
    np.testing.assert_allclose(every_feature(whole, rows), every_feature(grown, rows), atol=1e-9)


def test_features_never_see_the_future() -> None:
    rates = daily(SHORT_DAY, 3, seed=2)
    changed = rates.copy()
    changed[1800:] = 99.0
    rows = np.arange(1000, 1800)
    np.testing.assert_array_equal(
        every_feature(frame_of(rates), rows), every_feature(frame_of(changed), rows)
    )


@given(
    st.lists(st.one_of(st.floats(0, 1e4), st.just(float("nan"))), min_size=1, max_size=60),
    st.integers(0, 1500),
)
def test_the_last_features_are_those_of_the_last_row(rates: list[float], before: int) -> None:
    frame = frame_of(np.append(daily(SHORT_DAY, 3, seed=6)[:before], rates))
    horizons = np.array([2, HORIZON, 700])
    whole = frame.features(np.full(3, len(frame) - 1), horizons)
    np.testing.assert_allclose(frame.last_features(horizons.tolist()), whole, atol=1e-9)


@given(
    st.lists(st.one_of(st.floats(-9, 9), st.just(float("nan"))), min_size=1, max_size=40),
    st.integers(-30, 30),
    st.integers(1, 20),
    st.integers(1, 20),
)
def test_the_largest_level_is_that_of_each_window(
    levels: list[float], first: int, count: int, width: int
) -> None:
    found = seasons.largest(np.array(levels), first, count, width)
    for place, value in enumerate(found.tolist()):
        start = max(first + place, 0)
        inside = [x for x in levels[start : max(first + place + width, 0)] if x == x]
        np.testing.assert_equal(value, max(inside, default=np.nan))


def usual_at(frame: Frame, row: int, reach: int) -> list[float]:
    """A row of the season table, each column as it is defined, one bin after the other."""
    wide, widest, narrow = (SHORT_DAY.fraction_bins(1 / parts) for parts in (144, 48, 288))

    def known(values: Values, first: int, last: int) -> list[float]:
        return [x for x in values[max(first, 0) : max(last, 0)].tolist() if x == x]

    def mean(back: int, bins: int) -> float:
        at = row - back * SHORT_DAY.season_bins
        found = known(frame.rates, at - bins // 2, at + (bins + 1) // 2)
        return sum(found) / len(found) if found else math.nan

    def peak(back: int) -> float:
        first = row - back * SHORT_DAY.season_bins - reach
        return max(
            known(frame.levels, first, first + 2 * reach + SHORT_DAY.window_bins), default=math.nan
        )

    def weighted(values: list[float]) -> float:
        each = [(0.7**place, x) for place, x in enumerate(values) if x == x]
        weight = sum(share for share, _ in each)
        return sum(share * x for share, x in each) / weight if each else math.nan

    days = range(1, 8)
    peaks = [peak(back) for back in days]
    known_peaks = [x for x in peaks if x == x]
    usual = weighted([mean(back, wide) for back in days])
    weekly = mean(7, wide)
    rates = [usual, weighted([mean(back, widest) for back in days]), mean(1, narrow)]
    rates.append(weekly if weekly == weekly else usual)
    highest, lowest = max(known_peaks, default=math.nan), min(known_peaks, default=math.nan)
    return [*np.log(np.array(rates) + frame.floor_rps), highest, weighted(peaks), lowest]


@settings(max_examples=20)
@given(st.floats(0.2, 8.5), st.integers(0, 6000), st.integers(0, 2000), st.integers(1, 40))
def test_the_season_table_is_what_its_columns_say(
    days: float, gap: int, missing: int, reach: int
) -> None:
    rates = daily(SHORT_DAY, days, seed=7)
    rates[gap : gap + missing] = np.nan
    frame = frame_of(rates, reach=reach)
    rows = np.arange(0, len(rates) + 100, 97)
    expected = np.array([usual_at(frame, row, reach) for row in rows.tolist()])
    np.testing.assert_allclose(frame.seasons.at(rows), expected, atol=1e-9)


def test_the_target_is_the_largest_block_mean_of_its_window() -> None:
    rates = np.arange(40, dtype=float)
    rates[25] = 100
    frame = frame_of(rates)
    # The window of row 17 opens 6 bins later: bins 24 to 29, and 25-27 has the largest mean.
    assert frame.peak_rps(np.array([17]), HORIZON)[0] == pytest.approx((100 + 26 + 27) / 3)
    assert np.isnan(frame.peak_rps(np.array([30]), HORIZON)[0])


@given(st.lists(st.one_of(st.floats(0, 1e4), st.just(float("nan"))), min_size=7, max_size=40))
def test_the_last_peak_is_that_of_the_last_window(rates: list[float]) -> None:
    frame = frame_of(np.array(rates))
    opened = np.array([len(rates) - 1 - SHORT_DAY.window_bins])
    np.testing.assert_equal(frame.last_peak_rps(), frame.peak_rps(opened, 0)[0])
    assert np.isnan(frame_of(np.array(rates[:6])).last_peak_rps())


def test_a_peak_of_an_earlier_season_within_reach_is_seen() -> None:
    rates = np.full(2 * 720, 5.0)
    rates[300:312] = 50.0
    frame = frame_of(rates, reach=10)
    highest = frame.seasons.profiles
    seen = np.exp(frame.seasons.at(np.arange(1000, 1060))[:, highest])
    # One season after 300 is 1020; a window opening up to 10 + 6 bins before it reaches it.
    assert seen[0] == pytest.approx(5.05, abs=0.1)
    assert seen[20] == pytest.approx(50.05, abs=0.1)
    assert seen[12] == pytest.approx(50.05, abs=0.1)


def test_quantiles_cover_what_they_say_on_the_days_after_the_fit() -> None:
    covered = []
    for seed in (3, 13, 23):
        rates = daily(SHORT_DAY, 16, seed)
        trained = 10 * 720
        model = location_scale.fit(frame_of(rates[:trained]), [HORIZON], PROBABILITIES)[0]
        assert model is not None
        assert model.share.shape == (1, 2)
        frame = frame_of(rates)
        rows = np.arange(trained, len(rates) - 20)
        quantiles = model.quantiles(frame, rows)
        assert (np.diff(quantiles, axis=1) >= 0).all()
        covered.append(frame.peak_rps(rows, HORIZON)[:, None] <= quantiles)
    share = np.concatenate(covered).mean(axis=0)
    for q in (0.5, 0.9, 0.95, 0.99):
        column = int(np.argmin(np.abs(PROBABILITIES - q)))
        assert share[column] == pytest.approx(q, abs=0.02)


def pinball(peaks: Values, quantiles: Values) -> float:
    above = np.maximum(peaks[:, None] - quantiles, 0) * PROBABILITIES
    below = np.maximum(quantiles - peaks[:, None], 0) * (1 - PROBABILITIES)
    return float((above + below).mean())


def test_the_model_beats_the_last_value() -> None:
    rates = daily(SHORT_DAY, 14, seed=4)
    trained = 10 * 720
    history, frame = frame_of(rates[:trained]), frame_of(rates)
    model = location_scale.fit(history, [HORIZON], PROBABILITIES)[0]
    cheap = last_value.fit(history, HORIZON, PROBABILITIES)
    assert model is not None
    rows = np.arange(trained, len(rates) - 20)
    peaks = frame.peak_rps(rows, HORIZON)
    ours, theirs = (pinball(peaks, m.quantiles(frame, rows)) for m in (model, cheap))
    assert ours < 0.95 * theirs


def test_seasonal_features_wait_for_a_whole_season_of_training_rows() -> None:
    rates = daily(SHORT_DAY, 3, seed=5)
    for bins, pairs in ((720, 1), (800, 1), (3 * 720, 2)):
        model = location_scale.fit(frame_of(rates[:bins]), [HORIZON], PROBABILITIES)[0]
        assert model is not None
        assert model.share.shape == (1, pairs)


def test_too_little_history_gives_the_cheap_model() -> None:
    rates = daily(SHORT_DAY, 1, seed=6)[:100]
    job = fitting.FitJob(SHORT_DAY, rates, 100, (1, HORIZON), 4, PROBABILITIES)
    assert [model.name for model in fitting.run(job).models] == ["last_value", "last_value"]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.one_of(st.floats(0, 1e4), st.just(float("nan")), st.just(0.0)),
        min_size=1,
        max_size=300,
    )
)
def test_any_history_gives_finite_ordered_quantiles_or_none(rates: list[float]) -> None:
    values = np.array(rates)
    job = fitting.FitJob(SHORT_DAY, values, len(values), (1, HORIZON), 4, PROBABILITIES)
    forecaster = Forecaster(SHORT_DAY, (10.0, 60.0), 40.0)
    forecaster.backfill(values, 0.0)
    forecaster.adopt(fitting.run(job))
    forecast = forecaster.forecast(forecaster.history.end_s, 60.0)
    if forecast is None:
        assert not np.isfinite(values[-6:]).any()
        return
    quantiles = np.array(forecast.quantiles)
    assert np.isfinite(quantiles).all()
    assert (np.diff(quantiles) >= 0).all()
    assert (quantiles >= 0).all()


def test_calibration_makes_biased_quantiles_cover() -> None:
    rng = np.random.default_rng(7)
    calibration = Calibration(SHORT_DAY, PROBABILITIES, delay_bins=7)
    honest = np.exp(np.array([last_value.prior(6, PROBABILITIES).shape])[0])
    timid = 10 * honest**0.4
    high = int(np.argmin(np.abs(PROBABILITIES - 0.95)))
    covered = []
    for _ in range(6000):
        issued = calibration.correct(timid)
        peak = 10 * float(np.exp(0.25 * rng.standard_normal()))
        covered.append(peak <= issued[high])
        calibration.settle(issued, peak)
    assert np.mean(covered[:150]) < 0.9
    assert np.mean(covered[-3000:]) == pytest.approx(0.95, abs=0.015)
    assert calibration.coverage[0.95] == pytest.approx(0.95, abs=0.03)


def test_calibration_is_lost_when_everything_lies_above_and_found_again() -> None:
    calibration = Calibration(DAY, PROBABILITIES, delay_bins=2)
    quantiles = np.linspace(8, 14, len(PROBABILITIES))

    def bins_until(peak: float, holds: bool) -> int:
        for count in range(1, 500):
            calibration.settle(quantiles, peak)
            if calibration.holds is holds:
                return count
        raise AssertionError("never")

    assert bins_until(10.0, True) == 1
    assert 40 <= bins_until(30.0, False) <= 60
    assert 30 <= bins_until(10.0, True) <= 60


def test_a_forecast_that_lost_its_calibration_leans_on_the_last_value() -> None:
    rates = daily(SHORT_DAY, 10, seed=8)
    forecaster = Forecaster(SHORT_DAY, (10.0, 300.0), 300.0)
    forecaster.backfill(rates, 0.0)
    job = forecaster.fit_due()
    assert job is not None
    forecaster.adopt(fitting.run(job))
    start_s, seen = forecaster.history.end_s, []
    for step in range(400):
        # Every fifth minute the load doubles and stays: the fitted model expects its return.
        rate = 2.0 ** (step // 30) * float(rates[-6:].mean()) if step < 120 else 1.0
        forecaster.observe(Demand(start_s + 10 * step, start_s + 10 * step + 10, 10 * rate))
        forecast = forecaster.forecast(forecaster.history.end_s, 300.0)
        assert forecast is not None
        seen.append(forecast.trusted)
    assert not all(seen[:140])
    assert all(seen[-100:])


def test_an_outage_does_not_blow_calibration_up() -> None:
    calibration = Calibration(DAY, PROBABILITIES, delay_bins=2)
    quantiles = np.linspace(8, 14, len(PROBABILITIES))
    for peak in [10.0] * 50 + [0.0] * 500 + [float("nan")] * 100:
        calibration.settle(calibration.correct(quantiles), peak)
    corrected = calibration.correct(quantiles)
    assert np.isfinite(corrected).all()
    assert corrected[-1] > 8


def test_the_forecaster_forecasts_from_the_first_tick_after_a_backfill() -> None:
    rates = daily(SHORT_DAY, 10, seed=8)
    forecaster = Forecaster(SHORT_DAY, (10.0, 60.0), 40.0)
    forecaster.backfill(rates, 0.0)
    job = forecaster.fit_due()
    assert job is not None
    assert forecaster.fit_due() is None
    forecaster.adopt(fitting.run(job))
    forecast = forecaster.forecast(forecaster.history.end_s + 3.0, 60.0)
    assert forecast is not None
    assert forecast.model == "location_scale"
    assert forecast.at(0.5) == pytest.approx(rates[-6:].mean(), rel=0.5)
    assert forecast.at(0.99) > forecast.at(0.9) > forecast.at(0.5)


def test_a_new_deployment_is_forecast_within_minutes() -> None:
    forecaster = Forecaster(DAY, (10.0, 60.0), 60.0)
    for step in range(45):
        start_s = 1e9 + 10 * step
        forecaster.observe(Demand(start_s, start_s + 10, 50.0))
    forecast = forecaster.forecast(forecaster.history.end_s, 60.0)
    assert forecast is not None
    assert forecast.at(0.5) == pytest.approx(5.0, rel=0.05)
    assert forecaster.fit_due() is not None


def test_a_refit_is_due_after_its_period_and_when_the_lead_has_moved() -> None:
    rates = daily(SHORT_DAY, 3, seed=9)
    forecaster = Forecaster(SHORT_DAY, (10.0, 60.0), 40.0)
    forecaster.backfill(rates[:2000], 0.0)
    job = forecaster.fit_due()
    assert job is not None
    forecaster.adopt(fitting.run(job))
    due = []
    for step in range(400):
        if step == 20:
            forecaster.aim((10.0, 200.0), 200.0)
        start_s = 20_000.0 + 10 * step
        forecaster.observe(Demand(start_s, start_s + 10, 50.0))
        job = forecaster.fit_due()
        if job is not None:
            due.append(step)
            forecaster.adopt(fitting.run(job))
    # The new aim is taken up at the next look (a 24th of a season: 30 bins), then a refit
    # comes every quarter of a season: 180 bins.
    assert due == [29, 209, 389]
