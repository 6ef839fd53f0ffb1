"""The share of requests whose first token comes too late, for n replicas under a given load.

A birth-death chain of the N requests present (arrivals Poisson, N spread evenly over the
replicas, each of k on a replica advancing at v(k)) is followed for `horizon_s` from its
stationary law at min(rho, 0.85), so that the risk exists above rho = 1 too. A request that
finds N waits (N - n C + 1) / (n cap) behind a full cluster, not at all otherwise, and then
needs its prefill, slowed by those it shares the replica with. Arrivals see time averages
(Wolff 1982), so the time average of the chance of being late is the share of late requests.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log, sqrt

import numpy as np

from controller.core.capacity import CapacityLaw
from controller.core.windows import Values

START_RHO = 0.85
STEPS = 24
LOADS: Values = np.concatenate([np.linspace(0.1, 0.6, 6), np.linspace(0.65, 1.3, 27), [1.5, 2.0]])
GRID_STEP = 0.025
GRID: Values = np.linspace(0.0, 2.0, 81)


@dataclass(frozen=True, slots=True)
class Lateness:
    """When a first token is late: after `ttft_s`, of which the prefill alone takes
    `prefill_s` on an idle replica."""

    ttft_s: float
    prefill_s: float


class RiskTable:
    """Share of late requests by number of replicas and load; made as far as it is asked for.

    Laws within 5 % of each other share a table.
    """

    def __init__(self, law: CapacityLaw, lateness: Lateness, horizon_s: float) -> None:
        self._key = (
            _rounded(law.slots),
            _rounded(law.work_s),
            round(law.beta, 2),
            lateness.ttft_s,
            _rounded(max(lateness.prefill_s, 1e-3)),
            horizon_s,
        )

    def risk(self, demand: Values, most: int) -> Values:
        """Share of late requests for each number of replicas from 0 to `most` under each
        demand, in units of what one replica completes; shape (most + 1, len(demand))."""
        table = _table(_bracket(most)[1], *self._key)[: most + 1]
        counts = np.arange(most + 1)[:, None]
        place = demand / (np.maximum(counts, 1) * GRID_STEP)
        np.minimum(place, len(GRID) - 1.001, out=place)
        left = place.astype(np.int64)
        place -= left
        left += counts * len(GRID)
        flat = table.ravel()
        low = flat[left]
        left += 1
        risk: Values = low + place * (flat[left] - low)
        return risk


def _bracket(replicas: int) -> tuple[int, int]:
    """The computed sizes around a number: every one to 12, then steps of about a sixth."""
    size = 12
    if replicas <= size:
        return replicas, replicas
    while True:
        larger = size + max(1, size // 6)
        if replicas <= larger:
            return (larger, larger) if replicas == larger else (size, larger)
        size = larger


def _rounded(value: float) -> float:
    """To the nearest power of 1.05."""
    return float(1.05 ** round(log(value) / log(1.05)))


@lru_cache(maxsize=256)
def _table(most: int, *key: float) -> Values:
    """Risk on GRID for 0 to `most` replicas, which is one of the computed sizes."""
    table = np.ones((most + 1, len(GRID)))
    for replicas in range(1, most + 1):
        below, above = _bracket(replicas)
        low, high = (np.interp(GRID, LOADS, _row(n, *key), left=0.0) for n in (below, above))
        share = (replicas - below) / (above - below) if above > below else 0.0
        table[replicas] = low + share * (high - low)
    return table


@lru_cache(maxsize=4096)
def _row(
    replicas: int,
    slots: float,
    work_s: float,
    beta: float,
    ttft_s: float,
    prefill_s: float,
    horizon_s: float,
) -> Values:
    """Risk at each of LOADS."""
    law = CapacityLaw(slots, work_s, beta)
    full = ceil(replicas * slots)
    cluster_rps = replicas * law.capacity_rps
    beyond = ceil((ttft_s + 10.0) * cluster_rps + 4.0 * sqrt(full)) + 2
    present = np.arange(full + beyond, dtype=np.float64)
    each = np.minimum(present / replicas, slots)
    served = np.where(
        present < full,
        present / (work_s * (1.0 + beta * np.maximum(each - 1.0, 0.0))),
        cluster_rps,
    )
    late = _late(present, full, cluster_rps, law, replicas, Lateness(ttft_s, prefill_s))
    law_at = _stationary(np.minimum(LOADS, START_RHO) * cluster_rps, served)
    mean = _time_average(LOADS * cluster_rps, served, law_at, horizon_s)
    risk: Values = mean @ late
    return np.maximum.accumulate(risk)


def _late(
    present: Values,
    full: int,
    cluster_rps: float,
    law: CapacityLaw,
    replicas: int,
    lateness: Lateness,
) -> Values:
    """Chance of being late for a request that finds N present. The prefill of a request is
    taken as exponential around its mean, prompts being of very different lengths."""
    wait_s = np.where(present < full, 0.0, (present - full + 1.0) / cluster_rps)
    sharing = np.minimum(present // replicas + 1.0, law.slots)
    prefill_s = lateness.prefill_s * (1.0 + law.beta * np.maximum(sharing - 1.0, 0.0))
    left_s = np.maximum(lateness.ttft_s - wait_s, 0.0)
    chance: Values = np.where(left_s > 0, np.exp(-left_s / np.maximum(prefill_s, 1e-6)), 1.0)
    return chance


def _stationary(arriving: Values, served: Values) -> Values:
    """Stationary laws, one row an arrival rate, by detailed balance in logs."""
    steps = np.log(arriving)[:, None] - np.log(served[1:])[None, :]
    logs = np.concatenate([np.zeros((len(arriving), 1)), np.cumsum(steps, axis=1)], axis=1)
    law = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(law / law.sum(axis=1, keepdims=True))


def _time_average(arriving: Values, served: Values, law: Values, horizon_s: float) -> Values:
    """Mean law over the horizon by implicit Euler steps (the matrix is tridiagonal, Thomas).

    Steps grow geometrically from a fraction of a service time.
    """
    edges = horizon_s * (np.geomspace(1.0, 65.0, STEPS + 1) - 1.0) / 64.0
    mean = np.zeros_like(law)
    for step_s in np.diff(edges):
        law = _implicit_step(arriving, served, law, float(step_s))
        mean += law * (step_s / horizon_s)
    return mean


def _implicit_step(arriving: Values, served: Values, law: Values, step_s: float) -> Values:
    """Solve (1 - step Q) p' = p for every row of `law`."""
    up = step_s * arriving
    down = step_s * served
    count = law.shape[1]
    diagonal = 1.0 + up[None, :] + down[:, None]
    diagonal[-1] -= up
    ratio = np.empty((count, len(arriving)))
    right = np.empty((count, len(arriving)))
    columns = law.T
    ratio[0] = -down[1] / diagonal[0]
    right[0] = columns[0] / diagonal[0]
    for n in range(1, count):
        pivot = diagonal[n] + up * ratio[n - 1]
        if n + 1 < count:
            ratio[n] = -down[n + 1] / pivot
        right[n] = (columns[n] + up * right[n - 1]) / pivot
    for n in range(count - 2, -1, -1):
        right[n] -= ratio[n] * right[n + 1]
    return right.T
