"""How many replicas the expected load is worth: GPU time against late requests.

A replica costs one GPU-second a second. A late request costs `price` GPU-seconds. With n
replicas and demand x the late requests per second are x r_n(x / (n cap)), r from the risk
table, averaged over the forecast. Of all n the one that costs least in total is taken: a walk
that stopped at the first replica not worth having would give up under overload, where nearly
everything is late, one replica more saves little and ten save all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, sqrt

import numpy as np
from numpy.typing import NDArray

from controller.core.risk import RiskTable
from controller.core.types import Forecast
from controller.core.windows import Values

MOST_BUSY = 0.9
KEEP = 1.1
IDLE = 0.5  # no more replicas are looked at than make the largest load half of their capacity


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
    held: int = 0,
) -> int:
    """The need of one forecast, as `needs` says."""
    return needs([forecast], risk, capacity_rps, price, most, [extra_rps], held)[0]


def needs(
    forecasts: Sequence[Forecast],
    risk: RiskTable,
    capacity_rps: float,
    price: float,
    most: int,
    extra_rps: Sequence[float],
    held: int = 0,
) -> list[int]:
    """For each forecast (all at the same probabilities) the number of replicas, at most `most`,
    that costs least with its late requests.

    Never fewer than carry the median demand at 90 % of their capacity, whatever the price: a
    queue that only grows is never worth its saving.
    Loads are a forecast's quantiles, each standing for the probability around it, plus its
    `extra_rps`. Of the `held` replicas one is given up only if it would not be worth having at
    a price a tenth higher, so that a need on the edge does not flap. Work is bounded: counts
    from none to what the largest load could use.
    """
    demand = np.array([made.quantiles for made in forecasts]) + np.array(extra_rps)[:, None]
    enough = [min(most, floor(top / (IDLE * capacity_rps)) + 1) for top in demand[:, -1].tolist()]
    widest = max(enough)
    late = risk.risk((demand / capacity_rps).ravel(), widest).reshape(widest + 1, *demand.shape)
    demand *= price * weights(forecasts[0].probabilities)
    late_cost = np.matmul(late.transpose(1, 0, 2), demand[:, :, None])[:, :, 0]
    found = []
    for place, (made, extra) in enumerate(zip(forecasts, extra_rps, strict=True)):
        cost, counts = late_cost[place, : enough[place] + 1], _counts(enough[place])
        cheapest = int((counts + cost).argmin())
        if cheapest < held:
            cheapest = min(held, int((counts + KEEP * cost).argmin()))
        carried = ceil((made.at(0.5) + extra) / (MOST_BUSY * capacity_rps))
        found.append(min(max(cheapest, carried), most))
    return found


@lru_cache(maxsize=256)
def _counts(most: int) -> NDArray[np.int64]:
    return np.arange(most + 1)


@lru_cache(maxsize=8)
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
