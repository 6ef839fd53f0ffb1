"""The share of late first tokens from histogram buckets, pessimistic where they only bound it."""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

Buckets = Mapping[float, float]


class Lateness(NamedTuple):
    """First tokens per second over the window; `upper` and `lower` bound the late share."""

    rate_rps: float
    upper: float
    lower: float


def of_client(buckets: Buckets, ttft_s: float, window_s: float) -> Lateness | None:
    """From the histogram of what clients felt; cumulative counts by bound in seconds."""
    total = buckets.get(inf)
    if total is None:
        return None
    if total <= 0:
        return Lateness(0.0, 0.0, 0.0)
    return Lateness(
        total / window_s,
        _share_above(buckets, _bound_below(buckets, ttft_s)),
        _share_above(buckets, _bound_above(buckets, ttft_s)),
    )


def of_parts(wait: Buckets, engine: Buckets, ttft_s: float, window_s: float) -> Lateness | None:
    """From router wait and engine TTFT, both in seconds, which are not paired.

    A request is late only if it waited longer than a or its engine took longer than s - a,
    for any a: the union bound with the best split. It is surely late if either alone was.
    """
    total, arrived = engine.get(inf), wait.get(inf)
    if total is None or arrived is None:
        return None
    if total <= 0 or arrived <= 0:
        return Lateness(0.0, 0.0, 0.0)
    splits = [bound for bound in wait if bound <= ttft_s] or [0.0]
    upper = min(
        _share_above(wait, split)
        + _share_above(engine, _bound_below(engine, max(ttft_s - split, 0.0)))
        for split in splits
    )
    lower = max(
        _share_above(histogram, _bound_above(histogram, ttft_s)) for histogram in (wait, engine)
    )
    return Lateness(total / window_s, min(upper, 1.0), lower)


def measurable(bounds: list[float], ttft_s: float) -> tuple[float | None, float | None]:
    """The nearest SLOs at or below and at or above that a histogram's bounds can measure."""
    finite = sorted(bound for bound in bounds if bound < inf)
    below = [bound for bound in finite if bound <= ttft_s]
    above = [bound for bound in finite if bound >= ttft_s]
    return (below[-1] if below else None), (above[0] if above else None)


def _bound_below(buckets: Buckets, limit: float) -> float:
    return max((bound for bound in buckets if bound <= limit), default=0.0)


def _bound_above(buckets: Buckets, limit: float) -> float:
    return min(bound for bound in buckets if bound >= limit)


def _share_above(buckets: Buckets, bound: float) -> float:
    """Share of observations above one of the bounds (0 below the first)."""
    total = buckets[inf]
    return min(max(1.0 - buckets.get(bound, 0.0) / total, 0.0), 1.0) if total > 0 else 0.0
