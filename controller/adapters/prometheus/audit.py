"""What a production check asks of Prometheus beyond a tick: how fresh series are, how long
requests stay, which Ray versions run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from statistics import median

from controller.adapters.prometheus import names
from controller.adapters.prometheus.client import PrometheusClient, Series
from controller.adapters.prometheus.promql import duration, selector
from controller.core.types import DeploymentId

LOOK_BACK_S = 600.0
DAY_S = 86_400.0
HEARTBEATS = 4


@dataclass(frozen=True, slots=True)
class Cadence:
    """Seconds between two scrapes, and between two values that Ray reported."""

    scraped_s: float
    reported_s: float


def cadence(client: PrometheusClient, labels: Mapping[str, str]) -> Cadence | None:
    """How often a number changes that Serve's controller changes ten times a second; None where
    it was not scraped often enough to tell. Raises PrometheusError."""
    query = f"{selector([names.HEARTBEAT], labels)}[{duration(LOOK_BACK_S)}]"
    found = [measured for series in client.instant(query) if (measured := _cadence(series))]
    return max(found, key=lambda measured: measured.scraped_s, default=None)


def stays(
    client: PrometheusClient, labels: Mapping[str, str], share: float
) -> dict[DeploymentId, tuple[float, float]]:
    """Between which seconds lies the time in a replica that this share of requests of the last
    day did not exceed, by deployment. Raises PrometheusError."""
    counts = f"max_over_time({selector([names.STAY], labels)}[{duration(DAY_S)}])"
    answer = client.instant(f"sum by (application, deployment, le) ({counts})")
    buckets: dict[DeploymentId, dict[float, float]] = {}
    for series in answer:
        metric = series["metric"]
        target = DeploymentId(metric.get("application", ""), metric.get("deployment", ""))
        buckets.setdefault(target, {})[float(metric["le"]) / 1000] = float(series["value"][1])
    found = {target: between(counted, share) for target, counted in buckets.items()}
    return {target: bounds for target, bounds in found.items() if bounds is not None}


def versions(client: PrometheusClient, labels: Mapping[str, str]) -> dict[str, str]:
    """Ray's version by node address, as each node's raylet says now. Raises PrometheusError."""
    query = f"group by (NodeAddress, Version) ({selector([names.RESOURCES], labels)})"
    metrics = [series["metric"] for series in client.instant(query)]
    return {
        m["NodeAddress"]: m["Version"] for m in metrics if {"NodeAddress", "Version"} <= m.keys()
    }


def between(buckets: Mapping[float, float], share: float) -> tuple[float, float] | None:
    """The bounds of the bucket in which a quantile lies; None where nothing was counted."""
    total = buckets.get(inf, 0.0)
    if total <= 0:
        return None
    below = 0.0
    for bound in sorted(buckets):
        if buckets[bound] >= share * total:
            return below, bound
        below = bound
    return below, inf


def _cadence(series: Series) -> Cadence | None:
    points = [(float(at_s), float(value)) for at_s, value in series["values"]]
    changed = [
        point
        for before, point in zip([None, *points], points, strict=False)
        if before is None or before[1] != point[1]
    ]
    if len(changed) < HEARTBEATS:
        return None
    return Cadence(_step(points), _step(changed[1:]))


def _step(points: Sequence[tuple[float, float]]) -> float:
    times = [at_s for at_s, _ in points]
    return median(b - a for a, b in pairwise(times))
