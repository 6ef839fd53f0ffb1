"""The load kept in equal bins: a history in which gaps stay gaps."""

from collections.abc import Sequence
from math import floor, nan

import numpy as np
from numpy.typing import NDArray

from controller.core.periods import Periods

Values = NDArray[np.float64]


class Tail:
    """The last `limit` rows of something that grows at its end, in one array.

    Appending costs the same however much is held; `view` is the rows in order, not a copy,
    and `first` the number of rows that have been dropped at the front.
    """

    def __init__(self, limit: int, columns: int = 1) -> None:
        self._limit = limit
        self._rows = np.empty((min(limit, 1024), columns))
        self._start = self._stop = 0
        self.first = 0

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def view(self) -> Values:
        """The rows held, shape (rows, columns)."""
        return self._rows[self._start : self._stop]

    def extend(self, rows: Values) -> None:
        """Add rows, shape (n, columns), and drop what exceeds the limit."""
        if len(rows) > self._limit:
            self.first += len(rows) - self._limit
            rows = rows[-self._limit :]
        if self._stop + len(rows) > len(self._rows):
            self._make_room(len(rows))
        self._rows[self._stop : self._stop + len(rows)] = rows
        self._stop += len(rows)
        surplus = max(0, len(self) - self._limit)
        self._start += surplus
        self.first += surplus

    def _make_room(self, rows: int) -> None:
        held = self.view
        grown = np.empty((2 * (len(held) + rows), self._rows.shape[1]))
        grown[: len(held)] = held
        self._rows, self._start, self._stop = grown, 0, len(held)


class History:
    """Rates (events per second) in consecutive bins of `periods.bin_s`; NaN = not known.

    Counts are spread evenly over the interval they cover. A bin is closed when the counted
    time has passed its end, and is known if at least half of it was covered.
    """

    def __init__(self, periods: Periods) -> None:
        self._bin_s = periods.bin_s
        self._memory_bins = periods.memory_bins
        self._rates = Tail(periods.memory_bins)
        self._origin_bin: int | None = None
        self._count = 0.0
        self._covered_s = 0.0

    @property
    def rates(self) -> Values:
        """Closed bins, oldest first, in events per second."""
        return self._rates.view[:, 0]

    @property
    def end_bin(self) -> int:
        """The bin being filled, numbered from the epoch; it is the first one not closed."""
        return (self._origin_bin or 0) + self._rates.first + len(self._rates)

    @property
    def end_s(self) -> float:
        """End of the last closed bin."""
        return self.end_bin * self._bin_s

    def load(self, rates: Sequence[float] | Values, start_s: float) -> None:
        """Begin anew with known rates, the first of which is the bin that holds `start_s`."""
        self._begin(floor(start_s / self._bin_s + 1e-6))
        self._rates.extend(np.asarray(rates, dtype=np.float64).reshape(-1, 1))

    def add(self, count: float, start_s: float, end_s: float) -> Values:
        """Spread `count` events over [start_s, end_s); returns the rates of the bins this
        closed. What falls into bins closed before is left out."""
        rate_rps = count / (end_s - start_s)
        closed: list[float] = []
        if self._origin_bin is None:
            self._begin(floor(start_s / self._bin_s + 1e-9))
        position_s = max(start_s, self.end_s)
        while position_s < end_s:
            number = floor(position_s / self._bin_s + 1e-9)
            closed += self._close_before(number)
            until_s = min(end_s, (number + 1) * self._bin_s)
            self._count += rate_rps * (until_s - position_s)
            self._covered_s += until_s - position_s
            position_s = until_s
        closed += self._close_before(floor(end_s / self._bin_s + 1e-9))
        return np.asarray(closed, dtype=np.float64)

    def _begin(self, number: int) -> None:
        self._rates = Tail(self._memory_bins)
        self._origin_bin = number
        self._count = self._covered_s = 0.0

    def _close_before(self, number: int) -> list[float]:
        """Close the bins before `number`: the one being filled, and gaps as unknown."""
        missing = number - self.end_bin
        if missing <= 0:
            return []
        if missing > self._memory_bins:
            self._begin(number)
            return []
        known = self._covered_s >= self._bin_s / 2
        rates = [self._count / self._covered_s if known else nan]
        rates += [nan] * (missing - 1)
        self._count = self._covered_s = 0.0
        self._rates.extend(np.array(rates).reshape(-1, 1))
        return rates
