"""Means of gauges over a window, series by series, for whoever measures a run after it."""

from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple

from controller.adapters.prometheus.client import PrometheusClient
from controller.adapters.prometheus.promql import duration, selector

NODE_CPU = "ray_node_cpu_utilization"
PROCESS_CPU = "ray_component_cpu_percentage"


class Mean(NamedTuple):
    """The labels of a series, and the mean of its samples in the window."""

    labels: Mapping[str, str]
    value: float


def means(
    client: PrometheusClient, labels: Mapping[str, str], name: str, window_s: float
) -> list[Mean]:
    """The mean of each series of a metric over the last `window_s`; Ray lets gauges vanish for
    a while, which counts for nothing. Raises PrometheusError."""
    query = f"{selector([name], labels)}[{duration(window_s)}]"
    found = []
    for series in client.instant(query):
        values = [value for _, text in series["values"] if isfinite(value := float(text))]
        if values:
            found.append(Mean(series["metric"], sum(values) / len(values)))
    return found
