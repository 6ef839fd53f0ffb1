"""The other forecasters, each as its users run it: refitted at every origin on the history that
suits it, its quantiles from its own intervals.

All learn the very peaks that are scored, those of the libraries one value a minute: their logs,
or the plain numbers where that served them better (72 origins: AutoARIMA .97 of plain, AutoETS
1.01, Kalman 1.05).
"""

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from statistics import NormalDist
from typing import Any

import numpy as np

from controller.core.forecasting.features import Rows
from controller.core.windows import Values
from tests.benchmarks.accuracy.live import QUANTILES
from tests.benchmarks.accuracy.loads import DAY, WINDOW, Record

Fit = Callable[[Record, int, Sequence[int]], Values]
Ahead = Callable[[Values, int], Values]
PACKAGES = ("statsforecast", "prophet", "statsmodels", "pandas")
NORMAL: Values = np.array([NormalDist().inv_cdf(q) for q in QUANTILES])
HALF_DAY, ONE_DAY, THREE_DAYS, WEEK = 720, 1440, 4320, 10_080


@dataclass(frozen=True)
class Rival:
    """`fit` learns up to a row and answers with log quantiles, shape (horizons, QUANTILES).
    Slow ones do so at one origin in `every`."""

    name: str
    fit: Fit
    every: int = 1


def missing_packages() -> list[str]:
    """Those of the rivals' packages that are not installed."""
    return [name for name in PACKAGES if find_spec(name) is None]


def load_packages() -> None:
    """Import them all, so that the first fit does not pay for it."""
    for name in (*PACKAGES, "statsforecast.models", "statsmodels.tsa.statespace.structural"):
        import_module(name)


def last_value(record: Record, row: int, horizons: Sequence[int]) -> Values:
    """The last minute's level, and the quantiles of what followed each level before."""
    made: Values = record.levels[row] + spreads(record, row, horizons)
    return made


def spreads(record: Record, row: int, horizons: Sequence[int]) -> Values:
    """Quantiles of the log ratio of peak to level, of outcomes known at `row`."""
    made = []
    for horizon in horizons:
        levels = record.levels[: row - horizon - WINDOW + 1]
        ratios = record.log_peaks[horizon : row - WINDOW + 1] - levels
        made.append(np.nanquantile(ratios, QUANTILES))
    return np.array(made)


def seasonal_naive(record: Record, row: int, horizons: Sequence[int]) -> Values:
    """Yesterday's peak at the time, and the quantiles of how days differed before."""
    season = DAY.season_bins
    known = record.log_peaks[: row - WINDOW + 1]
    spread = np.nanquantile(known[season:] - known[:-season], QUANTILES)
    yesterday = record.log_peaks[row + np.asarray(horizons) - season]
    yesterday = np.where(np.isfinite(yesterday), yesterday, record.levels[row])
    made: Values = yesterday[:, None] + spread
    return made


def by_minutes(minutes: int, ahead: Ahead) -> Fit:
    """A fit on so many minutes; windows between two steps take both in proportion."""

    def fit(record: Record, row: int, horizons: Sequence[int]) -> Values:
        position = np.asarray(horizons) / WINDOW
        below = np.floor(position).astype(np.int64)
        steps = ahead(record.minutes(row, minutes), int(below.max()) + 2)
        share = (position - below)[:, None]
        made: Values = steps[below] * (1 - share) + steps[below + 1] * share
        return made

    return fit


def holt(past: Values, steps: int) -> Values:
    """Holt's damped trend (damping 0.98), the best of 16 pairs of weights for each step, with
    the quantiles of its own errors at that step."""
    level_weight, trend_weight = (
        grid.ravel() for grid in np.meshgrid([0.1, 0.2, 0.4, 0.7], [0.0, 0.01, 0.03, 0.1])
    )
    damping = 0.98
    level, trend = np.full(16, past[0]), np.zeros(16)
    levels, trends = np.empty((len(past), 16)), np.empty((len(past), 16))
    for place, value in enumerate(past.tolist()):
        before = level
        level = before + damping * trend
        level = level + level_weight * (value - level)
        trend = damping * trend + trend_weight * (level - before - damping * trend)
        levels[place], trends[place] = level, trend
    made = np.empty((steps, len(QUANTILES)))
    for step in range(1, steps + 1):
        reach = sum(damping**k for k in range(1, step + 1))
        expected = levels + reach * trends
        errors = past[30 + step :, None] - expected[30:-step]
        best = int(np.argmin(np.abs(errors).mean(axis=0)))
        made[step - 1] = expected[-1, best] + np.quantile(errors[:, best], QUANTILES)
    return made


