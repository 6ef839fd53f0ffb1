"""How many replicas the expected load is worth: GPU time against late requests.

A replica costs one GPU-second a second. A late request costs `price` GPU-seconds. With n
replicas and demand x the late requests per second are x r_n(x / (n cap)), r from the risk
table, averaged over the forecast. The n-th replica is worth having while it saves more than
it costs, on the lower convex hull of that curve: the risk itself is not convex (below full
load nearly everything is late, so one replica more saves little and ten save all).
"""

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from controller.core.risk import RiskTable
from controller.core.types import Forecast
from controller.core.windows import Values

MOST_BUSY = 0.9


@dataclass(frozen=True, slots=True)
class Backlog:
    """Requests expected to be waiting when the replicas asked for now are ready, and the
    median demand then."""

    requests: float
    demand_rps: float


def need(
    forecast: Forecast,
    risk: RiskTable,
    capacity_rps: float,
    price: float,
    most: int,
    extra_rps: float = 0.0,
) -> int:
    """The largest n for which the n-th replica saves more than it costs; at most `most`.

    Never fewer than carry the median demand at 90 % of their capacity, whatever the price: a
    queue that only grows is never worth its saving.
    Loads are the forecast's quantiles, each standing for the probability around it, plus
    `extra_rps`. Work is bounded: counts from none to what the largest load could use.
    """
    demand = np.array(forecast.quantiles) + extra_rps
    weight = weights(forecast.probabilities)
    late = [float(weight @ demand)]
    for replicas in range(1, most + 1):
        rho = demand / (replicas * capacity_rps)
        late.append(float(weight @ (demand * risk.risk(replicas, rho))))
        if rho[-1] < 0.5:
            break
    carried = ceil((forecast.at(0.5) + extra_rps) / (MOST_BUSY * capacity_rps))
    return min(max(_worth(np.array(late), price), carried), most)


def weights(probabilities: tuple[float, ...]) -> Values:
    """The probability that each quantile stands for: half way to its neighbours."""
    inner = np.array(probabilities)
    edges = np.concatenate([[0.0], (inner[1:] + inner[:-1]) / 2, [1.0]])
    return np.diff(edges)


def extra_demand_rps(
    backlog: Backlog, replicas: int, capacity_rps: float, ttft_s: float, price: float, lead_s: float
) -> float:
    """Demand to add so that a backlog is worked off at the least cost.

    k extra replicas cost k L GPU-seconds to start and leave the backlog B for B / (k cap)
    seconds, during which x price late requests a second come in; the least total is at
    k = sqrt(price x B / (cap L)). Worked: price 24, x 10, B 100, cap 1.64, L 120 give
    k = 11 (`test_worked_backlog`). What drains within the SLO anyway is no backlog.
    """
    excess = backlog.requests - ttft_s * replicas * capacity_rps
    if excess <= 0:
        return 0.0
    extra = sqrt(price * max(backlog.demand_rps, 1e-9) * excess / (capacity_rps * lead_s))
    return capacity_rps * extra


def projected_backlog(
    queued: float,
    demand_rps: float,
    capacity_rps: float,
    ready: int,
    arrivals_in_s: tuple[float, ...],
    horizon_s: float,
) -> float:
    """Requests still waiting `horizon_s` from now if demand stays at its median, with the
    replicas that will have arrived (seconds until each is ready) at work."""
    served = capacity_rps * ready * horizon_s
    served += sum(capacity_rps * max(horizon_s - wait_s, 0.0) for wait_s in arrivals_in_s)
    return max(0.0, queued + demand_rps * horizon_s - served)


def _worth(late: Values, price: float) -> int:
    """The largest n on the lower hull of `late` whose last step saves over 1 / price."""
    chosen = 0
    start = 0
    while start < len(late) - 1:
        steps = (late[start] - late[start + 1 :]) / np.arange(1, len(late) - start)
        best = int(len(steps) - 1 - np.argmax(steps[::-1]))
        if price * steps[best] <= 1.0:
            break
        start = chosen = start + best + 1
    return chosen
