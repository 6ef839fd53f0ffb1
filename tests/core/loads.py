"""Loads with a daily cycle, made from a seed, for the forecasting tests."""

import numpy as np

from controller.core.periods import Periods
from controller.core.windows import Values

DAY = Periods.of_season(86_400, 10)
# A day of 720 bins: every feature is there, and a fortnight is quick to make and to fit.
SHORT_DAY = Periods.of_season(7_200, 10)


def daily(periods: Periods, seasons: float, seed: int, mean_rps: float = 10.0) -> Values:
    """Poisson counts a bin (as rates) around a sine with noise that lasts for minutes."""
    rng = np.random.default_rng(seed)
    count = round(seasons * periods.season_bins)
    phase = 2 * np.pi * np.arange(count) / periods.season_bins
    noise = np.empty(count)
    level = 0.0
    keep = np.exp(-periods.bin_s / 180)
    for position, shock in enumerate(rng.standard_normal(count) * np.sqrt(1 - keep**2)):
        level = keep * level + shock
        noise[position] = level
    rate = mean_rps * (1 + 0.6 * np.sin(phase)) * np.exp(0.15 * noise - 0.01)
    counts: Values = rng.poisson(rate * periods.bin_s).astype(np.float64)
    return counts / periods.bin_s
