"""A linear location-scale model of the log peak demand one lead ahead.

The target is log peak / level (see `Frame.target`). Its location is a robust ridge regression
on recent and seasonal features, its scale a ridge regression of the log absolute residual on
volatility features, and its shape the empirical quantiles of the scaled residuals. A pair
with the seasonal features and a pair without are averaged, so that a profile that has become
wrong does half the harm.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.core.forecasting.features import Frame, Rows
from controller.core.windows import Values

STRIDE = 3
HUBER = 1.5
PENALTY = 0.01
ROUNDS = 6
CLIP = 5.0
MIN_ROWS = 120
SHARPNESS = 8


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear map of standardised, clipped features; missing ones count as average."""

    mean: Values
    inverse_sd: Values
    weights: Values
    intercept: float

    def __call__(self, features: Values) -> Values:
        """Predictions for features of shape (rows, columns)."""
        scaled: Values = self.standardise(features) @ self.weights + self.intercept
        return scaled

    def standardise(self, features: Values) -> Values:
        """Features with mean 0 and deviation 1, within 5 deviations."""
        scaled = (features - self.mean) * self.inverse_sd
        return np.clip(np.where(np.isfinite(scaled), scaled, 0.0), -CLIP, CLIP)


@dataclass(frozen=True, eq=False)
class Pair:
    """Location and log scale, with or without what past seasons say."""

    seasonal: bool
    location: Linear
    above: "LogScale"
    below: "LogScale"
    error: float


@dataclass(frozen=True, eq=False)
class LogScale:
    """Log of the typical distance on one side of the location, within what training saw."""

    line: Linear
    lowest: float
    highest: float

    def __call__(self, features: Values) -> Values:
        return np.clip(self.line(features), self.lowest, self.highest)


@dataclass(frozen=True, eq=False)
class LocationScale:
    """A fitted model: quantiles of demand for the rows of a frame."""

    horizon_bins: int
    floor_rps: float
    reach_bins: int
    pairs: tuple[Pair, ...]
    probabilities: Values
    shape: Values
    rows: int

    name = "location_scale"

    def quantiles(self, frame: Frame, rows: Rows) -> Values:
        """Quantiles of peak demand (requests per second), shape (rows, probabilities)."""
        location, above, below = self.parameters(frame, rows)
        scale = np.where(self.shape >= 0, above[:, None], below[:, None])
        logs = frame.levels[rows, None] + location[:, None] + scale * self.shape
        return np.maximum(np.exp(logs) - self.floor_rps, 0.0)

    def parameters(self, frame: Frame, rows: Rows) -> tuple[Values, Values, Values]:
        """Location of the target, and its scales above and below, for each row."""
        recent, restless = frame.location(rows), frame.volatility(rows)
        trust = np.array([pair.error**-SHARPNESS for pair in self.pairs])
        location, above, below = np.zeros((3, len(rows)))
        for pair, share in zip(self.pairs, trust / trust.sum(), strict=True):
            where, how = _matrices(frame, rows, self.horizon_bins, pair.seasonal, recent, restless)
            location += share * pair.location(where)
            above += share * pair.above(how)
            below += share * pair.below(how)
        return location, np.exp(above), np.exp(below)


