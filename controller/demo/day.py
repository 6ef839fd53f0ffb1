"""The compressed day: a seeded load that rises and falls, six ramps, and the law it meets."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from serve_app.arrivals import Arrivals
from serve_app.law import Law
from serve_app.recipe import Recipe

Floats = NDArray[np.float64]

SEASON_S = 174.0
WARM_UP_S = 12.0
TTFT_S = 1.0
ATTAINMENT = 0.99
MIN_REPLICAS = 2
MAX_REPLICAS = 10
COLD_START_S = 12.0
LOAD_S = 9.0
PROMPT_TOKENS = 200.0
OUTPUT_TOKENS = 40.0
CHUNK_TOKENS = 20
LAW = Law(slots=6, beta=0.06, prefill_tokens_per_s=2400.0, token_s=0.08)

# Loads of a day's levels, in replicas kept wholly busy, and when each ramp begins on average
# in each part of the day; a ramp moves by up to one cold start, either way.
LEVELS = (1.4, 4.3, 7.2)
PARTS = 3
RISES_S = (12.0, 29.0)
FALL_S = 44.0
RAMP_S = 2.0
FALLING_S = 3.0
SHORTEST_PEAK_S = 6.0
BURST_CV = 0.15
BURST_S = 3.0


@dataclass(frozen=True)
class Ramp:
    """A rise of the load: when it begins, and from which load to which, in busy replicas."""

    begins_s: float
    before: float
    after: float


@dataclass(frozen=True)
class Day:
    """One day's requests, warm-up included, with second 0 where the warm-up ends."""

    seed: int
    arrivals: Arrivals
    ramps: tuple[Ramp, ...]

    @property
    def times_s(self) -> Floats:
        """Arrivals relative to the end of the warm-up."""
        return self.arrivals.arrival_s - WARM_UP_S


def mean_work_s() -> float:
    """Work of a mean request, alone."""
    return PROMPT_TOKENS / LAW.prefill_tokens_per_s + OUTPUT_TOKENS * LAW.token_s


def level_rps(busy: float) -> float:
    """Requests per second that keep so many replicas wholly busy."""
    return busy * LAW.capacity_rps(mean_work_s())


def make_day(seed: int, move_s: float = COLD_START_S) -> Day:
    """A day from its seed; each ramp moves by up to `move_s`, but they stay in order."""
    rng = np.random.default_rng(seed)
    ramps, points = [], [(0.0, LEVELS[0]), (WARM_UP_S, LEVELS[0])]
    for part in range(PARTS):
        begin_s = WARM_UP_S + part * SEASON_S / PARTS
        moves = rng.uniform(-move_s, move_s, len(RISES_S))
        times = np.sort(begin_s + np.array(RISES_S) + moves)
        times = np.maximum(times, points[-1][0] + RAMP_S)
        for place, at_s in enumerate(times):
            at_s = max(float(at_s), points[-1][0] + 0.5)
            ramps.append(Ramp(at_s - WARM_UP_S, LEVELS[place], LEVELS[place + 1]))
            points += [(at_s, LEVELS[place]), (at_s + RAMP_S, LEVELS[place + 1])]
        falls_s = max(begin_s + FALL_S, points[-1][0] + SHORTEST_PEAK_S)
        points += [(falls_s, LEVELS[-1]), (falls_s + FALLING_S, LEVELS[0])]
    points.append((WARM_UP_S + SEASON_S, LEVELS[0]))
    recipe = Recipe(
        rate=tuple((at_s, level_rps(busy)) for at_s, busy in points),
        burst_cv=BURST_CV,
        burst_s=BURST_S,
        prompt_mean=PROMPT_TOKENS,
        prompt_cv=0.5,
        output_mean=OUTPUT_TOKENS,
        output_cv=0.4,
        max_tokens=2000,
    )
    return Day(seed, recipe.draw(rng), tuple(ramps))


def history_seeds(seed: int) -> tuple[int, ...]:
    """The seeds of the six earlier days that belong to a day."""
    return tuple(1_000_000 + 100 * seed + k for k in range(6))
