"""Additive Holt-Winters, one value at a time, inside a rule's memory. Compiled.

The usual recursions (level, trend, season) with fixed weights; they begin when one season has been
seen, with its mean as the level, no trend, and what is left of each value as the season. A state of
`period` values a season takes `smoothing_length(period)` numbers.
"""

import math

from controller.replay.compiled import compiled
from controller.replay.trace import Floats

COUNT, LEVEL, TREND, SEASON = 0, 1, 2, 3
EXTRA_VALUES = 10
"""statsmodels wants 10 + 2 (period // 2) values, and so PHPA predicts nothing before."""


def smoothing_length(period: int) -> int:
    """Numbers of memory that the state takes."""
    return SEASON + period


@compiled
def begin(memory: Floats, base: int, period: int) -> None:
    """The first season is complete: split it into a level and a season."""
    total = 0.0
    for k in range(period):
        total += memory[base + SEASON + k]
    level = total / period
    for k in range(period):
        memory[base + SEASON + k] -= level
    memory[base + LEVEL], memory[base + TREND] = level, 0.0


@compiled
def smooth(
    memory: Floats, base: int, period: int, value: float, alpha: float, beta: float, gamma: float
) -> None:
    """Take the next value."""
    count = int(memory[base + COUNT])
    place = base + SEASON + count % period
    memory[base + COUNT] += 1
    if count < period:
        memory[place] = value
        if count == period - 1:
            begin(memory, base, period)
        return
    before, trend, season = memory[base + LEVEL], memory[base + TREND], memory[place]
    level = alpha * (value - season) + (1 - alpha) * (before + trend)
    memory[base + LEVEL] = level
    memory[base + TREND] = beta * (level - before) + (1 - beta) * trend
    memory[place] = gamma * (value - before - trend) + (1 - gamma) * season


@compiled
def ahead(memory: Floats, base: int, period: int, steps: int) -> float:
    """The value `steps` after the last one; NaN before 10 + 2 (period // 2) values."""
    count = int(memory[base + COUNT])
    if count < EXTRA_VALUES + 2 * (period // 2):
        return math.nan
    season = memory[base + SEASON + (count + steps - 1) % period]
    return float(memory[base + LEVEL] + steps * memory[base + TREND] + season)