def fit(
    frame: Frame, horizon_bins: int, reach_bins: int, probabilities: Values
) -> LocationScale | None:
    """Learn from every third bin of a frame; None when fewer than 120 rows have targets.

    Seasonal features come in only once a whole season of rows has them: a column empty in
    training and filled in use is worse than none (1.29 against 0.86 pinball with exactly one
    day of history).
    """
    rows = np.arange(0, len(frame) - horizon_bins, _stride(frame))
    rows = rows[rows >= frame.periods.recent_bins[-1]]
    target = frame.target(rows, horizon_bins)
    known = np.isfinite(target) & np.isfinite(frame.levels[rows])
    rows, target = rows[known], target[known]
    if len(rows) < MIN_ROWS:
        return None
    ahead = frame.seasons.at(rows + horizon_bins)[:, 0]
    seasoned = np.isfinite(ahead) & np.isfinite(frame.seasons.at(rows)[:, 0])
    recent, restless = frame.location(rows), frame.volatility(rows)
    pairs, scores = [], []
    for seasonal in (False, True):
        use = seasoned if seasonal else np.ones(len(rows), dtype=bool)
        if use.sum() < max(MIN_ROWS, 0.9 * frame.periods.season_bins / _stride(frame)):
            continue
        where, how = _matrices(frame, rows, horizon_bins, seasonal, recent, restless)
        pairs.append(
            _fit_pair(where, how, target, use, seasoned if seasoned.any() else use, seasonal)
        )
    if not pairs:
        where, how = _matrices(frame, rows, horizon_bins, False, recent, restless)
        every = np.ones(len(rows), dtype=bool)
        pairs.append(_fit_pair(where, how, target, every, every, False))
    model = LocationScale(
        horizon_bins, frame.floor_rps, reach_bins, tuple(pairs), probabilities, np.empty(0), 0
    )
    judged = seasoned if len(pairs) > 1 else np.ones(len(rows), dtype=bool)
    location, above, below = model.parameters(frame, rows[judged])
    distance = target[judged] - location
    scores = np.clip(distance / np.where(distance >= 0, above, below), -6, 6)
    shape = np.quantile(scores, probabilities)
    return LocationScale(
        horizon_bins, frame.floor_rps, reach_bins, tuple(pairs), probabilities, shape, len(rows)
    )


def _stride(frame: Frame) -> int:
    return STRIDE if frame.periods.season_bins > 1000 else 1


def _matrices(
    frame: Frame, rows: Rows, horizon_bins: int, seasonal: bool, recent: Values, restless: Values
) -> tuple[Values, Values]:
    if not seasonal:
        return recent, restless
    return (
        np.concatenate([recent, frame.seasonal(rows, horizon_bins)], axis=1),
        np.concatenate([restless, frame.spread(rows, horizon_bins)], axis=1),
    )


def _fit_pair(
    where: Values,
    how: Values,
    target: Values,
    use: NDArray[np.bool_],
    judged: NDArray[np.bool_],
    seasonal: bool,
) -> Pair:
    location = _robust(where[use], target[use])
    distance = target - location(where)
    error = float(np.abs(distance[judged]).mean())
    above, below = (_log_scale(how[use], side) for side in (distance[use], -distance[use]))
    return Pair(seasonal, location, above, below, max(error, 1e-6))


def _log_scale(features: Values, distance: Values) -> LogScale:
    """Ridge of the log distance of the targets on one side (`distance` >= 0)."""
    side = distance >= 0
    line = _ridge(features[side], np.log(distance[side] + 0.01), np.ones(int(side.sum())))
    low, high = np.quantile(line(features), [0.01, 0.99])
    return LogScale(line, float(low), float(high))


def _robust(features: Values, target: Values) -> Linear:
    """Huber regression by iterated weights (Huber 1964), its bend at 1.5 robust deviations."""
    weight = np.ones(len(target))
    for _ in range(ROUNDS):
        model = _ridge(features, target, weight)
        distance = np.abs(target - model(features))
        bend = HUBER * max(1.4826 * float(np.median(distance)), 1e-6)
        weight = np.minimum(1.0, bend / np.maximum(distance, 1e-12))
    return model


def _ridge(features: Values, target: Values, weight: Values) -> Linear:
    # Only the process that fits pays for scikit-learn's memory; the daemon just uses the result.
    from sklearn.linear_model import Ridge

    known = np.isfinite(features)
    count = np.maximum(known.sum(axis=0), 1)
    clean = np.where(known, features, 0.0)
    mean = clean.sum(axis=0) / count
    deviation = np.sqrt((np.where(known, features - mean, 0.0) ** 2).sum(axis=0) / count)
    inverse = np.where(deviation > 1e-9, 1.0 / np.maximum(deviation, 1e-9), 0.0)
    shell = Linear(mean, inverse, np.zeros(features.shape[1]), 0.0)
    ridge = Ridge(alpha=PENALTY * len(target), solver="cholesky")
    ridge.fit(shell.standardise(features), target, sample_weight=weight)
    return Linear(mean, inverse, ridge.coef_, float(ridge.intercept_))
