"""What past seasons did at the same time: profiles and peaks, computed ahead of need.

Everything here about a bin uses data at least most of a season old, so it is known long
before the bin comes and is computed once, in blocks.
"""

from math import nan

import numpy as np
from numpy.typing import NDArray

from controller.core.periods import Periods
from controller.core.windows import Values

Counts = NDArray[np.int32]

WEIGHTS = 0.7 ** np.arange(7)


class SeasonTable:
    """One row a bin, also for bins still to come; columns are logs of rates:

    weighted mean of the last seven seasons, over 1/144 and over 1/48 season; the last season
    alone over 1/288; the seventh season back over 1/144 (the mean where it is missing); then
    the highest, the mean and the lowest of the seven seasons' peaks, each the largest level
    within `reach_bins` of the target window that opens at the bin. Rows begin with `first_row`:
    who only forecasts from now on needs no table of the past.
    """

    profiles = 4
    columns = profiles + 3

    def __init__(
        self, periods: Periods, floor_rps: float, reach_bins: int, first_row: int = 0
    ) -> None:
        self._periods = periods
        self._first_row = first_row
        self._floor_rps = floor_rps
        season, window = periods.season_bins, periods.window_bins
        self._wide = periods.fraction_bins(1 / 144)
        self._widest = periods.fraction_bins(1 / 48)
        self._narrow = periods.fraction_bins(1 / 288)
        self._reach = min(reach_bins, (season - window - self._widest) // 4)
        # The furthest row ahead whose inputs are all known, and how many are made at once.
        self._ahead = season - max(self._widest, self._reach + window) - 1
        self._block = max(1, self._ahead // 8)
        self._rows = np.empty((0, self.columns))

    def at(self, rows: NDArray[np.int64]) -> Values:
        """The table at rows not before its first; NaN for bins too far ahead, shape (rows,
        columns)."""
        places = rows - self._first_row
        if places[-1] < len(self._rows):
            return self._rows[places]
        inside = places < len(self._rows)
        found = self._rows[np.where(inside, places, 0)]
        return np.where(inside[:, None], found, np.nan)

    def row(self, row: int) -> list[float]:
        """The table at one row, as `at`."""
        place = row - self._first_row
        if place < len(self._rows):
            made: list[float] = self._rows[place].tolist()
            return made
        return [nan] * self.columns

    def extend(self, levels: Values, sums: Values, known: Counts) -> None:
        """Make rows for every bin whose past is in the history, a block at a time.

        `sums` and `known` are the running sums of the rates and of how many of them are
        known; they begin with 0 and so are one longer than `levels`.
        """
        until = len(levels) + self._ahead
        start = self._first_row + len(self._rows)
        if until < start + self._block and len(self._rows):
            return
        rows = np.arange(start, until)
        days = rows[None, :] - np.arange(1, 8)[:, None] * self._periods.season_bins
        made = np.full((len(rows), self.columns), np.nan)
        wide = _means(days, self._wide, sums, known)
        made[:, 0] = self._log(_weighted(wide))
        made[:, 1] = self._log(_weighted(_means(days, self._widest, sums, known)))
        made[:, 2] = self._log(_means(days[:1], self._narrow, sums, known)[0])
        weekly = self._log(wide[6])
        made[:, 3] = np.where(np.isnan(weekly), made[:, 0], weekly)
        peaks = self._peaks(days, levels)
        made[:, 4] = np.fmax.reduce(peaks)
        made[:, 5] = _weighted(peaks)
        made[:, 6] = np.fmin.reduce(peaks)
        self._rows = np.concatenate([self._rows, made])

    def _log(self, rates: Values) -> Values:
        return np.log(rates + self._floor_rps)

    def _peaks(self, days: NDArray[np.int64], levels: Values) -> Values:
        """Largest level from `reach_bins` before each bin to as far after its window; the
        level at a window's last bin is that window's mean. Shape of `days`."""
        width = 2 * self._reach + self._periods.window_bins
        return np.array([largest(levels, day[0] - self._reach, len(day), width) for day in days])


def largest(levels: Values, first: int, count: int, width: int) -> Values:
    """The largest known level in each of `count` windows, the first of which is at `first`."""
    last = first + count + width - 1
    inside = levels[max(0, first) : max(0, last)]
    front = min(max(0, -first), count + width - 1)
    padded = np.full(count + width - 1, -np.inf)
    padded[front : front + len(inside)] = np.where(np.isfinite(inside), inside, -np.inf)
    # The largest of 1, 2, 4, ... bins, then of two such runs that cover the width.
    runs, reached = padded, 1
    while 2 * reached <= width:
        runs, reached = np.maximum(runs[:-reached], runs[reached:]), 2 * reached
    found = np.maximum(runs[:count], runs[width - reached :])
    return np.where(np.isfinite(found), found, np.nan)


def _means(days: NDArray[np.int64], bins: int, sums: Values, known: Counts) -> Values:
    """Mean rate over `bins` bins centred on each bin of `days`; NaN where nothing is known."""
    last, first = days + (bins + 1) // 2, days - bins // 2
    count = known.take(last, mode="clip") - known.take(first, mode="clip")
    with np.errstate(invalid="ignore", divide="ignore"):
        total = sums.take(last, mode="clip") - sums.take(first, mode="clip")
        return np.where(count > 0, total / count, np.nan)


def _weighted(days: Values) -> Values:
    """Mean over seasons, recent ones weighing most; missing ones are left out."""
    known = np.isfinite(days)
    weight = known * WEIGHTS[:, None]
    total = weight.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (np.where(known, days, 0.0) * weight).sum(axis=0) / total
    return np.where(total > 0, mean, np.nan)
