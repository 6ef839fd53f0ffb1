"""The simulated cluster's memory: a struct of arrays that compiled functions share.

Plain arrays of records rather than a numba class, because only these are cached on disk.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Record = Any
"""One element of an array of records; its fields are attributes in compiled code."""

FREE, STARTING, READY, DRAINING = 0, 1, 2, 3
NOT_A_REPLICA = -1

STATE = np.dtype(
    [
        # settings
        ("cap", "i8"),  # replicas that may exist at once
        ("cap_counts_draining", "i8"),
        ("slots", "i8"),  # requests that a replica takes at once
        ("slo_ttft_s", "f8"),
        ("prefill_s", "f8"),  # seconds alone per prompt token
        ("tpot_s", "f8"),  # seconds alone per output token
        ("drain_timeout_s", "f8"),
        ("start_s", "f8"),
        ("push_s", "f8"),
        ("push_offset_s", "f8"),
        ("scrape_s", "f8"),
        ("lag_s", "f8"),
        ("report_step_s", "f8"),
        # clock and what comes next
        ("now_s", "f8"),
        ("next_finish_s", "f8"),
        ("next_finish_replica", "i8"),
        ("next_rare_s", "f8"),  # the earliest of the five below
        ("next_ready_s", "f8"),
        ("next_deadline_s", "f8"),
        ("next_push_s", "f8"),
        ("next_report_s", "f8"),
        ("next_bound_s", "f8"),  # where scoring begins or ends
        # queue: requests[head:tail] wait, requests[tail:] have not arrived
        ("head", "i8"),
        ("tail", "i8"),
        # fleet
        ("target", "i8"),
        ("used", "i8"),  # replicas[:used] may hold something
        ("starting", "i8"),
        ("ready", "i8"),
        ("draining", "i8"),
        ("running", "i8"),  # requests on all replicas
        ("serial", "i8"),  # replicas ever started
        ("version", "i8"),  # changes with the set of ready replicas
        # counters since the start, as an operator's metrics would have them
        ("arrivals", "i8"),
        ("completions", "i8"),
        ("failures", "i8"),
        ("prompt_tokens", "i8"),
        ("output_tokens", "i8"),
        ("first_tokens", "i8"),
        ("late_first_tokens", "i8"),
        ("pushes", "i8"),
        ("reports", "i8"),
        # score: only requests that arrive, and GPU time spent, inside the scored spans
        ("scoring", "i8"),
        ("settled_s", "f8"),
        ("starting_gpu_s", "f8"),
        ("ready_gpu_s", "f8"),
        ("draining_gpu_s", "f8"),
        ("requests", "i8"),
        ("served", "i8"),  # those with a first token
        ("completed", "i8"),
        ("violations", "i8"),
        ("prefill_violations", "i8"),  # late even without the wait
        ("failed", "i8"),
        ("wait_sum_s", "f8"),
        ("ttft_sum_s", "f8"),
        ("response_sum_s", "f8"),
        ("starts", "i8"),
        ("cancelled", "i8"),
        ("drains", "i8"),
        ("changes", "i8"),
        ("logged", "i8"),
    ],
    align=True,
)

REPLICA = np.dtype(
    [
        ("phase", "i8"),
        ("running", "i8"),
        ("taken", "i8"),  # requests ever taken
        ("serial", "i8"),
        ("since_s", "f8"),  # asked for
        ("ready_s", "f8"),  # when a starting one will be ready
        ("deadline_s", "f8"),  # when a draining one is killed
        ("virtual_s", "f8"),  # service each of its requests has had since it was last empty
        ("updated_s", "f8"),  # time at which virtual_s was true
        ("first_v", "f8"),  # least virtual time at which a prefill ends
        ("finish_v", "f8"),  # least virtual time at which a request ends
        ("finish_slot", "i8"),
        ("finish_s", "f8"),  # the same as time, if nothing changes before
    ],
    align=True,
)

SLOT = np.dtype(
    [
        ("first_v", "f8"),
        ("finish_v", "f8"),
        ("arrival_s", "f8"),
        ("wait_s", "f8"),
        ("output_tokens", "i8"),
        ("scored", "i8"),
        ("late", "i8"),
    ],
    align=True,
)

REPORT = np.dtype(
    [
        ("arrivals", "i8"),
        ("violations", "i8"),  # by time of arrival
        ("prefill_violations", "i8"),
        ("ready", "i8"),  # this and the rest: at the end of the step
        ("starting", "i8"),
        ("draining", "i8"),
        ("target", "i8"),
        ("queued", "i8"),
    ],
    align=True,
)

VIOLATION = np.dtype([("arrival_s", "f8"), ("wait_s", "f8"), ("prefill_s", "f8")], align=True)

HISTOGRAM_BINS = 1024
HISTOGRAM_LEAST_S = 1e-3
HISTOGRAM_PER_E = 50.0  # bins per factor e: 2 % wide

# What a compiled policy is shown, by place in its vector. From SCRAPED_AT_S to LATE_FIRST_TOKENS:
# the last scrape. TARGET to DRAINING: Serve's API, fresh. DIRECT_*: what a rival's own probe inside
# the cluster sees at this very instant; Leadtime's view holds none of it.
(
    AT_S,
    SCRAPED_AT_S,
    ARRIVALS,
    COMPLETIONS,
    FAILURES,
    QUEUED,
    ONGOING,
    PROMPT_TOKENS,
    OUTPUT_TOKENS,
    FIRST_TOKENS,
    LATE_FIRST_TOKENS,
    TARGET,
    READY_REPLICAS,
    STARTING_REPLICAS,
    DRAINING_REPLICAS,
    DIRECT_ARRIVALS,
    DIRECT_QUEUED,
    DIRECT_ONGOING,
    VIEW_SIZE,
) = range(19)
SAMPLE_START, SAMPLE_END = ARRIVALS, LATE_FIRST_TOKENS + 1


class Cluster(NamedTuple):
    """Everything that changes while the cluster runs; R replicas of C slots each."""

    state: NDArray[np.void]  # [1] STATE
    replicas: NDArray[np.void]  # [R] REPLICA
    slots: NDArray[np.void]  # [R, C] SLOT; replica r runs slots[r, :running]
    speed: NDArray[np.float64]  # [C + 1] of each of n running requests, 1 = alone
    cold_start_s: NDArray[np.float64]  # of the k-th replica started, over and over
    scored: NDArray[np.float64]  # [spans, 2]
    samples: NDArray[np.float64]  # [K, SAMPLE] ring of pushes
    reports: NDArray[np.void]  # [steps] REPORT
    histogram: NDArray[np.int64]  # [HISTOGRAM_BINS] of TTFT
    log: NDArray[np.void]  # [L] VIOLATION, the first L of them
