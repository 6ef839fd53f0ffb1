"""What the models see of a load history: recent means, volatility, and past seasons.

All logarithms are natural and taken of a rate plus `floor_rps`, a small share of the mean
rate. Missing features are NaN. What every tick asks for is made in scalars, held equal to what
whole histories are given by tests.
"""

from collections.abc import Iterable
from math import cos, isfinite, log, log1p, nan, pi, sin, sqrt

import numpy as np
from numpy.typing import NDArray

from controller.core.forecasting.seasons import Number, SeasonTable, stretch
from controller.core.periods import Periods
from controller.core.windows import Values

Rows = NDArray[np.int64]

JUMP = 0.4
TINY = 0.01
RATE, LEVEL, SQUARE, SWING, NOISE = range(5)
WIDTH = 5


class Columns:
    """Where each group of features stands; the models choose by group."""

    def __init__(self, moves: int, restless: int) -> None:
        profiles = SeasonTable.profiles
        self.restless = moves
        self.seasonal = moves + restless
        self.spread = self.seasonal + 3 * profiles + 4
        self.count = self.spread + 8

    def location(self, seasonal: bool) -> Rows:
        """Columns that tell where the load goes."""
        moves = np.arange(self.restless)
        return np.append(moves, np.arange(self.seasonal, self.spread)) if seasonal else moves

    def scale(self, seasonal: bool) -> Rows:
        """Columns that tell how surely."""
        restless = np.arange(self.restless, self.seasonal)
        return np.append(restless, np.arange(self.spread, self.count)) if seasonal else restless


