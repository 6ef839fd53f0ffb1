"""A cheap model that follows past seasons: the level moves as it usually does at this time."""

from dataclasses import dataclass

import numpy as np

from controller.core.forecasting.features import Frame, Rows
from controller.core.windows import Values

MIN_SEASONS = 1.0


@dataclass(frozen=True, eq=False)
class Seasonal:
    """Quantiles of log peak demand around the present level, moved by the usual change from now
    to the window: the weighted mean of the last seven seasons."""

    horizon_bins: int
    shape: Values

    name = "seasonal"

    @property
    def horizons(self) -> Rows:
        """The one horizon, as an array."""
        return np.array([self.horizon_bins])

    def quantiles(self, frame: Frame, rows: Rows) -> Values:
        """Quantiles of peak demand (requests per second), shape (rows, probabilities)."""
        usual = frame.levels[rows] + np.nan_to_num(_moved(frame, rows, self.horizon_bins))
        return np.maximum(np.exp(usual[:, None] + self.shape) - frame.floor_rps, 0.0)

    def latest(self, frame: Frame) -> Values:
        """`quantiles` at the last row, shape (1, probabilities)."""
        return self.quantiles(frame, np.array([len(frame) - 1]))


def fit(frame: Frame, horizon_bins: int, probabilities: Values) -> Seasonal | None:
    """The empirical quantiles of what is left of the peak; None where less than a season of
    rows has a past season."""
    rows = np.arange(max(0, len(frame) - horizon_bins))
    if not len(rows):
        return None
    left = frame.target(rows, horizon_bins) - _moved(frame, rows, horizon_bins)
    known = left[np.isfinite(left)]
    if len(known) < MIN_SEASONS * frame.periods.season_bins:
        return None
    return Seasonal(horizon_bins, np.quantile(known, probabilities))


def _moved(frame: Frame, rows: Rows, horizon_bins: int) -> Values:
    """Change of the log of the usual load from each row to its window; NaN if not known."""
    moved: Values = frame.seasons.at(rows + horizon_bins)[:, 0] - frame.seasons.at(rows)[:, 0]
    return moved
