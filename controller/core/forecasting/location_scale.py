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

from controller.core.forecasting.features import Columns, Frame, Rows
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


@dataclass(frozen=True, eq=False)
class LogScale:
    """Log of the typical distance on one side of the location, within what training saw."""

    line: Linear
    lowest: float
    highest: float


@dataclass(frozen=True, eq=False)
class Pair:
    """Location and log scale, with or without what past seasons say. `error` weighs pairs and
    `said` is what the three say of the judged rows, shape (3, rows)."""

    location: Linear
    above: LogScale
    below: LogScale
    error: float
    said: Values


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


def fit(
    frame: Frame, horizons: Sequence[int], probabilities: Values
) -> tuple[LocationScale | None, ...]:
    """A model for each horizon, learned from every sixth bin of a frame, from every twelfth of
    one over ten days; None where fewer than 120 rows have targets.

    Seasonal features come in only once a whole season of rows has them: a column empty in
    training and filled in use is worse than none (1.29 against 0.86 pinball with exactly one
    day of history).
    """
    rows = np.arange(0, max(len(frame) - min(horizons), 0), _stride(frame))
    rows = rows[rows >= frame.periods.recent_bins[-1]]
    rows = rows[np.isfinite(frame.levels[rows])]
    if len(rows) < MIN_ROWS:
        return (None,) * len(horizons)
    features = frame.recent(rows)
    made = []
    for horizon_bins in horizons:
        frame.turn(features, rows, horizon_bins)
        target = frame.target(rows, horizon_bins)
        known = np.isfinite(target)
        learned = features[known], target[known]
        enough = known.sum() >= MIN_ROWS
        made.append(_fitted(frame, horizon_bins, *learned, probabilities) if enough else None)
    return tuple(made)


def _fitted(
    frame: Frame, horizon_bins: int, features: Values, target: Values, probabilities: Values
) -> LocationScale:
    seasoned = np.isfinite(features[:, frame.columns.seasonal])
    has_season = seasoned.sum() >= max(MIN_ROWS, 0.9 * frame.periods.season_bins / _stride(frame))
    judged = seasoned if has_season else np.ones(len(target), dtype=bool)
    pairs = [_fit_pair(frame.columns, features, target, judged, seasonal=False)]
    if has_season:
        features, target, judged = features[judged], target[judged], judged[judged]
        pairs.append(_fit_pair(frame.columns, features, target, judged, seasonal=True))
    model = _assembled(frame, horizon_bins, pairs)
    location, above, below = np.tensordot(model.share[0], [pair.said for pair in pairs], 1)
    distance = target[judged] - location
    scores = distance / np.exp(np.where(distance >= 0, above, below))
    shape = np.quantile(np.clip(scores, -6, 6), probabilities)
    return replace(model, shape=shape[None, :])


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
    columns: Columns,
    features: Values,
    target: Values,
    judged: NDArray[np.bool_],
    *,
    seasonal: bool,
) -> Pair:
    location, there = _robust(features, columns.location(seasonal), target)
    distance = target - there
    restless = columns.scale(seasonal)
    scaled, scale = _scaled(features[:, restless])
    sides = [_log_scale(scaled, side) for side in (distance, -distance)]
    above, below = (LogScale(Linear(restless, *scale, *line), *limits) for line, limits, _ in sides)
    said = np.array([there, *(made for _, _, made in sides)])[:, judged]
    error = float(np.abs(distance[judged]).mean())
    return Pair(location, above, below, max(error, 1e-6), said)


def _log_scale(
    scaled: Values, distance: Values
) -> tuple[tuple[Values, float], tuple[float, float], Values]:
    """Ridge of the log distance of the targets on one side (`distance` >= 0), the least and the
    largest value it may take, and what it says of all rows."""
    side = distance >= 0
    logs = np.log(distance[side] + 0.01)
    line = weights, intercept = _ridge(scaled[side], logs, np.ones(len(logs)))
    made = scaled @ weights + intercept
    low, high = np.quantile(made[side], [0.01, 0.99]).tolist()
    return line, (low, high), np.clip(made, low, high)


def _robust(features: Values, columns: Rows, target: Values) -> tuple[Linear, Values]:
    """Huber regression by iterated weights (Huber 1964), its bend at 1.5 robust deviations; and
    what it says of the same rows."""
    scaled, scale = _scaled(features[:, columns])
    weight, before = np.ones(len(target)), np.full(scaled.shape[1], np.inf)
    for _ in range(ROUNDS):
        weights, intercept = _ridge(scaled, target, weight)
        there = scaled @ weights + intercept
        if np.abs(weights - before).max() < SETTLED:
            break
        before = weights
        distance = np.abs(target - there)
        bend = HUBER * max(1.4826 * float(np.median(distance)), 1e-6)
        weight = np.minimum(1.0, bend / np.maximum(distance, 1e-12))
    return Linear(columns, *scale, weights, intercept), there


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
    missing = ~np.isfinite(features)
    count = np.maximum(len(features) - missing.sum(axis=0), 1)
    mean = np.where(missing, 0.0, features).sum(axis=0) / count
    scaled = features - mean
    scaled[missing] = 0.0
    deviation = np.sqrt(np.einsum("rc,rc->c", scaled, scaled) / count)
    inverse = np.where(deviation > 1e-9, 1.0 / np.maximum(deviation, 1e-9), 0.0)
    scaled *= inverse
    return np.clip(scaled, -CLIP, CLIP, out=scaled), (mean, inverse)


def _standard(features: Values, mean: Values, inverse_sd: Values) -> Values:
    """Features with mean 0 and deviation 1, within 5 deviations; missing ones are 0."""
    scaled: Values = features - mean
    scaled *= inverse_sd
    scaled[~np.isfinite(scaled)] = 0.0
    np.maximum(scaled, -CLIP, out=scaled)
    return np.minimum(scaled, CLIP, out=scaled)
