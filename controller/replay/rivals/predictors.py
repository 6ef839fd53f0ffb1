"""Forecasts of the next value of a series, one value at a time. Compiled.

The three that Dynamo's planner offers (ai-dynamo, planner/core/load/predictors.py): the last value;
a Kalman filter with level and trend, level noise 1.0, trend noise 0.1, measurement noise 10; and
ARIMA, for which an auto-regression on three values with a constant stands here, fitted by recursive
least squares to the whole past and begun as a random walk. Leading zeros are skipped; the
auto-regression answers with the last value until it has five.
"""

import math

from controller.replay.compiled import compiled
from controller.replay.trace import Floats

LAST_VALUE, AUTO_REGRESSION, KALMAN = 0, 1, 2

Q_LEVEL, Q_TREND, R, VARIANCE = 1.0, 0.1, 10.0, 1000.0
"""Dynamo's defaults; the first three also hold for a rate, as only their ratios matter."""

LAGS = 3
TERMS = LAGS + 1
LEAST_VALUES = 5
PRIOR_VARIANCE = 1.0
GREATEST_GROWTH = 4.0
"""An auto-regression may not forecast more than four times the last value."""

COUNT, RECENT = 0, 1
LEVEL = RECENT + LAGS
TREND, P_LEVEL, P_CROSS, P_TREND = LEVEL + 1, LEVEL + 2, LEVEL + 3, LEVEL + 4
WEIGHTS = P_TREND + 1
GAIN = WEIGHTS + TERMS
COVARIANCE = GAIN + TERMS
PREDICTOR_LENGTH = COVARIANCE + TERMS * TERMS
"""Numbers of memory that a predictor takes."""


@compiled
def filter_value(memory: Floats, base: int, value: float) -> None:
    """Kalman: predict one step, then update by the value. The first value is the level itself."""
    if memory[base + COUNT] == 0:
        memory[base + LEVEL] = value
        memory[base + P_LEVEL] = memory[base + P_TREND] = VARIANCE
        return
    p_level, p_cross, p_trend = (
        memory[base + P_LEVEL],
        memory[base + P_CROSS],
        memory[base + P_TREND],
    )
    p_level, p_cross = p_level + 2 * p_cross + p_trend + Q_LEVEL, p_cross + p_trend
    p_trend += Q_TREND
    level = memory[base + LEVEL] + memory[base + TREND]
    error, spread = value - level, p_level + R
    memory[base + LEVEL] = level + p_level / spread * error
    memory[base + TREND] += p_cross / spread * error
    memory[base + P_TREND] = p_trend - p_cross * p_cross / spread
    memory[base + P_CROSS] = p_cross * R / spread
    memory[base + P_LEVEL] = p_level * R / spread


@compiled
def term(memory: Floats, base: int, k: int) -> float:
    """What weight k multiplies: the k-th last value, or one."""
    return float(memory[base + RECENT + k]) if k < LAGS else 1.0


@compiled
def regressed(memory: Floats, base: int) -> float:
    """The auto-regression's forecast from the last three values."""
    total = 0.0
    for k in range(TERMS):
        total += memory[base + WEIGHTS + k] * term(memory, base, k)
    return total


@compiled
def regress_value(memory: Floats, base: int, value: float) -> None:
    """Recursive least squares on (last three values -> value); begun as "the same again"."""
    if memory[base + COUNT] == 0:
        memory[base + WEIGHTS] = 1.0
        for k in range(TERMS):
            memory[base + COVARIANCE + k * TERMS + k] = PRIOR_VARIANCE
    if memory[base + COUNT] < LAGS:
        return
    spread = 1.0
    for i in range(TERMS):
        gain = 0.0
        for j in range(TERMS):
            gain += memory[base + COVARIANCE + i * TERMS + j] * term(memory, base, j)
        memory[base + GAIN + i] = gain
        spread += gain * term(memory, base, i)
    error = value - regressed(memory, base)
    for i in range(TERMS):
        gain = memory[base + GAIN + i] / spread
        memory[base + WEIGHTS + i] += gain * error
        for j in range(TERMS):
            memory[base + COVARIANCE + i * TERMS + j] -= gain * memory[base + GAIN + j]


@compiled
def note_value(memory: Floats, base: int, kind: int, value: float) -> None:
    """Take the series' next value; zeros before the first load are skipped."""
    if value == 0 and memory[base + COUNT] == 0:
        return
    if kind == KALMAN:
        filter_value(memory, base, value)
    elif kind == AUTO_REGRESSION:
        regress_value(memory, base, value)
    for k in range(LAGS - 1, 0, -1):
        memory[base + RECENT + k] = memory[base + RECENT + k - 1]
    memory[base + RECENT] = value
    memory[base + COUNT] += 1


@compiled
def predict(memory: Floats, base: int, kind: int, steps: float) -> float:
    """The value `steps` ahead by level and trend, else the next value; never negative or NaN."""
    last = memory[base + RECENT]
    found = last
    if kind == KALMAN:
        found = memory[base + LEVEL] + steps * memory[base + TREND]
    elif kind == AUTO_REGRESSION and memory[base + COUNT] >= LEAST_VALUES:
        found = min(regressed(memory, base), GREATEST_GROWTH * last)
    return float(max(found, 0.0)) if math.isfinite(found) else 0.0
