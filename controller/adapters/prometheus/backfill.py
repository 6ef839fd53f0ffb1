"""The last days, read once at the start so that the first tick can forecast and size."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import floor, isfinite

import numpy as np
from numpy.typing import NDArray

from controller.adapters.prometheus import names
from controller.adapters.prometheus.client import UNUSABLE, PrometheusClient, PrometheusError
from controller.adapters.prometheus.promql import duration, selector
from controller.core.types import DeploymentId

# Prometheus refuses queries of more than 11,000 points a series.
POINTS = 10_000
BY = "by (application, deployment)"

Rates = NDArray[np.float64]


@dataclass(frozen=True)
class WorkWindows:
    """What ran in each of many windows: mean requests running, mean sum of n (n - 1) over the
    replicas, completions per second, and at its end the requests running and the replicas
    that report; NaN where not known."""

    window_s: float
    running: Rates
    pairs: Rates
    completed_rps: Rates
    running_at_end: Rates
    replicas: Rates


@dataclass(frozen=True)
class Past:
    """What Prometheus knows of the last days: arrival rates in bins from `start_s` on (NaN
    where not known), the work done in windows, and how many replicas had started within each
    bound (cumulative counts by seconds), all by deployment."""

    start_s: float
    rates: Mapping[DeploymentId, Rates] = field(default_factory=dict)
    work: Mapping[DeploymentId, WorkWindows] = field(default_factory=dict)
    starts: Mapping[DeploymentId, Mapping[float, float]] = field(default_factory=dict)


class Backfill:
    """Reads the past in chunks that stay within Prometheus's limit of points."""

    def __init__(
        self,
        client: PrometheusClient,
        labels: Mapping[str, str],
        scrape_s: float,
        bin_s: float,
        window_s: float,
    ) -> None:
        self._client = client
        self._labels = labels
        self._bin_s = bin_s
        self._window_s = max(window_s, 4 * scrape_s)
        # A rate needs two samples, so it must look back over two scrapes and then some.
        self._look_back_s = max(2.5 * scrape_s, bin_s)

    def read(self, now_s: float, span_s: float, progress: Callable[[float], None]) -> Past:
        """The last `span_s` until now; `progress` is called with the share done, query by
        query. Raises PrometheusError."""
        try:
            return self._read(now_s, span_s, progress)
        except UNUSABLE as error:
            said = self._client.redacted(repr(error))
            raise PrometheusError(f"unusable series in the history: {said}") from None

    def _read(self, now_s: float, span_s: float, progress: Callable[[float], None]) -> Past:
        look_back, window = duration(self._look_back_s), duration(self._window_s)
        arrivals, completions = self._counter(names.ARRIVALS), self._counter(names.COMPLETIONS)
        running = selector([names.ONGOING], self._labels)
        pairs = f"({running} * ({running} - 1))[{window}:{duration(self._window_s / 6)}]"
        work_s = self._window_s
        queries = (
            (f"sum {BY} (rate({arrivals}[{look_back}]))", self._bin_s, self._look_back_s),
            (f"sum {BY} (avg_over_time({running}[{window}]))", work_s, work_s),
            (f"sum {BY} (avg_over_time({pairs}))", work_s, work_s),
            (f"sum {BY} (rate({completions}[{window}]))", work_s, work_s),
            (f"sum {BY} ({running})", work_s, work_s),
            (f"count {BY} ({running})", work_s, work_s),
        )
        answers = []
        for query, step_s, look_back_s in queries:
            answers.append(self._series(query, step_s, look_back_s, now_s, span_s))
            progress(len(answers) / len(queries))
        rates, *work = answers
        known = set.intersection(*(set(part) for part in work))
        windows = {t: WorkWindows(work_s, *(part[t] for part in work)) for t in known}
        first_bin = floor(now_s / self._bin_s) - floor(span_s / self._bin_s)
        return Past(first_bin * self._bin_s, rates, windows, self.starts(span_s))

    def starts(self, span_s: float) -> dict[DeploymentId, dict[float, float]]:
        """Starts by bound in seconds: each series' last count, as a replica's series begins
        with its start and a rate would not see that."""
        counts = f"max_over_time({selector([names.STARTS], self._labels)}[{duration(span_s)}])"
        answer = self._client.instant(f"sum by (application, deployment, le) ({counts})")
        found: dict[DeploymentId, dict[float, float]] = {}
        for series in answer:
            labels = series["metric"]
            target = DeploymentId(labels["application"], labels["deployment"])
            found.setdefault(target, {})[float(labels["le"]) / 1000] = float(series["value"][1])
        return {target: dict(sorted(counts.items())) for target, counts in found.items()}

    def _counter(self, name: str) -> str:
        return selector(names.spellings(name), self._labels)

    def _series(
        self,
        query: str,
        step_s: float,
        look_back_s: float,
        now_s: float,
        span_s: float,
    ) -> dict[DeploymentId, Rates]:
        """A query's value in each step of the span, by deployment. What looks back over a
        window is asked for half a window after a step's middle, so that it is centred there;
        a window as long as its step is asked for where the step ends."""
        last = floor(now_s / step_s)
        first = last - floor(span_s / step_s)
        found: dict[DeploymentId, Rates] = {}
        for begin, stop in _chunks(first, last):
            start_s = round((begin + 0.5) * step_s + look_back_s / 2)
            end_s = min(start_s + (stop - 1 - begin) * step_s, float(floor(now_s)))
            for series in self._client.over(query, start_s, end_s, step_s):
                target = DeploymentId(*(series["metric"][k] for k in ("application", "deployment")))
                held = found.setdefault(target, np.full(last - first, np.nan))
                for at_s, text in series["values"]:
                    position = begin - first + round((float(at_s) - start_s) / step_s)
                    value = float(text)
                    if position < len(held) and isfinite(value) and value >= 0:
                        held[position] = value
        return found


def _chunks(first: int, stop: int) -> Iterator[tuple[int, int]]:
    for start in range(first, stop, POINTS):
        yield start, min(start + POINTS, stop)
