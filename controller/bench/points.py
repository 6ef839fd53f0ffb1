"""One run of the bench in numbers: a load that was offered and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan, sqrt

import numpy as np
from numpy.typing import NDArray

from serve_app.load_results import LoadResult

SHORT = 0.05
"""Share of what came that may be left at the end of a load that still counts as carried."""
CHANCE = 2.0
"""Standard deviations of a Poisson count that may be left: in a short run, chance is more."""
GOOD_LINEARITY = 0.9


@dataclass(frozen=True, slots=True)
class Point:
    """`replicas` under `offered_rps`: arrivals, completions and first tokens of the `measured_s`.

    TTFT percentiles are over every request that was sent then: one that got no first token
    counts as later than all others, so that a percentile may be infinite. `failed_ratio` are
    those without a whole answer, rejected ones included.
    """

    replicas: int
    offered_rps: float
    arrived_rps: float
    completed_rps: float
    ttft_p50_s: float
    ttft_p95_s: float
    served_ttft_p95_s: float
    failed_ratio: float
    send_lag_p99_s: float
    measured_s: float

    @property
    def carried(self) -> bool:
        """Whether the load was completed as fast as it came, as far as chance lets one tell."""
        arrived, completed = (r * self.measured_s for r in (self.arrived_rps, self.completed_rps))
        return arrived - completed <= max(SHORT * arrived, CHANCE * sqrt(arrived))


def measured(
    result: LoadResult, replicas: int, offered_rps: float, start_s: float, end_s: float
) -> Point:
    """The numbers of the seconds from `start_s` to `end_s` of a played load.

    A completion counts when its answer ended, a first token when its request was due: a
    backlog from before neither hides in one nor swells the other.
    """
    answered = ~result.failed()
    ended_s = result.scheduled_s + result.e2e_s
    completed = int(np.count_nonzero(answered & (ended_s >= start_s) & (ended_s < end_s)))
    due = (result.scheduled_s >= start_s) & (result.scheduled_s < end_s)
    ttft_s = result.ttft_s[due]
    all_s = np.where(np.isnan(ttft_s), inf, ttft_s)
    served_s = ttft_s[~np.isnan(ttft_s)]
    sent = int(np.count_nonzero(due))
    return Point(
        replicas,
        offered_rps,
        sent / (end_s - start_s),
        completed / (end_s - start_s),
        _percentile(all_s, 50),
        _percentile(all_s, 95),
        _percentile(served_s, 95),
        1.0 - int(np.count_nonzero(answered[due])) / sent if sent else nan,
        _percentile(result.send_lag_s[due & ~np.isnan(result.send_lag_s)], 99),
        end_s - start_s,
    )


@dataclass(frozen=True, slots=True)
class Scaling:
    """What `replicas` carry at most, and that over as many times what the fewest carry each.

    `knee_rps` is the largest load that was completed as it came with its TTFT p95 within the
    SLO, NaN where none was; `saturated` is False where every load was carried, so that
    `throughput_rps` is only what was offered and `linearity` a lower bound. Where the fewest
    replicas were not saturated, linearity is not known (NaN).
    """

    replicas: int
    throughput_rps: float
    knee_rps: float
    linearity: float
    saturated: bool


def scaling(points: Sequence[Point], slo_ttft_s: float) -> list[Scaling]:
    """A row for each number of replicas, fewest first; empty for no points."""
    rows: list[Scaling] = []
    counts = sorted({point.replicas for point in points})
    for count in counts:
        here = [point for point in points if point.replicas == count]
        most = max(point.completed_rps for point in here)
        good = [p.offered_rps for p in here if p.carried and p.ttft_p95_s <= slo_ttft_s]
        each = rows[0].throughput_rps / rows[0].replicas if rows else most / count
        known = each > 0 and (not rows or rows[0].saturated)
        rows.append(
            Scaling(
                count,
                most,
                max(good, default=nan),
                most / (count * each) if known else nan,
                not all(point.carried for point in here),
            )
        )
    return rows


def _percentile(values: NDArray[np.float64], rank: float) -> float:
    """Linear between neighbours; infinite where either is."""
    if not len(values):
        return nan
    ordered = np.sort(values)
    place = rank / 100 * (len(ordered) - 1)
    below, above = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
    if not (isfinite(below) and isfinite(above)):
        return float(above if place > int(place) else below)
    return float(below + (place - int(place)) * (above - below))
