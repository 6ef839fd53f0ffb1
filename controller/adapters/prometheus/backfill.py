"""The load of the last days, read once at the start so that the first tick can forecast."""

from collections.abc import Callable, Iterator, Mapping
from math import floor, isfinite

import numpy as np
from numpy.typing import NDArray

from controller.adapters.prometheus import names
from controller.adapters.prometheus.client import PrometheusClient, Series
from controller.adapters.prometheus.promql import duration, selector
from controller.core.types import DeploymentId

# Prometheus refuses queries of more than 11,000 points a series.
POINTS = 10_000

Rates = NDArray[np.float64]


class Backfill:
    """Arrival rates in bins, by deployment; bins that Prometheus knows nothing of are NaN."""

    def __init__(
        self, client: PrometheusClient, labels: Mapping[str, str], scrape_s: float, bin_s: float
    ) -> None:
        self._client = client
        self._labels = labels
        self._bin_s = bin_s
        # A rate needs two samples, so a window must span two scrapes and then some.
        self._window_s = max(2.5 * scrape_s, bin_s)

    def read(
        self, now_s: float, span_s: float, progress: Callable[[float], None]
    ) -> tuple[dict[DeploymentId, Rates], float]:
        """Rates of the bins from `span_s` ago until now, and when the first begins.

        `progress` is called with the share done after each of the chunks. Raises
        PrometheusError.
        """
        count = floor(span_s / self._bin_s)
        last_bin = floor(now_s / self._bin_s)
        first_bin = last_bin - count
        rates: dict[DeploymentId, Rates] = {}
        for first, stop in _chunks(first_bin, last_bin):
            start_s = self._evaluated_s(first)
            end_s = min(self._evaluated_s(stop - 1), floor(now_s))
            for series in self._rates(start_s, end_s) if end_s >= start_s else ():
                labels = series["metric"]
                target = DeploymentId(labels["application"], labels["deployment"])
                held = rates.setdefault(target, np.full(count, np.nan))
                self._fill(held[first - first_bin : stop - first_bin], series, start_s)
            progress((stop - first_bin) / max(count, 1))
        return rates, first_bin * self._bin_s

    def _evaluated_s(self, number: int) -> int:
        """When to ask for a bin's rate. A rate looks back over its window, so half a window
        after the bin's middle it is centred there; to the whole second that the client asks."""
        return round((number + 0.5) * self._bin_s + self._window_s / 2)

    def _rates(self, start_s: int, end_s: int) -> list[Series]:
        spelled = names.spellings(names.ARRIVALS)
        rate = f"rate({selector(spelled, self._labels)}[{duration(self._window_s)}])"
        return self._client.over(
            f"sum by (application, deployment) ({rate})", start_s, end_s, self._bin_s
        )

    def _fill(self, held: Rates, series: Series, start_s: int) -> None:
        for at_s, text in series["values"]:
            position = round((float(at_s) - start_s) / self._bin_s)
            value = float(text)
            if 0 <= position < len(held) and isfinite(value) and value >= 0:
                held[position] = value


def _chunks(first: int, stop: int) -> Iterator[tuple[int, int]]:
    for start in range(first, stop, POINTS):
        yield start, min(start + POINTS, stop)
