"""The public series in 10 s bins, what came in each window, and the series under stress."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from controller.core.forecasting.features import Frame, Rows
from controller.core.forecasting.fitting import floor_of
from controller.core.periods import Periods
from controller.core.windows import Values
from controller.replay.series import Drawn, six_series

BIN_S = 10.0
DAY = Periods.of_season(86_400.0, BIN_S)
WINDOW = DAY.window_bins
HOUR_BINS = DAY.season_bins // 24


@dataclass(frozen=True)
class Load:
    """Requests per second in 10 s bins from midnight, NaN where none were recorded; bins from
    `first_test` on are forecast and scored, those before are history."""

    name: str
    rates: Values
    first_test: int


class Record:
    """A load, its levels and peaks. A window is named by the bin before it: `peaks[row]` is the
    peak demand of the minute after `row`, so `peaks[row + h]` is the outcome of a forecast made
    at `row` for h bins ahead."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.floor_rps = floor_of(load.rates[: load.first_test])
        frame = Frame(DAY, self.floor_rps, WINDOW, 0)
        frame.extend(load.rates)
        self.levels = frame.levels.copy()
        self.peaks = frame.peak_rps(np.arange(len(frame)), 0)
        self.log_peaks = np.log(self.peaks + self.floor_rps)

    def outcomes(self, rows: Rows, horizons: Sequence[int]) -> Values:
        """Peak demand, shape (rows, horizons); NaN where not known."""
        at = rows[:, None] + np.asarray(horizons)
        inside = at < len(self.peaks)
        return np.where(inside, self.peaks[np.where(inside, at, 0)], np.nan)

    def minutes(self, row: int, count: int) -> Values:
        """Log peaks of the last minutes up to `row`, oldest first, gaps bridged by lines."""
        count = min(count, row // WINDOW)
        made = self.log_peaks[row - count * WINDOW : row : WINDOW].copy()
        known = np.isfinite(made)
        made[~known] = np.interp(np.flatnonzero(~known), np.flatnonzero(known), made[known])
        return made

    def naive_error(self) -> float:
        """Mean absolute change of the peak from one minute to the next in the history: the
        unit of MASE (Hyndman and Koehler 2006)."""
        history = self.peaks[: self.load.first_test - WINDOW]
        return float(np.nanmean(np.abs(history[WINDOW:] - history[:-WINDOW])))


def public(folder: Path, first_day: float, last_days: float | None) -> list[Load]:
    """The six series, tested from `first_day` on or over the last days only."""
    loads = []
    for name, trace in six_series(folder).items():
        assert isinstance(trace.source, Drawn)
        rates = trace.source.counts / BIN_S
        middle_s = (np.arange(len(rates)) + 0.5) * BIN_S
        for start_s, end_s in trace.gaps:
            rates[(middle_s >= start_s) & (middle_s < end_s)] = np.nan
        first = round(first_day * DAY.season_bins)
        if last_days is not None:
            first = max(first, len(rates) - round(last_days * DAY.season_bins))
        loads.append(Load(name, rates, first))
    return loads


def stressed(load: Load, last_days: float, seed: int) -> list[Load]:
    """The last days of a load under each kind of stress, six hours after the test begins."""
    first = len(load.rates) - round(last_days * DAY.season_bins)
    rng = np.random.default_rng(seed)
    return [
        Load(f"{load.name} {name}", change(load.rates, first + 6 * HOUR_BINS, rng), first)
        for name, change in STRESSES.items()
    ]


Change = Callable[[Values, int, np.random.Generator], Values]


def _raised(rates: Values, at: int, rng: np.random.Generator) -> Values:
    """Level x1.8 for good: more arrivals, drawn around the load's own minute means."""
    made = rates.copy()
    made[at:] += rng.poisson(0.8 * _minute_means(rates[at:]) * BIN_S) / BIN_S
    return made


def _halved(rates: Values, at: int, rng: np.random.Generator) -> Values:
    """Level x0.5 for good: each arrival is kept or not by the toss of a coin."""
    made = rates.copy()
    counts = np.rint(np.nan_to_num(rates[at:]) * BIN_S).astype(np.int64)
    made[at:] = np.where(np.isnan(rates[at:]), np.nan, rng.binomial(counts, 0.5) / BIN_S)
    return made


def _clock_moved(rates: Values, at: int, rng: np.random.Generator) -> Values:
    """From there on the load is what it would have been six hours later."""
    return np.concatenate([rates[:at], rates[at + 6 * HOUR_BINS :]])


def _gaps(rates: Values, at: int, rng: np.random.Generator) -> Values:
    """Eight hours missing in the history, two hours and half an hour in the test."""
    made = rates.copy()
    for start, hours in ((at - 30 * HOUR_BINS, 8.0), (at, 2.0), (at + 12 * HOUR_BINS, 0.5)):
        made[start : start + round(hours * HOUR_BINS)] = np.nan
    return made


STRESSES: dict[str, Change] = {
    "x1.8": _raised,
    "x0.5": _halved,
    "clock +6 h": _clock_moved,
    "gaps": _gaps,
}


def _minute_means(rates: Values) -> Values:
    """Mean of the six bins around each; unknown stays 0."""
    means = np.convolve(np.nan_to_num(rates), np.full(WINDOW, 1 / WINDOW), mode="same")
    return means.astype(np.float64)
