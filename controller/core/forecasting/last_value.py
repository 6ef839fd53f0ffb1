"""The cheap model: the present level times what usually follows, by empirical quantiles."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from controller.core.forecasting.features import Frame, Rows
from controller.core.windows import Values

PRIOR_SIGMA = 0.25
ENOUGH_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class LastValue:
    """Quantiles of log peak demand around the present level; `shape` is learned or prior."""

    horizon_bins: int
    shape: Values

    name = "last_value"

    @property
    def horizons(self) -> Rows:
        """The one horizon, as an array."""
        return np.array([self.horizon_bins])

    def quantiles(self, frame: Frame, rows: Rows) -> Values:
        """Quantiles of peak demand (requests per second), shape (rows, probabilities)."""
        return np.maximum(np.exp(frame.levels[rows, None] + self.shape) - frame.floor_rps, 0.0)

    def latest(self, frame: Frame) -> Values:
        """`quantiles` at the last row, shape (1, probabilities)."""
        return self.quantiles(frame, np.array([len(frame) - 1]))


def prior(horizon_bins: int, probabilities: Values) -> LastValue:
    """For a deployment nobody has seen yet: a log-normal peak of deviation 0.25."""
    normal = NormalDist(0.0, PRIOR_SIGMA)
    return LastValue(horizon_bins, np.array([normal.inv_cdf(p) for p in probabilities]))


def fit(frame: Frame, horizon_bins: int, probabilities: Values) -> LastValue:
    """The empirical quantiles of the log ratio of peak to level, of a long history in every few
    bins; the prior where fewer than 30 are known."""
    rows = np.arange(0, max(len(frame) - horizon_bins, 0), max(1, len(frame) // ENOUGH_ROWS))
    target = frame.target(rows, horizon_bins)
    known = target[np.isfinite(target)]
    if len(known) < 30:
        return prior(horizon_bins, probabilities)
    return LastValue(horizon_bins, np.quantile(known, probabilities))
