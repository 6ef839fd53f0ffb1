"""A linear location-scale model of the log peak demand one lead ahead.

The target is log peak / level (see `Frame.target`). Its location is a robust ridge regression
on recent and seasonal features, its scale a ridge regression of the log absolute residual on
volatility features, and its shape the empirical quantiles of the scaled residuals. A pair
with the seasonal features and a pair without are averaged, so that a profile that has become
wrong does half the harm.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.core.forecasting.features import Frame, Rows
from controller.core.windows import Values

STRIDE = 6
MANY_BINS = 45_000
HUBER = 1.5
PENALTY = 0.01
ROUNDS, SETTLED = 6, 1e-4
CLIP = 5.0
MIN_ROWS = 120
SHARPNESS = 8


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear map of some columns, standardised and clipped; missing ones count as average."""

    columns: Rows
    mean: Values
    inverse_sd: Values
    weights: Values
    intercept: float

    def __call__(self, features: Values) -> Values:
        """Predictions for features of shape (rows, every column)."""
        chosen = _standard(features[:, self.columns], self.mean, self.inverse_sd)
        made: Values = chosen @ self.weights + self.intercept
        return made


@dataclass(frozen=True, eq=False)
class LogScale:
    """Log of the typical distance on one side of the location, within what training saw."""

    line: Linear
    lowest: float
    highest: float

    def __call__(self, features: Values) -> Values:
        return np.clip(self.line(features), self.lowest, self.highest)


@dataclass(frozen=True, eq=False)
class Pair:
    """Location and log scale, with or without what past seasons say; `error` weighs pairs."""

    location: Linear
    above: LogScale
    below: LogScale
    error: float


@dataclass(frozen=True, eq=False)
class LocationScale:
    """A fitted model: quantiles of demand for the rows of a frame.

    Every line of every pair stands side by side, so that one pass serves them all: `lines` is
    mean, 1 / deviation and weight of each column, shape (3, maps, pairs, 3, columns), `limits`
    the intercept, least and largest value of each line (3, maps, pairs, 3), `share` that of
    each pair (maps, pairs), `shape` the distribution's (maps, probabilities). A model has one
    map; `together` makes one for each of several models.
    """

    horizons: Rows
    floor_rps: float
    lines: Values
    limits: Values
    share: Values
    shape: Values

    name = "location_scale"

    @property
    def horizon_bins(self) -> int:
        """Bins from a row to the window forecast there."""
        return int(self.horizons[0])

    def quantiles(self, frame: Frame, rows: Rows) -> Values:
        """Quantiles of peak demand (requests per second), shape (rows, probabilities)."""
        return self._around(frame.levels[rows, None], frame.features(rows, self.horizons))

    def latest(self, frame: Frame) -> Values:
        """`quantiles` at the last row, shape (maps, probabilities)."""
        return self._around(frame.levels.item(-1), frame.last_features(self.horizons.tolist()))

    def _around(self, levels: Values | float, features: Values) -> Values:
        parameters = self.parameters(features)
        location, above, below = parameters[:, :1], parameters[:, 1:2], parameters[:, 2:]
        logs = levels + location + np.where(self.shape >= 0, above, below) * self.shape
        return np.maximum(np.exp(logs) - self.floor_rps, 0.0)

    def parameters(self, features: Values) -> Values:
        """Location of the target, and its scales above and below, for each row of features;
        shape (rows, 3)."""
        mean, inverse_sd, weights = self.lines
        intercept, lowest, highest = self.limits
        scaled = _standard(features[:, None, None, :], mean, inverse_sd)
        scaled *= weights
        lines = scaled.sum(axis=-1)
        lines += intercept
        np.minimum(np.maximum(lines, lowest, out=lines), highest, out=lines)
        lines *= self.share[:, :, None]
        mixed: Values = lines.sum(axis=1)
        np.exp(mixed[:, 1:], out=mixed[:, 1:])
        return mixed


def together(models: Sequence[LocationScale]) -> LocationScale:
    """One model with a map for each; pairs that some lack weigh nothing there."""
    pairs = max(model.share.shape[1] for model in models)

    def padded(part: Values, axis: int) -> Values:
        missing = [(0, 0)] * part.ndim
        missing[axis] = 0, pairs - part.shape[axis]
        return np.pad(part, missing)

    return LocationScale(
        np.concatenate([model.horizons for model in models]),
        models[0].floor_rps,
        np.concatenate([padded(model.lines, 2) for model in models], axis=1),
        np.concatenate([padded(model.limits, 2) for model in models], axis=1),
        np.concatenate([padded(model.share, 1) for model in models]),
        np.concatenate([model.shape for model in models]),
    )


