"""The compressed day: a seeded load that rises and falls, six ramps, and the law it meets."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.demo.script import STANDIN, Script
from serve_app.arrivals import Arrivals
from serve_app.recipe import Recipe

Floats = NDArray[np.float64]

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
    script: Script
    arrivals: Arrivals
    ramps: tuple[Ramp, ...]

    @property
    def times_s(self) -> Floats:
        """Arrivals relative to the end of the warm-up."""
        return self.arrivals.arrival_s - self.script.warm_up_s


def make_day(seed: int, script: Script = STANDIN) -> Day:
    """A day from its seed; each ramp moves by up to `moved_by_s`, but they stay in order."""
    rng = np.random.default_rng(seed)
    levels, warm_up_s = script.levels, script.warm_up_s
    ramps, points = [], [(0.0, levels[0]), (warm_up_s, levels[0])]
    for part in range(script.parts):
        begin_s = warm_up_s + part * script.part_s
        moves = rng.uniform(-script.moved_by_s, script.moved_by_s, len(script.rises_s))
        times = np.sort(begin_s + np.array(script.rises_s) + moves)
        times = np.maximum(times, points[-1][0] + script.ramp_s)
        for place, at_s in enumerate(times):
            at_s = max(float(at_s), points[-1][0] + 0.5)
            ramps.append(Ramp(at_s - warm_up_s, levels[place], levels[place + 1]))
            points += [(at_s, levels[place]), (at_s + script.ramp_s, levels[place + 1])]
        falls_s = max(begin_s + script.fall_s, points[-1][0] + script.shortest_peak_s)
        points += [(falls_s, levels[-1]), (falls_s + script.falling_s, levels[0])]
    points.append((warm_up_s + script.season_s, levels[0]))
    recipe = Recipe(
        rate=tuple((at_s, busy * script.capacity_rps) for at_s, busy in points),
        burst_cv=BURST_CV,
        burst_s=BURST_S,
        prompt_mean=script.prompt_tokens,
        prompt_cv=0.5,
        output_mean=script.output_tokens,
        output_cv=0.4,
        max_tokens=2000,
    )
    return Day(seed, script, recipe.draw(rng), tuple(ramps))


def history_seeds(seed: int) -> tuple[int, ...]:
    """The seeds of the six earlier days that belong to a day."""
    return tuple(1_000_000 + 100 * seed + k for k in range(6))
