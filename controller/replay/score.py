"""What a run came to: attainment, time to first token, GPU time, and when and why it was bad."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.replay import layout
from controller.replay.layout import Cluster
from controller.replay.trace import Requests


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of the scored spans. Every request of them is on time or a violation, never both.

    `violations` are first tokens beyond the SLO, requests that failed (killed while draining) and
    `unserved` ones (still waiting at the end). `prefill_violations` would have been late without
    any wait. `reports` is one row per step (layout.REPORT), `log` the first violations one by one
    (layout.VIOLATION; prefill NaN: never a first token).
    """

    requests: int
    violations: int
    prefill_violations: int
    failed: int
    unserved: int
    completed: int
    starting_gpu_s: float
    ready_gpu_s: float
    draining_gpu_s: float
    starts: int
    cancelled: int
    drains: int
    changes: int
    wait_mean_s: float
    ttft_mean_s: float
    response_mean_s: float
    histogram: NDArray[np.int64]
    reports: NDArray[np.void]
    log: NDArray[np.void]

    @property
    def violation_ratio(self) -> float:
        return self.violations / self.requests if self.requests else 0.0

    @property
    def attainment(self) -> float:
        """Share of requests with a first token in time."""
        return 1 - self.violation_ratio

    @property
    def gpu_hours(self) -> float:
        """Replica-hours, starting and draining included."""
        return (self.starting_gpu_s + self.ready_gpu_s + self.draining_gpu_s) / 3600

    def ttft_quantile_s(self, q: float) -> float:
        """Time to first token below which a share q of all requests lies; within 2 %.

        Requests that never had a first token count as infinitely late.
        """
        rank = q * self.requests
        reached = np.cumsum(self.histogram)
        place = int(np.searchsorted(reached, rank))
        if self.requests == 0 or place == len(reached):
            return math.nan if self.requests == 0 else math.inf
        below = int(reached[place - 1]) if place else 0
        part = (rank - below) / max(int(self.histogram[place]), 1)
        return layout.HISTOGRAM_LEAST_S * math.exp((place + part) / layout.HISTOGRAM_PER_E)


def read_score(cluster: Cluster, requests: Requests) -> Score:
    """The score of a finished run; `requests` are those in memory, for the ones still waiting."""
    state = cluster.state[0]
    head, tail = int(state["head"]), int(state["tail"])
    waiting_s = requests.arrival_s[head:tail]
    spans = cluster.scored
    inside = (waiting_s[:, None] >= spans[:, 0]) & (waiting_s[:, None] < spans[:, 1])
    unserved = int(inside.any(axis=1).sum())
    served, completed = int(state["served"]), int(state["completed"])
    return Score(
        requests=int(state["requests"]),
        violations=int(state["violations"]) + unserved,
        prefill_violations=int(state["prefill_violations"]),
        failed=int(state["failed"]),
        unserved=unserved,
        completed=completed,
        starting_gpu_s=float(state["starting_gpu_s"]),
        ready_gpu_s=float(state["ready_gpu_s"]),
        draining_gpu_s=float(state["draining_gpu_s"]),
        starts=int(state["starts"]),
        cancelled=int(state["cancelled"]),
        drains=int(state["drains"]),
        changes=int(state["changes"]),
        wait_mean_s=float(state["wait_sum_s"]) / max(served, 1),
        ttft_mean_s=float(state["ttft_sum_s"]) / max(served, 1),
        response_mean_s=float(state["response_sum_s"]) / max(completed, 1),
        histogram=cluster.histogram.copy(),
        reports=cluster.reports.copy(),
        log=cluster.log[: int(state["logged"])].copy(),
    )
