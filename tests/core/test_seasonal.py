"""The cheap model that follows past seasons."""

import numpy as np

from controller.core.choosing import ModelName
from controller.core.forecasting import fitting, last_value, seasonal
from controller.core.forecasting.features import Frame
from controller.core.forecasting.fitting import FitJob
from controller.core.forecasting.forecaster import PROBABILITIES, Forecaster
from controller.core.forecasting.last_value import LastValue
from controller.core.forecasting.seasonal import Seasonal
from controller.core.windows import Values
from tests.core.loads import SHORT_DAY, daily

HORIZON = 60
TESTED = np.arange(3 * 720, 4 * 720 - HORIZON - 6)


def frame_of(rates: Values) -> Frame:
    frame = Frame(SHORT_DAY, 0.05, 4, 0)
    frame.extend(rates)
    return frame


def pinball(model: Seasonal | LastValue, frame: Frame) -> float:
    """Mean loss over a day that was not learned from."""
    actual = frame.peak_rps(TESTED, HORIZON)[:, None]
    missed = actual - model.quantiles(frame, TESTED)
    return float(np.maximum(PROBABILITIES * missed, (PROBABILITIES - 1) * missed).mean())


def test_where_days_are_alike_it_beats_the_last_value() -> None:
    rates = daily(SHORT_DAY, 4, seed=3)
    past, whole = frame_of(rates[: 3 * 720]), frame_of(rates)
    fitted = seasonal.fit(past, HORIZON, PROBABILITIES)
    assert fitted is not None
    cheap = last_value.fit(past, HORIZON, PROBABILITIES)
    assert pinball(fitted, whole) < 0.8 * pinball(cheap, whole)


def test_quantiles_ascend_and_hold_on_a_day_that_was_not_learned_from() -> None:
    rates = daily(SHORT_DAY, 4, seed=4)
    whole = frame_of(rates)
    fitted = seasonal.fit(frame_of(rates[: 3 * 720]), HORIZON, PROBABILITIES)
    assert fitted is not None
    made = fitted.quantiles(whole, TESTED)
    assert (np.diff(made, axis=1) >= 0).all()
    covered = (whole.peak_rps(TESTED, HORIZON)[:, None] <= made).mean(axis=0)
    at_95 = covered[int(np.argmin(np.abs(PROBABILITIES - 0.95)))]
    assert 0.88 < at_95 <= 1


def test_before_a_season_is_known_it_is_not_fitted_and_the_last_value_stands_in() -> None:
    rates = daily(SHORT_DAY, 1.5, seed=5)
    assert seasonal.fit(frame_of(rates), HORIZON, PROBABILITIES) is None
    assert seasonal.fit(frame_of(rates[:0]), HORIZON, PROBABILITIES) is None
    job = FitJob(SHORT_DAY, rates, len(rates), (6, 60), 4, PROBABILITIES, ModelName.SEASONAL)
    assert {type(model) for model in fitting.run(job).models} == {LastValue}


def test_gaps_in_the_past_leave_the_level() -> None:
    rates = daily(SHORT_DAY, 4, seed=6)
    fitted = seasonal.fit(frame_of(rates), HORIZON, PROBABILITIES)
    assert fitted is not None
    rates[: -SHORT_DAY.season_bins // 3] = np.nan
    made = fitted.quantiles(frame_of(rates), np.array([len(rates) - 1]))
    assert np.isfinite(made).all()


def test_a_forecaster_told_to_use_another_model_fits_and_answers_with_it() -> None:
    forecaster = Forecaster(SHORT_DAY, (10.0, 60.0), 40.0)
    forecaster.backfill(daily(SHORT_DAY, 4, seed=7), 0.0)
    names = []
    for chosen in (ModelName.LOCATION_SCALE, ModelName.SEASONAL, ModelName.LAST_VALUE):
        forecaster.use(chosen)
        job = forecaster.fit_due()
        assert job is not None
        forecaster.adopt(fitting.run(job))
        assert forecaster.fit_due() is None
        made = forecaster.forecast(forecaster.history.end_s, 60.0)
        assert made is not None
        names.append(made.model)
    assert names == ["location_scale", "seasonal", "last_value"]
