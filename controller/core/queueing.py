"""How many requests are present in a cluster of n replicas: birth-death chains, many at once.

Arrivals are Poisson, N requests present are spread evenly over the replicas, each of k on one
advancing at v(k). The law of N is followed for a while from its stationary law at a load of at
most 0.85, so that it exists above a load of 1 too. Large clusters are followed on every g-th
number only, with rates that keep the drift l - m and the variance l + m of the chain
(exponential fitting: Scharfetter and Gummel 1969).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.core.capacity import CapacityLaw
from controller.core.windows import Values

START_RHO = 0.85
STEPS = 24
FINEST = 96  # numbers kept up to a full cluster
BEYOND_S = 3.0  # how far past the SLO the queue is followed


@dataclass(frozen=True, eq=False)
class Queues:
    """S clusters side by side, each on its own lattice of at most N numbers.

    `present` (N, S) is the number of requests, `inside` (N, S) whether it is followed,
    `served_rps` (N, S) how many are completed there, `step` (S,) the distance of two numbers,
    `full` (S,) how many fill every slot and `full_rps` (S,) what is completed then.
    """

    present: Values
    inside: NDArray[np.bool_]
    served_rps: Values
    step: Values
    full: Values
    full_rps: Values

    @classmethod
    def of(cls, sizes: Values, law: CapacityLaw, ttft_s: float) -> "Queues":
        """Clusters of `sizes` replicas, followed until a first token is long late."""
        full = np.ceil(sizes * law.slots)
        full_rps = sizes * law.capacity_rps
        step = np.maximum(full // FINEST, 1.0)
        last = full + (ttft_s + BEYOND_S) * full_rps + 4.0 * np.sqrt(full) + 2.0
        count = np.ceil(last / step)
        number = np.arange(int(count.max()))[:, None]
        present = number * step
        each = np.minimum(present / sizes, law.slots)
        slowed = law.work_s * (1.0 + law.beta * np.maximum(each - 1.0, 0.0))
        served = np.where(present < full, present / slowed, full_rps)
        return cls(present, number < count, served, step, full, full_rps)

    def rates(self, load: Values) -> tuple[Values, Values]:
        """Rates (per second) of going one number up and down, shape (N, S, loads)."""
        arriving = load * self.full_rps[:, None]
        served, step = self.served_rps[:, :, None], self.step[:, None]
        spread, pull = arriving + served, 2.0 * step * (arriving - served)
        pull = pull / spread
        width = spread / (2.0 * step * step)
        up = np.where(step > 1, width * _bernoulli(-pull), arriving)
        down = np.where(step > 1, width * _bernoulli(pull), served)
        down[0] = 0.0
        up[:-1] *= self.inside[1:, :, None]
        up[-1] = 0.0
        return up, down * self.inside[:, :, None]


def mean_law(queues: Queues, loads: Values, horizon_s: float) -> Values:
    """The law of the number present, averaged over the horizon, shape (N, S, loads).

    Implicit Euler steps that grow geometrically from a fraction of a service time.
    """
    law = _stationary(queues, np.minimum(loads, START_RHO))
    up, down = queues.rates(loads)
    mean = np.zeros_like(law)
    edges = horizon_s * (np.geomspace(1.0, 65.0, STEPS + 1) - 1.0) / 64.0
    for step_s in np.diff(edges):
        law = _implicit_step(step_s * up, step_s * down, law)
        mean += law * (step_s / horizon_s)
    return mean


def _stationary(queues: Queues, loads: Values) -> Values:
    """Stationary laws by detailed balance, in logarithms."""
    up, down = queues.rates(loads)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.log(up[:-1]) - np.log(down[1:])
    steps[~queues.inside[1:]] = -np.inf
    logs = np.concatenate([np.zeros_like(up[:1]), np.cumsum(steps, axis=0)])
    law = np.exp(logs - logs.max(axis=0))
    return np.asarray(law / law.sum(axis=0))


def _implicit_step(up: Values, down: Values, law: Values) -> Values:
    """Solve (1 - Q) p' = p, tridiagonal in the first axis, by Thomas's elimination."""
    count = len(law)
    pivot = 1.0 + up + down
    ratio = np.empty_like(law)
    solved = np.array(law)
    for n in range(count):
        if n:
            pivot[n] -= up[n - 1] * ratio[n - 1]
            solved[n] += up[n - 1] * solved[n - 1]
        solved[n] /= pivot[n]
        if n + 1 < count:
            np.divide(down[n + 1], pivot[n], out=ratio[n])
    for n in range(count - 2, -1, -1):
        solved[n] += ratio[n] * solved[n + 1]
    return solved


def _bernoulli(x: Values) -> Values:
    """x / (exp(x) - 1), 1 at 0."""
    small = np.abs(x) < 1e-6
    safe = np.where(small, 1.0, x)
    return np.where(small, 1.0 - x / 2, safe / np.expm1(safe))