def kalman(past: Values, steps: int) -> Values:
    """A local linear trend by maximum likelihood and the Kalman filter (statsmodels)."""
    structural = import_module("statsmodels.tsa.statespace.structural")
    model = structural.UnobservedComponents(past, "lltrend")
    ahead = model.fit(disp=0, maxiter=50).get_forecast(steps)
    made: Values = ahead.predicted_mean[:, None] + ahead.se_mean[:, None] * NORMAL
    return made


def plain(ahead: Ahead) -> Ahead:
    """The same on plain numbers; quantiles below 0.001 requests per second count as that."""

    def of_logs(past: Values, steps: int) -> Values:
        made: Values = np.log(np.maximum(ahead(np.exp(past), steps), 1e-3))
        return made

    return of_logs


def statsforecast(name: str, **options: Any) -> Ahead:
    """One of statsforecast's models; its upper bounds are the quantiles."""

    def ahead(past: Values, steps: int) -> Values:
        model = getattr(import_module("statsforecast.models"), name)(**options)
        levels = [round(200 * (q - 0.5)) for q in QUANTILES[1:].tolist()]
        answer = model.fit(past).predict(h=steps, level=levels)
        columns = [answer["mean"], *(answer[f"hi-{level}"] for level in levels)]
        return np.array(columns, dtype=np.float64).T

    return ahead


def prophet(past: Values, steps: int) -> Values:
    """Prophet's defaults; quantiles of its own samples."""
    pandas = import_module("pandas")
    logging.getLogger("cmdstanpy").disabled = True
    minutes = np.arange(len(past) + steps)
    stamps = pandas.Timestamp("2026-01-05") + pandas.to_timedelta(minutes, unit="min")
    model = import_module("prophet").Prophet()
    model.fit(pandas.DataFrame({"ds": stamps[: len(past)], "y": past}))
    np.random.seed(len(past))
    samples = model.predictive_samples(pandas.DataFrame({"ds": stamps[len(past) :]}))
    made: Values = np.quantile(samples["yhat"], QUANTILES, axis=1).T
    return made


LAST_VALUE = Rival("last value", last_value)
AUTO_ARIMA = Rival("AutoARIMA", by_minutes(HALF_DAY, statsforecast("AutoARIMA")))
SLOW = 8
PROPHET = Rival("Prophet", by_minutes(WEEK, prophet), SLOW)
RIVALS = (
    LAST_VALUE,
    Rival("seasonal naive", seasonal_naive),
    Rival("Holt damped", by_minutes(ONE_DAY, holt)),
    Rival("Kalman trend", by_minutes(HALF_DAY, plain(kalman))),
    Rival("AutoETS", by_minutes(HALF_DAY, plain(statsforecast("AutoETS")))),
    AUTO_ARIMA,
    Rival("MSTL", by_minutes(THREE_DAYS, statsforecast("MSTL", season_length=[ONE_DAY])), SLOW),
    PROPHET,
)
ON_A_WEEK = (
    Rival(AUTO_ARIMA.name, by_minutes(WEEK, statsforecast("AutoARIMA"))),
    PROPHET,
)


def named(names: Sequence[str] | None) -> list[Rival]:
    """The rivals of these names, all where none is given; the last value is always there."""
    return [r for r in RIVALS if not names or r is LAST_VALUE or r.name in names]


def answer(rival: Rival, record: Record, row: int, horizons: Sequence[int]) -> tuple[Values, bool]:
    """Quantiles in requests per second, ascending, and whether the rival gave them: where it
    fails, the last value stands in."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            logs = rival.fit(record, row, horizons)
        except (ValueError, RuntimeError, np.linalg.LinAlgError):
            logs = np.full((len(horizons), len(QUANTILES)), np.nan)
    gave = bool(np.isfinite(logs).all())
    if not gave:
        logs = last_value(record, row, horizons)
    made: Values = np.maximum(np.exp(np.sort(logs, axis=1)) - record.floor_rps, 0.0)
    return made, gave


def origins(record: Record, rows: Rows, horizons: Sequence[int], count: int, seed: int) -> Rows:
    """Rows drawn at random, in order, among those whose outcomes and last minutes are known."""
    known = np.isfinite(record.outcomes(rows, horizons)).all(axis=1)
    known &= np.isfinite(record.log_peaks[rows - WINDOW] + record.load.rates[rows])
    chosen = np.random.default_rng(seed).choice(rows[known], min(count, known.sum()), replace=False)
    return np.sort(chosen)