class Frame:
    """A load history with the running sums from which every feature is read.

    `level` is the log of the mean over one target window (a minute where the season is a
    day); targets and location features are relative to it. `reach_bins` is how far to each
    side of the forecast window past seasons are searched for peaks: what came a lead earlier
    or later on another day may come so today. A row is a bin, counted from the first one; features
    are there from `first_row` on.
    """

    def __init__(
        self,
        periods: Periods,
        floor_rps: float,
        reach_bins: int,
        first_bin: int,
        first_row: int = 0,
    ) -> None:
        self.periods = periods
        self.floor_rps = floor_rps
        self.first_bin = first_bin
        self._longest = periods.recent_bins[-1]
        self._recent_bins = periods.recent_bins
        self._spans = [k for k in (60, 180, 360) if k <= self._longest] or [self._longest]
        blocks = max(2, min(10, self._longest // periods.window_bins))
        self._steps = np.arange(blocks) * periods.window_bins
        self.columns = Columns(len(self._recent_bins) + 3, len(self._spans) + 6)
        self._ends = self._ends_of_means()
        self._count = 0
        self._values = np.empty((0, 2))
        self._last_jump = np.empty(0)
        self._sums = np.zeros((1, WIDTH))
        self._known = np.zeros((1, WIDTH), np.int32)
        self._peaks: Values | None = None
        self.seasons = SeasonTable(periods, floor_rps, reach_bins, first_row)

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
        start = self._count
        self._reserve(count)
        self._count += count
        self._peaks = None
        if count == 1:
            self._append(start, float(rates[0]))
        elif count:
            self._append_all(start, rates)
        held = self._count + 1
        self.seasons.extend(self.levels, self._sums[:held, RATE], self._known[:held, RATE])

    def _append(self, row: int, rate: float) -> None:
        """One bin, as `_append_all` in scalars: ten times as fast, and every tick adds one."""
        window, values = self.periods.window_bins, self._values
        values[row, RATE] = rate
        self._add(row, RATE, rate)
        level = log(self._mean_at(RATE, row, window) + self.floor_rps)
        values[row, LEVEL] = level
        before = values.item(row - 1, RATE) if row else nan
        noise = abs(log((rate + self.floor_rps) / (before + self.floor_rps)))
        swing = abs(level - values.item(row - window, LEVEL)) if row >= window else nan
        usual = self._mean_at(LEVEL, row - window, min(5 * window, self._longest))
        jumped = abs(level - usual) > JUMP
        self._last_jump[row] = row if jumped else self._last_jump[row - 1] if row else -np.inf
        for column, value in enumerate((level, level * level, swing, noise), start=LEVEL):
            self._add(row, column, value)

    def _add(self, row: int, column: int, value: float) -> None:
        known = isfinite(value)
        self._sums[row + 1, column] = self._sums.item(row, column) + (value if known else 0.0)
        self._known[row + 1, column] = self._known.item(row, column) + known

    def _mean_at(self, column: int, row: int, bins: int) -> float:
        last, first = max(row + 1, 0), max(row + 1 - bins, 0)
        count = self._known.item(last, column) - self._known.item(first, column)
        if not count:
            return nan
        return (self._sums.item(last, column) - self._sums.item(first, column)) / count

    def _append_all(self, start: int, rates: Values) -> None:
        rows, window = np.arange(start, self._count), self.periods.window_bins
        self._values[start : self._count, RATE] = rates
        self._accumulate(start, RATE, rates)
        level = np.log(self._mean(RATE, start, len(rates), window) + self.floor_rps)
        self._values[start : self._count, LEVEL] = level
        swing = np.abs(level - self._shifted(LEVEL, rows, window))
        logs = np.log(self._values[max(start - 1, 0) : self._count, RATE] + self.floor_rps)
        noise = np.abs(np.diff(logs, prepend=[] if start else nan))
        for column, values in enumerate((level, level * level, swing, noise), start=LEVEL):
            self._accumulate(start, column, values)
        self._mark_jumps(rows, level)

    def features(self, rows: Rows, horizon_bins: int | Rows) -> Values:
        """What the models see at each row of a window that opens `horizon_bins` later (one for
        all rows, or one each); shape (rows, columns): first how the load moved of late,
        relative to the level, and how restless it was, then what past seasons did at the
        window, and how much they differ there."""
        made = self.recent(rows)
        self.turn(made, rows, horizon_bins)
        return made

    def last_features(self, horizons: Iterable[int]) -> Values:
        """`features` at the last bin of windows that open so many bins later, a row each, in
        scalars: every tick asks for them, and numpy's calls cost more than the sums."""
        row = self._count - 1
        level = self._values.item(row, LEVEL)
        recent = self._recent_at(row, level)
        return np.array([recent + self._seasonal_at(row, row + bins, level) for bins in horizons])

    def _recent_at(self, row: int, level: float) -> list[float]:
        count, spans = len(self._recent_bins), len(self._spans)
        means = self._means_at(row)
        logs = [log(mean + self.floor_rps) for mean in means[: count + 2]]
        at = row - self._steps
        blocks = self._values[at[at >= 0], LEVEL].tolist()
        peak = max([block for block in blocks if isfinite(block)], default=nan) - level
        before = blocks[1] if len(blocks) > 1 else nan
        moves = [held - level for held in logs[:count]]
        moves += before - level, logs[count] - logs[count + 1], peak
        first = count + 2
        middle, square = means[first : first + spans], means[first + spans : first + 2 * spans]
        restless = [
            sqrt(max(power - mean * mean, 0.0)) for power, mean in zip(square, middle, strict=True)
        ]
        restless += means[first + 2 * spans : first + 2 * spans + 3]
        window, season = self.periods.window_bins, self.periods.season_bins
        since = min((row - self._last_jump.item(row)) / window, season / window)
        counted = means[-1] * self.periods.window_s
        moves += [log(each + TINY) for each in restless]
        return [*moves, log1p(since), log1p(counted), peak]

    def _seasonal_at(self, row: int, ahead: int, level: float) -> list[float]:
        profiles = self.seasons.profiles
        now, then = self.seasons.row(row), self.seasons.row(ahead)
        moved = [later - sooner for later, sooner in zip(then[:profiles], now, strict=False)]
        beside = [
            apart if -3.0 < apart < 3.0 else min(max(apart, -3.0), 3.0)
            for apart in [other - level for other in then[: profiles + 2]]
        ]
        above = [0.0 if apart < 0.0 else apart for apart in beside]
        highest, typical, lowest = then[profiles:]
        usual, season = then[0], self.periods.season_bins
        angle = 2 * pi * ((ahead + self.first_bin) % season) / season
        spread = highest - usual, highest - lowest, typical - usual, abs(moved[0])
        turn = sin(angle), cos(angle), sin(2 * angle), cos(2 * angle)
        return [*moved, *beside, *above, *spread, *turn]

    def recent(self, rows: Rows) -> Values:
        """`features` that lack what depends on the horizon: `turn` fills that in."""
        made = np.empty((len(rows), self.columns.count))
        means, at = self._means(rows), self.columns
        base = self.levels[rows, None]
        count = len(self._recent_bins)
        logs = np.log(means[:, : count + 2] + self.floor_rps)
        blocks = self._shifted(LEVEL, rows[:, None], self._steps)
        peak = np.fmax.reduce(blocks, axis=1) - base[:, 0]
        made[:, :count] = logs[:, :count] - base
        made[:, count] = blocks[:, 1] - base[:, 0]
        made[:, count + 1] = logs[:, count] - logs[:, count + 1]
        made[:, count + 2] = peak
        spans, first = len(self._spans), count + 2
        middle, square = (
            means[:, first : first + spans],
            means[:, first + spans : first + 2 * spans],
        )
        restless = made[:, at.restless :]
        restless[:, :spans] = np.sqrt(np.maximum(square - middle * middle, 0.0))
        restless[:, spans : spans + 3] = means[:, first + 2 * spans : first + 2 * spans + 3]
        restless[:, : spans + 3] = np.log(restless[:, : spans + 3] + TINY)
        window, season = self.periods.window_bins, self.periods.season_bins
        since = np.minimum((rows - self._last_jump[rows]) / window, season / window)
        restless[:, spans + 3] = since
        restless[:, spans + 4] = means[:, -1] * self.periods.window_s
        restless[:, spans + 3 : spans + 5] = np.log1p(restless[:, spans + 3 : spans + 5])
        restless[:, spans + 5] = peak
        return made

    def turn(self, made: Values, rows: Rows, horizon_bins: int | Rows) -> None:
        """Turn the features of these rows, in place, to a window at this horizon."""
        ahead = rows + horizon_bins
        base = self.levels[rows, None]
        now, then = self.seasons.at(rows), self.seasons.at(ahead)
        profiles, at = self.seasons.profiles, self.columns.seasonal
        moved = then[:, :profiles] - now[:, :profiles]
        beside = np.minimum(np.maximum(then[:, : profiles + 2] - base, -3.0), 3.0)
        made[:, at : at + profiles] = moved
        made[:, at + profiles : at + 2 * profiles + 2] = beside
        made[:, at + 2 * profiles + 2 : at + 3 * profiles + 4] = np.maximum(beside, 0.0)
        highest, typical, lowest = (then[:, profiles + k] for k in range(3))
        season, at = self.periods.season_bins, self.columns.spread
        angle = 2 * pi * ((ahead + self.first_bin) % season) / season
        made[:, at] = highest - then[:, 0]
        made[:, at + 1] = highest - lowest
        made[:, at + 2] = typical - then[:, 0]
        made[:, at + 3] = np.abs(moved[:, 0])
        made[:, at + 4] = np.sin(angle)
        made[:, at + 5] = np.cos(angle)
        made[:, at + 6] = np.sin(2 * angle)
        made[:, at + 7] = np.cos(2 * angle)

    def peak_rps(self, rows: Rows, horizon_bins: int | Rows) -> Values:
        """Peak demand of the window that opens `horizon_bins` after each row: its largest
        block mean, in requests per second; NaN where not known."""
        if self._peaks is None:
            self._peaks = self._all_peaks()
        opened = rows + horizon_bins
        inside = opened < len(self._peaks)
        peak = np.full(opened.shape, np.nan)
        peak[inside] = self._peaks[opened[inside]]
        return peak

    def _all_peaks(self) -> Values:
        """Peak demand of the window that opens after each bin, of all that have ended."""
        block, window = self.periods.block_bins, self.periods.window_bins
        windows = max(self._count - window, 0)
        means = self._mean(RATE, block, windows + window - block, block)
        peaks = means[:windows]
        for later in range(1, window - block + 1):
            peaks = np.maximum(peaks, means[later : later + windows])
        return peaks

    def last_peak_rps(self) -> float:
        """Peak demand of the window that ends with the last bin, as `peak_rps` in scalars: every
        tick asks for one."""
        last, window, block = self._count - 1, self.periods.window_bins, self.periods.block_bins
        if last < window:
            return nan
        means = [self._mean_at(RATE, row, block) for row in range(last - window + block, last + 1)]
        return max(means) if all(map(isfinite, means)) else nan

    def target(self, rows: Rows, horizon_bins: int) -> Values:
        """Log of the peak relative to the level; NaN where not known."""
        peak = self.peak_rps(rows, horizon_bins)
        return np.log(peak + self.floor_rps) - self.levels[rows]

    def _ends_of_means(self) -> tuple[Rows, Rows]:
        """Where the recent means that features need end and, after all of those, where they
        begin: how many places before a row's running sums, and the first place of that column."""
        half, short = min(30, self._longest // 2), min(30, self._longest)
        window = self.periods.window_bins
        wanted = [(RATE, 0, bins) for bins in self._recent_bins]
        wanted += [(RATE, 0, half), (RATE, half, half)]
        wanted += [(LEVEL, 0, bins) for bins in self._spans]
        wanted += [(SQUARE, 0, bins) for bins in self._spans]
        wanted += [(SWING, 0, short), (SWING, 0, self._spans[-1]), (NOISE, 0, short)]
        wanted += [(RATE, 0, window)]
        summed, back, bins = np.array(wanted).T
        back = np.concatenate((back, back + bins)) * WIDTH
        first = np.concatenate((summed, summed))
        return first - back, first

    def _means(self, rows: Rows) -> Values:
        """Every recent mean that features are made of, shape (rows, means)."""
        places, first = self._ends
        at = (rows[:, None] + 1) * WIDTH + places
        np.maximum(at, first, out=at)
        sums, known = self._sums.ravel().take(at), self._known.ravel().take(at)
        means: Values
        count = len(first) // 2
        with np.errstate(invalid="ignore", divide="ignore"):
            means = (sums[:, :count] - sums[:, count:]) / (known[:, :count] - known[:, count:])
        return means

    def _means_at(self, row: int) -> list[float]:
        """The same at one row."""
        places, first = self._ends
        at = np.maximum(places + (row + 1) * WIDTH, first)
        sums, known = self._sums.ravel().take(at).tolist(), self._known.ravel().take(at).tolist()
        half = len(sums) // 2
        return [
            (sums[k] - sums[half + k]) / (known[k] - known[half + k])
            if known[k] > known[half + k]
            else nan
            for k in range(half)
        ]

    def _shifted(self, column: int, rows: Rows, bins: int | Rows) -> Values:
        at = rows - bins
        return np.where(at >= 0, self._values[np.maximum(at, 0), column], np.nan)

    def _mean(self, column: int, row: int, count: int, bins: int) -> Values:
        """Mean of what `column` sums over the last `bins` bins up to each of `count` rows."""
        held = self._count + 1
        sums, known = self._sums[:held, column], self._known[:held, column]
        row += 1
        total = stretch(sums, row, count) - stretch(sums, row - bins, count)
        with np.errstate(invalid="ignore"):
            return total / (stretch(known, row, count) - stretch(known, row - bins, count))

    def _accumulate(self, start: int, column: int, values: Values) -> None:
        known, stop = np.isfinite(values), start + len(values)
        sums, counts = self._sums, self._known
        total, count = np.where(known, values, 0.0).cumsum(), known.cumsum(dtype=np.int32)
        sums[start + 1 : stop + 1, column] = total + sums[start, column]
        counts[start + 1 : stop + 1, column] = count + counts[start, column]

    def _mark_jumps(self, rows: Rows, level: Values) -> None:
        """Remember when the level last left the mean of the half hour before behind."""
        window = self.periods.window_bins
        first = int(rows[0]) - window
        usual = self._mean(LEVEL, first, len(rows), min(5 * window, self._longest))
        jumped = np.where(np.abs(level - usual) > JUMP, rows, -np.inf)
        before = self._last_jump[rows[0] - 1] if rows[0] else -np.inf
        self._last_jump[rows] = np.maximum(np.maximum.accumulate(jumped), before)

    def _reserve(self, count: int) -> None:
        needed = self._count + count
        if needed <= len(self._values):
            return
        room = needed + max(1024, needed // 16)
        self._values = _grown(self._values, room)
        self._last_jump = _grown(self._last_jump, room)
        self._sums = _grown(self._sums, room + 1)
        self._known = _grown(self._known, room + 1)


def _grown(table: NDArray[Number], rows: int) -> NDArray[Number]:
    grown = np.empty((rows, *table.shape[1:]), table.dtype)
    grown[: len(table)] = table
    return grown
