"""The share of requests whose first token comes too late, for n replicas under a given load.

A request that finds N present waits (N - n C + 1) / (n cap) behind a full cluster, not at all
otherwise, and then needs its prefill, slowed by those it shares the replica with. Arrivals see
time averages (Wolff 1982), so the time average of the chance of being late over the law of N
(see `queueing`) is the share of late requests.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import log

import numpy as np
from numpy.typing import NDArray

from controller.core.capacity import CapacityLaw
from controller.core.queueing import Queues, mean_law
from controller.core.windows import Values

LOADS: Values = np.concatenate([np.linspace(0.1, 0.6, 6), np.linspace(0.65, 1.3, 27), [1.5, 2.0]])
GRID_STEP = 0.025
GRID: Values = np.linspace(0.0, 2.0, 81)
ALL_COMPUTED = 12


@dataclass(frozen=True, slots=True)
class Lateness:
    """When a first token is late: after `ttft_s`, of which the prefill alone takes
    `prefill_s` on an idle replica."""

    ttft_s: float
    prefill_s: float


class RiskTable:
    """Share of late requests by number of replicas and load; made as far as it is asked for.

    Laws within a quarter of each other share a table: it is one of loads relative to capacity,
    which is hardly another then.
    """

    def __init__(self, law: CapacityLaw, lateness: Lateness, horizon_s: float) -> None:
        self._law = CapacityLaw(law.slots, _rounded(law.work_s), 0.05 * round(law.beta / 0.05))
        self._lateness = Lateness(lateness.ttft_s, _rounded(max(lateness.prefill_s, 1e-3)))
        self._horizon_s = horizon_s

    def risk(self, demand: Values, most: int) -> Values:
        """Share of late requests for each number of replicas from 0 to `most` under each
        demand, in units of what one replica completes; shape (most + 1, len(demand))."""
        table = _table(_enough(most), self._law, self._lateness, self._horizon_s)
        steps, first = _rows(most)
        place = demand / steps
        np.minimum(place, len(GRID) - 1.001, out=place)
        left = place.astype(np.int64)
        place -= left
        left += first
        low = table.take(left)
        left += 1
        place *= table.take(left) - low
        place += low
        return place


@lru_cache(maxsize=256)
def _rows(most: int) -> tuple[Values, NDArray[np.int64]]:
    """For each number of replicas the demand that one step of GRID is, and where its row begins
    in a table."""
    counts = np.arange(most + 1)[:, None]
    return np.maximum(counts, 1) * GRID_STEP, counts * len(GRID)


def _enough(most: int) -> int:
    """A size of table that is not outgrown at every tick."""
    size = 64
    while size < most:
        size *= 4
    return size


def _rounded(value: float) -> float:
    """To the nearest power of 1.25."""
    return float(1.25 ** round(log(value) / log(1.25)))


@lru_cache(maxsize=128)
def _table(most: int, law: CapacityLaw, lateness: Lateness, horizon_s: float) -> Values:
    """Risk on GRID for 0 to `most` replicas, one after the other in one dimension.

    Sizes to 12 are computed, then in steps of about a sixth, those between interpolated.
    """
    sizes = list(range(1, ALL_COMPUTED + 1))
    while sizes[-1] < most:
        sizes.append(min(sizes[-1] + max(1, sizes[-1] // 6), most))
    rows = _computed(np.array(sizes), law, lateness, horizon_s)
    on_grid = np.array([np.interp(GRID, LOADS, row, left=0.0) for row in rows])
    table = np.ones((most + 1, len(GRID)))
    for column, values in enumerate(on_grid.T):
        table[1:, column] = np.interp(np.arange(1, most + 1), sizes, values)
    return table.ravel()


def _computed(sizes: Values, law: CapacityLaw, lateness: Lateness, horizon_s: float) -> Values:
    """Risk at each of LOADS for each number of replicas in `sizes`."""
    queues = Queues.of(sizes, law, lateness.ttft_s)
    mean = mean_law(queues, LOADS, horizon_s)
    risk = np.einsum("nsl,ns->sl", mean, _late(queues, sizes, law, lateness))
    made: Values = np.maximum.accumulate(risk, axis=1)
    return made


def _late(queues: Queues, sizes: Values, law: CapacityLaw, lateness: Lateness) -> Values:
    """Chance of being late for a request that finds N present. The prefill of a request is
    taken as exponential around its mean, prompts being of very different lengths."""
    waiting = np.maximum(queues.present - queues.full + 1.0, 0.0)
    sharing = np.minimum(queues.present // sizes + 1.0, law.slots)
    prefill_s = lateness.prefill_s * (1.0 + law.beta * np.maximum(sharing - 1.0, 0.0))
    left_s = np.maximum(lateness.ttft_s - waiting / queues.full_rps, 0.0)
    return np.where(left_s > 0, np.exp(-left_s / np.maximum(prefill_s, 1e-6)), 1.0)