def fit(frame: Frame, horizon_bins: int, probabilities: Values) -> LocationScale | None:
    """Learn from every sixth bin of a frame, from every twelfth of one over ten days; None when
    fewer than 120 rows have targets.

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
    features = frame.features(rows, horizon_bins)
    every = np.ones(len(rows), dtype=bool)
    seasoned = np.isfinite(frame.seasons.at(rows + horizon_bins)[:, 0])
    seasoned &= np.isfinite(frame.seasons.at(rows)[:, 0])
    has_season = seasoned.sum() >= max(MIN_ROWS, 0.9 * frame.periods.season_bins / _stride(frame))
    judged = seasoned if has_season else every
    pairs = [_fit_pair(frame, features, target, every, judged, seasonal=False)]
    if has_season:
        pairs.append(_fit_pair(frame, features, target, seasoned, judged, seasonal=True))
    model = _assembled(frame, horizon_bins, pairs)
    location, above, below = _mixed(pairs, model.share[0], features[judged])
    distance = target[judged] - location
    scores = np.clip(distance / np.where(distance >= 0, above, below), -6, 6)
    return replace(model, shape=np.quantile(scores, probabilities)[None, :])


def _mixed(pairs: Sequence[Pair], share: Values, features: Values) -> Values:
    """`LocationScale.parameters` before it is assembled, for many rows; shape (3, rows)."""
    mixed = np.zeros((3, len(features)))
    for pair, part in zip(pairs, share.tolist(), strict=True):
        mixed[0] += part * pair.location(features)
        mixed[1] += part * pair.above(features)
        mixed[2] += part * pair.below(features)
    np.exp(mixed[1:], out=mixed[1:])
    return mixed


def _assembled(frame: Frame, horizon_bins: int, pairs: Sequence[Pair]) -> LocationScale:
    lines = np.zeros((3, 1, len(pairs), 3, frame.columns.count))
    limits = np.full((3, 1, len(pairs), 3), np.nan)
    for number, pair in enumerate(pairs):
        for place, line in enumerate((pair.location, pair.above.line, pair.below.line)):
            for part, values in enumerate((line.mean, line.inverse_sd, line.weights)):
                lines[part, 0, number, place, line.columns] = values
            limits[0, 0, number, place] = line.intercept
        limits[1:, 0, number, 0] = -np.inf, np.inf
        for place, scale in enumerate((pair.above, pair.below), start=1):
            limits[1:, 0, number, place] = scale.lowest, scale.highest
    trust = np.array([pair.error**-SHARPNESS for pair in pairs])
    share = (trust / trust.sum())[None, :]
    return LocationScale(
        np.array([horizon_bins]), frame.floor_rps, lines, limits, share, np.empty((1, 0))
    )


def _stride(frame: Frame) -> int:
    least = STRIDE if frame.periods.season_bins > 1000 else 1
    return least * max(1, len(frame) // MANY_BINS)


def _fit_pair(
    frame: Frame,
    features: Values,
    target: Values,
    use: NDArray[np.bool_],
    judged: NDArray[np.bool_],
    *,
    seasonal: bool,
) -> Pair:
    location = _robust(features[use], frame.columns.location(seasonal), target[use])
    distance = target - location(features)
    error = float(np.abs(distance[judged]).mean())
    columns = frame.columns.scale(seasonal)
    above, below = (
        _log_scale(features[use], columns, side) for side in (distance[use], -distance[use])
    )
    return Pair(location, above, below, max(error, 1e-6))


def _log_scale(features: Values, columns: Rows, distance: Values) -> LogScale:
    """Ridge of the log distance of the targets on one side (`distance` >= 0)."""
    side = distance >= 0
    scaled, scale = _scaled(features[np.ix_(side, columns)])
    logs = np.log(distance[side] + 0.01)
    weights, intercept = _ridge(scaled, logs, np.ones(len(logs)))
    low, high = np.quantile(scaled @ weights + intercept, [0.01, 0.99])
    return LogScale(Linear(columns, *scale, weights, intercept), float(low), float(high))


def _robust(features: Values, columns: Rows, target: Values) -> Linear:
    """Huber regression by iterated weights (Huber 1964), its bend at 1.5 robust deviations."""
    scaled, scale = _scaled(features[:, columns])
    weight, before = np.ones(len(target)), np.full(scaled.shape[1], np.inf)
    for _ in range(ROUNDS):
        weights, intercept = _ridge(scaled, target, weight)
        if np.abs(weights - before).max() < SETTLED:
            break
        before = weights
        distance = np.abs(target - scaled @ weights - intercept)
        bend = HUBER * max(1.4826 * float(np.median(distance)), 1e-6)
        weight = np.minimum(1.0, bend / np.maximum(distance, 1e-12))
    return Linear(columns, *scale, weights, intercept)


def _ridge(scaled: Values, target: Values, weight: Values) -> tuple[Values, float]:
    """Weights of the columns, and the intercept."""
    # Only the process that fits pays for scikit-learn's memory; the daemon just uses the result.
    from sklearn import config_context
    from sklearn.linear_model import ridge_regression

    centre, level = (weight @ each / weight.sum() for each in (scaled, target))
    with config_context(assume_finite=True, skip_parameter_validation=True):
        weights: Values = ridge_regression(
            scaled - centre,
            target - level,
            PENALTY * len(target),
            sample_weight=weight,
            solver="cholesky",
            check_input=False,
        )
    return weights, float(level - centre @ weights)


def _scaled(features: Values) -> tuple[Values, tuple[Values, Values]]:
    """Standardised features, and the mean and 1 / deviation of each column."""
    known = np.isfinite(features)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, features, 0.0).sum(axis=0) / count
    deviation = np.sqrt((np.where(known, features - mean, 0.0) ** 2).sum(axis=0) / count)
    inverse = np.where(deviation > 1e-9, 1.0 / np.maximum(deviation, 1e-9), 0.0)
    return _standard(features, mean, inverse), (mean, inverse)


def _standard(features: Values, mean: Values, inverse_sd: Values) -> Values:
    """Features with mean 0 and deviation 1, within 5 deviations; missing ones are 0."""
    scaled: Values = features - mean
    scaled *= inverse_sd
    scaled[~np.isfinite(scaled)] = 0.0
    np.maximum(scaled, -CLIP, out=scaled)
    return np.minimum(scaled, CLIP, out=scaled)
