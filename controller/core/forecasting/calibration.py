"""Quantiles held to their word while they are used: online quantile tracking.

Each quantile is moved by theta times the distance from the median to the 95 % quantile (in
logs). After every outcome theta grows by rate x (1 - q) times less than it shrinks, so that
in the long run a share q of outcomes lies below (Angelopoulos et al., conformal PID control,
2023: the proportional part). Steps are bounded: an outage cannot blow it up.
"""

from collections import deque
from math import isfinite, log

import numpy as np

from controller.core.periods import Periods
from controller.core.windows import Values

RATE = 0.002
COVERED = (0.9, 0.95, 0.99)
FLOOR = 1e-9
RECENT_BINS, LOST, FOUND = 30, 0.8, 0.2


class Calibration:
    """Corrects one horizon's quantiles and counts how often they hold.

    `delay_bins` is how long after a forecast its outcome is known.
    """

    def __init__(self, periods: Periods, probabilities: Values, delay_bins: int) -> None:
        self._tails = 1.0 - probabilities
        self._median = int(np.argmin(np.abs(probabilities - 0.5)))
        self._high = int(np.argmin(np.abs(probabilities - 0.95)))
        self._covered = np.array([np.argmin(np.abs(probabilities - q)) for q in COVERED])
        self._rate = RATE * min(10.0, 8640 / periods.season_bins)
        self._decay = 1.0 - 1.0 / periods.season_bins
        self.theta: Values = np.zeros(len(probabilities))
        self._inside = [0.0] * len(COVERED)
        self._seen = 0.0
        self._misses = 0.0
        self.holds = True
        self.surprised = False
        self._pending: deque[Values] = deque(maxlen=delay_bins)

    @property
    def coverage(self) -> dict[float, float]:
        """Share of outcomes at or below each quantile over about the last season."""
        if self._seen < 1:
            return {}
        shares = [inside / self._seen for inside in self._inside]
        return dict(zip(COVERED, shares, strict=True))

    def _watch(self, missed: bool) -> None:
        """Whether the 95 % quantile still holds: lost when 80 % of the last 30 outcomes or so lay
        above it, found again below 20 %. Anything more eager mistakes bursts for a new level
        and costs up to 60 % more GPU-hours on a restless series at no fewer violations."""
        self._misses += (missed - self._misses) / RECENT_BINS
        self.holds = self._misses < (LOST if self.holds else FOUND)

    def correct(self, quantiles: Values) -> Values:
        """The quantiles to use, in ascending order, and remembered until their outcome."""
        median, high = quantiles.item(self._median), quantiles.item(self._high)
        width = log((high + FLOOR) / (median + FLOOR))
        corrected: Values = quantiles * np.exp(self.theta * width)
        corrected.sort()
        return np.maximum(corrected, 0.0, out=corrected)

    def settle(self, quantiles: Values, peak_rps: float) -> None:
        """Issue this bin's quantiles; score those issued `delay_bins` ago on `peak_rps`."""
        if len(self._pending) == self._pending.maxlen and isfinite(peak_rps):
            above = peak_rps > self._pending[0]
            self.theta += self._rate * (above - self._tails)
            missed = above[self._covered].tolist()
            for place, outside in enumerate(missed):
                self._inside[place] = self._inside[place] * self._decay + (not outside)
            self._seen = self._seen * self._decay + 1.0
            self._watch(above.item(self._high))
            self.surprised = missed[-1]
        self._pending.append(quantiles)
