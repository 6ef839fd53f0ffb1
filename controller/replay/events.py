"""The event loop of the simulated cluster, its metrics and its reports. Compiled."""

import math

from controller.replay.compiled import compiled, inlined
from controller.replay.fleet import (
    find_next_rare,
    kill_overdue,
    make_ready,
    retire,
    settle,
)
from controller.replay.layout import (
    ARRIVALS,
    AT_S,
    COMPLETIONS,
    DIRECT_ARRIVALS,
    DIRECT_ONGOING,
    DIRECT_QUEUED,
    DRAINING,
    DRAINING_REPLICAS,
    FAILURES,
    FIRST_TOKENS,
    LATE_FIRST_TOKENS,
    NOT_A_REPLICA,
    ONGOING,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    QUEUED,
    READY_REPLICAS,
    SAMPLE_END,
    SAMPLE_START,
    SCRAPED_AT_S,
    STARTING_REPLICAS,
    TARGET,
    Cluster,
)
from controller.replay.service import complete, dispatch, fill, least_loaded, progress
from controller.replay.trace import Floats, Requests


@inlined
def arrive(cluster: Cluster, requests: Requests) -> None:
    """The next request joins the queue, or a replica at once if the queue is empty."""
    state = cluster.state[0]
    state.now_s = requests.arrival_s[state.tail]
    nobody_waits = state.head == state.tail
    state.tail += 1
    state.arrivals += 1
    state.requests += state.scoring
    if state.reports < cluster.reports.size:
        cluster.reports[state.reports].arrivals += 1
    if nobody_waits:
        r = least_loaded(cluster)
        if r != NOT_A_REPLICA:
            dispatch(cluster, requests, r)


@inlined
def finish(cluster: Cluster, requests: Requests) -> None:
    """A request ends: the queue moves up, or a drained replica goes."""
    r = complete(cluster)
    if cluster.replicas[r].phase != DRAINING:
        fill(cluster, requests, r)
    elif cluster.replicas[r].running == 0:
        retire(cluster, r)


@compiled
def push(cluster: Cluster) -> None:
    """Workers send their metrics to the agent that Prometheus scrapes."""
    state = cluster.state[0]
    for r in range(state.used):
        if cluster.replicas[r].running > 0:
            progress(cluster, r, state.now_s)
    sample = cluster.samples[state.pushes % cluster.samples.shape[0]]
    sample[ARRIVALS - SAMPLE_START] = state.arrivals
    sample[COMPLETIONS - SAMPLE_START] = state.completions
    sample[FAILURES - SAMPLE_START] = state.failures
    sample[QUEUED - SAMPLE_START] = state.tail - state.head
    sample[ONGOING - SAMPLE_START] = state.running
    sample[PROMPT_TOKENS - SAMPLE_START] = state.prompt_tokens
    sample[OUTPUT_TOKENS - SAMPLE_START] = state.output_tokens
    sample[FIRST_TOKENS - SAMPLE_START] = state.first_tokens
    sample[LATE_FIRST_TOKENS - SAMPLE_START] = state.late_first_tokens
    state.pushes += 1
    state.next_push_s = state.start_s + state.push_offset_s + state.pushes * state.push_s


@compiled
def report(cluster: Cluster) -> None:
    """Close a step of the report."""
    state = cluster.state[0]
    if state.reports < cluster.reports.size:
        row = cluster.reports[state.reports]
        row.ready, row.starting, row.draining = state.ready, state.starting, state.draining
        row.target, row.queued = state.target, state.tail - state.head
    state.reports += 1
    state.next_report_s = state.start_s + (state.reports + 1) * state.report_step_s


@compiled
def cross_bound(cluster: Cluster) -> None:
    """Scoring begins or ends at this instant."""
    state = cluster.state[0]
    settle(cluster)
    state.scoring = 0
    state.next_bound_s = math.inf
    for k in range(cluster.scored.shape[0]):
        begin_s, end_s = cluster.scored[k, 0], cluster.scored[k, 1]
        if begin_s <= state.now_s < end_s:
            state.scoring = 1
            state.next_bound_s = min(state.next_bound_s, end_s)
        elif state.now_s < begin_s:
            state.next_bound_s = min(state.next_bound_s, begin_s)


@compiled
def happen_rare(cluster: Cluster, requests: Requests) -> None:
    """Whatever is due at the time of the next rare event."""
    state = cluster.state[0]
    state.now_s = state.next_rare_s
    if state.next_bound_s <= state.now_s:
        cross_bound(cluster)
    if state.next_deadline_s <= state.now_s:
        kill_overdue(cluster)
    if state.next_ready_s <= state.now_s:
        make_ready(cluster, requests)
    if state.next_push_s <= state.now_s:
        push(cluster)
    if state.next_report_s <= state.now_s:
        report(cluster)
    find_next_rare(cluster)


@compiled
def advance(cluster: Cluster, requests: Requests, until_s: float) -> None:
    """Let time pass to `until_s`; `requests` must hold every arrival up to then."""
    state = cluster.state[0]
    arrival_s = requests.arrival_s
    while True:
        next_arrival_s = arrival_s[state.tail] if state.tail < arrival_s.size else math.inf
        next_s = min(next_arrival_s, state.next_finish_s, state.next_rare_s)
        if next_s > until_s:
            break
        if next_s == state.next_rare_s:
            happen_rare(cluster, requests)
        elif next_s == state.next_finish_s:
            finish(cluster, requests)
        else:
            arrive(cluster, requests)
    state.now_s = until_s


@inlined
def scraped(cluster: Cluster) -> tuple[float, int]:
    """(time of the newest scrape that a query now can see, row of what had been pushed by then).

    Row -1: nothing yet, and the time is NaN.
    """
    state = cluster.state[0]
    passed_s = state.now_s - state.lag_s - state.start_s + 1e-9
    scrape_s = math.floor(passed_s / state.scrape_s) * state.scrape_s
    pushes = math.floor((scrape_s - state.push_offset_s + 1e-9) / state.push_s)
    if scrape_s < 0 or pushes < 0:
        return math.nan, -1
    return state.start_s + scrape_s, pushes % cluster.samples.shape[0]


@compiled
def observe(cluster: Cluster, view: Floats) -> None:
    """Fill `view` (VIEW_SIZE numbers) with what a policy may know now."""
    state = cluster.state[0]
    scraped_at_s, row = scraped(cluster)
    view[AT_S] = state.now_s
    view[SCRAPED_AT_S] = scraped_at_s
    for k in range(SAMPLE_START, SAMPLE_END):
        view[k] = cluster.samples[row, k - SAMPLE_START] if row >= 0 else math.nan
    view[TARGET] = state.target
    view[READY_REPLICAS] = state.ready
    view[STARTING_REPLICAS] = state.starting
    view[DRAINING_REPLICAS] = state.draining
    view[DIRECT_ARRIVALS] = state.arrivals
    view[DIRECT_QUEUED] = state.tail - state.head
    view[DIRECT_ONGOING] = state.running
