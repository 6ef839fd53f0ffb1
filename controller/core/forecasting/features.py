"""What the models see of a load history: recent means, volatility, and past seasons.

All logarithms are natural and taken of a rate plus `floor_rps`, a small share of the mean
rate. Missing features are NaN. One code path serves whole histories and single ticks.
"""

from math import pi

import numpy as np
from numpy.typing import NDArray

from controller.core.forecasting.seasons import SeasonTable
from controller.core.periods import Periods
from controller.core.windows import Values

Rows = NDArray[np.int64]

JUMP = 0.4
TINY = 0.01
RATE, LEVEL, SQUARE, SWING, NOISE = range(5)


class Frame:
    """A load history with the running sums from which every feature is read.

    `level` is the log of the mean over one target window (a minute where the season is a
    day); targets and location features are relative to it. `reach_bins` is how far to each
    side of the forecast window past seasons are searched for peaks: what came a lead earlier
    or later on another day may come so today. A row is a bin, counted from the first one.
    """

    def __init__(self, periods: Periods, floor_rps: float, reach_bins: int, first_bin: int) -> None:
        self.periods = periods
        self.floor_rps = floor_rps
        self.first_bin = first_bin
        self._longest = periods.recent_bins[-1]
        self._recent = np.array(periods.recent_bins)
        self._spans = np.array([k for k in (60, 180, 360) if k <= self._longest] or [self._longest])
        self._windows = max(2, min(10, self._longest // periods.window_bins))
        self._count = 0
        self._values = np.empty((0, 2))
        self._last_jump = np.empty(0)
        self._sums = np.zeros((1, 5))
        self._known = np.zeros((1, 5))
        self.seasons = SeasonTable(periods, floor_rps, reach_bins)

    def __len__(self) -> int:
        return self._count

    @property
    def rates(self) -> Values:
        """The bins held, events per second."""
        return self._values[: self._count, RATE]

    @property
    def levels(self) -> Values:
        """Log of the mean rate over the target window up to each bin."""
        return self._values[: self._count, LEVEL]

    def extend(self, rates: Values) -> None:
        """Append bins; a single one or a whole history."""
        count = len(rates)
        if not count:
            return
        start = self._count
        self._reserve(count)
        self._count += count
        rows = np.arange(start, self._count)
        self._values[rows, RATE] = rates
        self._accumulate(rows, (RATE,), [rates])
        level = np.log(self._mean(RATE, rows, self.periods.window_bins) + self.floor_rps)
        self._values[rows, LEVEL] = level
        swing = np.abs(level - self._shifted(LEVEL, rows, self.periods.window_bins))
        with np.errstate(divide="ignore", invalid="ignore"):
            noise = np.abs(
                np.log((rates + self.floor_rps) / (self._shifted(RATE, rows, 1) + self.floor_rps))
            )
        self._accumulate(rows, (LEVEL, SQUARE, SWING, NOISE), [level, level**2, swing, noise])
        self._mark_jumps(rows, level)
        held = self._count + 1
        self.seasons.extend(self.levels, self._sums[:held, RATE], self._known[:held, RATE])

    def mean_rate(self, rows: Rows, bins: int) -> Values:
        """Mean rate over the last `bins` bins up to each row; missing bins are left out."""
        return self._mean(RATE, rows, bins)

    def location(self, rows: Rows) -> Values:
        """Where the load has been of late, relative to the level; shape (rows, columns)."""
        base = self.levels[rows, None]
        means = np.log(self._mean(RATE, rows[:, None], self._recent) + self.floor_rps)
        half = min(30, self._longest // 2)
        halves = np.log(
            self._mean(RATE, rows[:, None] - np.array([0, half]), half) + self.floor_rps
        )
        recent = self._shifted(LEVEL, rows[:, None], self._steps())
        return np.concatenate(
            [
                means - base,
                recent[:, 1:2] - base,
                halves[:, :1] - halves[:, 1:],
                np.fmax.reduce(recent, axis=1)[:, None] - base,
            ],
            axis=1,
        )

    def seasonal(self, rows: Rows, horizon_bins: int) -> Values:
        """What past seasons did at the forecast window; shape (rows, columns)."""
        base = self.levels[rows, None]
        now, then = self.seasons.at(rows), self.seasons.at(rows + horizon_bins)
        profiles = self.seasons.profiles
        return np.concatenate(
            [
                then[:, :profiles] - now[:, :profiles],
                np.clip(then[:, : profiles + 2] - base, -3.0, 3.0),
                np.clip(then[:, : profiles + 2] - base, 0.0, 3.0),
            ],
            axis=1,
        )

    def volatility(self, rows: Rows) -> Values:
        """How restless the load has been of late; shape (rows, columns)."""
        at = rows[:, None]
        mean, square = self._mean(LEVEL, at, self._spans), self._mean(SQUARE, at, self._spans)
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
        short = min(30, self._longest)
        window = self.periods.window_bins
        since = np.minimum(
            (rows - self._last_jump[rows]) / window, self.periods.season_bins / window
        )
        peak = np.fmax.reduce(self._shifted(LEVEL, at, self._steps()), axis=1)
        return np.concatenate(
            [
                np.log(deviation + TINY),
                np.log(self._mean(SWING, at, np.array([short, self._spans[-1]])) + TINY),
                np.log(self._mean(NOISE, at, np.array([short])) + TINY),
                np.log1p(since)[:, None],
                np.log1p(self._mean(RATE, at, np.array([window])) * self.periods.window_s),
                (peak - self.levels[rows])[:, None],
            ],
            axis=1,
        )

    def spread(self, rows: Rows, horizon_bins: int) -> Values:
        """How much past seasons differ at the forecast window, and the time of season."""
        then, now = self.seasons.at(rows + horizon_bins), self.seasons.at(rows)
        highest, typical, lowest = (then[:, self.seasons.profiles + k] for k in range(3))
        season = self.periods.season_bins
        angle = 2 * pi * ((rows + horizon_bins + self.first_bin) % season) / season
        return np.stack(
            [
                highest - then[:, 0],
                highest - lowest,
                typical - then[:, 0],
                np.abs(then[:, 0] - now[:, 0]),
                np.sin(angle),
                np.cos(angle),
                np.sin(2 * angle),
                np.cos(2 * angle),
            ],
            axis=1,
        )

    def peak_rps(self, rows: Rows, horizon_bins: int) -> Values:
        """Peak demand of the window that opens `horizon_bins` after each row: its largest
        block mean, in requests per second; NaN where not known."""
        window, block = self.periods.window_bins, self.periods.block_bins
        ends = rows[:, None] + horizon_bins + np.arange(block, window + 1)
        inside = ends < self._count
        means = np.where(inside, self._mean(RATE, np.where(inside, ends, 0), block), np.nan)
        peak: Values = means.max(axis=1)
        return peak

    def target(self, rows: Rows, horizon_bins: int) -> Values:
        """Log of the peak relative to the level; NaN where not known."""
        peak = self.peak_rps(rows, horizon_bins)
        return np.log(peak + self.floor_rps) - self.levels[rows]

    def _steps(self) -> NDArray[np.int64]:
        return np.arange(self._windows) * self.periods.window_bins

    def _shifted(self, column: int, rows: Rows, bins: int | Rows) -> Values:
        at = rows - bins
        return np.where(at >= 0, self._values[np.maximum(at, 0), column], np.nan)

    def _mean(self, column: int, rows: Rows, bins: int | Rows) -> Values:
        """Mean of what `column` sums over the last `bins` bins up to each row."""
        last = np.maximum(rows + 1, 0)
        first = np.maximum(rows + 1 - bins, 0)
        sums, known = self._sums[:, column], self._known[:, column]
        count = known[last] - known[first]
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(count > 0, (sums[last] - sums[first]) / count, np.nan)

    def _accumulate(self, rows: Rows, columns: tuple[int, ...], values: list[Values]) -> None:
        table = np.stack(values, axis=1)
        known = np.isfinite(table)
        first, stop = int(rows[0]), int(rows[-1]) + 1
        for position, column in enumerate(columns):
            sums, counts = self._sums[:, column], self._known[:, column]
            there = np.where(known[:, position], table[:, position], 0.0)
            sums[first + 1 : stop + 1] = sums[first] + np.cumsum(there)
            counts[first + 1 : stop + 1] = counts[first] + np.cumsum(known[:, position])

    def _mark_jumps(self, rows: Rows, level: Values) -> None:
        """Remember when the level last left the mean of the half hour before behind."""
        window = self.periods.window_bins
        usual = self._mean(LEVEL, rows - window, min(5 * window, self._longest))
        jumped = np.where(np.abs(level - usual) > JUMP, rows, -np.inf)
        before = self._last_jump[rows[0] - 1] if rows[0] else -np.inf
        self._last_jump[rows] = np.maximum(np.maximum.accumulate(jumped), before)

    def _reserve(self, count: int) -> None:
        needed = self._count + count
        if needed <= len(self._values):
            return
        room = needed + max(1024, needed // 4)
        self._values = _grown(self._values, room)
        self._last_jump = _grown(self._last_jump, room)
        self._sums = _grown(self._sums, room + 1)
        self._known = _grown(self._known, room + 1)


def _grown(table: Values, rows: int) -> Values:
    grown = np.full((rows, *table.shape[1:]), np.nan)
    grown[: len(table)] = table
    return grown
