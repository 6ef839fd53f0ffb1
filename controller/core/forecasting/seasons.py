"""What past seasons did at the same time: profiles and peaks, computed ahead of need.

Everything here about a bin uses data at least most of a season old, so it is known long
before the bin comes and is computed once, in blocks.
"""

from collections.abc import Sequence
from math import nan
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.core.periods import Periods
from controller.core.windows import Values

Counts = NDArray[np.int32]
Number = TypeVar("Number", np.float64, np.int32)

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
        count, season = until - start, self._periods.season_bins
        firsts = [start - back * season for back in range(1, len(WEIGHTS) + 1)]
        running = sums, known
        made = np.empty((count, self.columns))
        made[:, 0] = self._log(_usual(firsts, count, self._wide, *running))
        made[:, 1] = self._log(_usual(firsts, count, self._widest, *running))
        made[:, 2] = self._log(_means(firsts[0], count, self._narrow, *running))
        weekly = self._log(_means(firsts[-1], count, self._wide, *running))
        made[:, 3] = np.where(np.isnan(weekly), made[:, 0], weekly)
        made[:, 4:] = self._peaks(firsts, count, levels)
        self._rows = np.concatenate([self._rows, made])

    def _log(self, rates: Values) -> Values:
        return np.log(rates + self._floor_rps)

    def _peaks(self, firsts: Sequence[int], count: int, levels: Values) -> Values:
        """Highest, mean and lowest over the seasons of the largest level from `reach_bins`
        before each bin to as far after its window; the level at a window's last bin is that
        window's mean. Shape (count, 3)."""
        width = 2 * self._reach + self._periods.window_bins
        peaks, mean = np.full((count, 3), np.nan), Mean(count)
        for weight, first in zip(WEIGHTS, firsts, strict=True):
            begin = _nothing_before(first + self._reach + self._periods.window_bins, count)
            found = largest(levels, first + begin - self._reach, count - begin, width)
            mean.add(weight, begin, found)
            peaks[begin:, 0] = np.fmax(peaks[begin:, 0], found)
            peaks[begin:, 2] = np.fmin(peaks[begin:, 2], found)
        peaks[:, 1] = mean.made
        return peaks


class Mean:
    """A weighted mean of values, bin by bin, that leaves out what is missing."""

    def __init__(self, count: int) -> None:
        self._total, self._weight = np.zeros(count), np.zeros(count)

    def add(self, weight: float, begin: int, values: Values) -> None:
        """Values from bin `begin` on."""
        known = np.isfinite(values)
        self._total[begin:] += np.where(known, weight * values, 0.0)
        self._weight[begin:] += weight * known

    @property
    def made(self) -> Values:
        """The mean of what was added; NaN where that is nothing."""
        with np.errstate(invalid="ignore"):
            return self._total / self._weight


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


def stretch(running: NDArray[Number], first: int, count: int) -> NDArray[Number]:
    """`count` running sums from place `first` on; outside of them what stands at their ends."""
    inside = running[max(first, 0) : max(first + count, 0)]
    front = min(max(-first, 0), count)
    ends = np.repeat(running[:1], front), np.repeat(running[-1:], count - front - len(inside))
    return inside if len(inside) == count else np.concatenate([ends[0], inside, ends[1]])


def _means(first: int, count: int, bins: int, sums: Values, known: Counts) -> Values:
    """Mean rate over `bins` bins centred on each of `count` bins; NaN where nothing is known."""
    last, before = first + (bins + 1) // 2, first - bins // 2
    total = stretch(sums, last, count) - stretch(sums, before, count)
    with np.errstate(invalid="ignore"):
        return total / (stretch(known, last, count) - stretch(known, before, count))


def _usual(firsts: Sequence[int], count: int, bins: int, sums: Values, known: Counts) -> Values:
    """`_means` of several seasons, recent ones weighing most; missing ones are left out."""
    mean = Mean(count)
    for weight, first in zip(WEIGHTS, firsts, strict=True):
        begin = _nothing_before(first + bins, count)
        mean.add(weight, begin, _means(first + begin, count - begin, bins, sums, known))
    return mean.made


def _nothing_before(last: int, count: int) -> int:
    """The first of `count` bins that can reach into a history, given the place in it that the
    first bin reaches to."""
    return min(max(-last, 0), count)
