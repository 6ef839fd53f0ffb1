"""Requests on replicas: FIFO dispatch, processor sharing, first tokens, completions. Compiled.

Each of the n requests running on a replica advances at speed v(n). A replica's virtual clock moves
at that speed, so a request of work w that joins at virtual time V ends at V + w whatever joins or
leaves, and its first token comes at V + its prefill work: one clock per replica gives both exactly.
"""

import math

from controller.replay.compiled import compiled, inlined
from controller.replay.layout import (
    HISTOGRAM_BINS,
    HISTOGRAM_LEAST_S,
    HISTOGRAM_PER_E,
    NOT_A_REPLICA,
    READY,
    Cluster,
)
from controller.replay.trace import Requests


@inlined
def is_scored(cluster: Cluster, at_s: float) -> bool:
    """Whether a request that arrives at `at_s` counts."""
    for k in range(cluster.scored.shape[0]):
        if cluster.scored[k, 0] <= at_s < cluster.scored[k, 1]:
            return True
    return False


@compiled
def count_violation(cluster: Cluster, arrival_s: float, wait_s: float, prefill_s: float) -> None:
    """One scored request without a first token in time; prefill NaN: it never had one."""
    state = cluster.state[0]
    prefill_alone = prefill_s > state.slo_ttft_s
    state.violations += 1
    state.prefill_violations += prefill_alone
    step = int((arrival_s - state.start_s) / state.report_step_s)
    if step < cluster.reports.size:
        report = cluster.reports[step]
        report.violations += 1
        report.prefill_violations += prefill_alone
    if state.logged < cluster.log.size:
        entry = cluster.log[state.logged]
        entry.arrival_s, entry.wait_s, entry.prefill_s = arrival_s, wait_s, prefill_s
        state.logged += 1


@inlined
def count_first_token(cluster: Cluster, r: int, slot: int, at_s: float) -> None:
    state = cluster.state[0]
    request = cluster.slots[r, slot]
    ttft_s = at_s - request.arrival_s
    late = ttft_s > state.slo_ttft_s
    state.first_tokens += 1
    state.late_first_tokens += late
    if not request.scored:
        return
    state.served += 1
    state.ttft_sum_s += ttft_s
    state.wait_sum_s += request.wait_s
    place = int(HISTOGRAM_PER_E * math.log(max(ttft_s / HISTOGRAM_LEAST_S, 1.0)))
    cluster.histogram[min(place, HISTOGRAM_BINS - 1)] += 1
    if late:
        request.late = 1
        count_violation(cluster, request.arrival_s, request.wait_s, ttft_s - request.wait_s)


@inlined
def emit_first_tokens(cluster: Cluster, r: int, until_v: float) -> None:
    """First tokens of replica r up to virtual time `until_v`, at their exact times."""
    replica = cluster.replicas[r]
    speed = cluster.speed[replica.running]
    least_v = math.inf
    for slot in range(replica.running):
        first_v = cluster.slots[r, slot].first_v
        if first_v <= until_v:
            at_s = replica.updated_s + (first_v - replica.virtual_s) / speed
            count_first_token(cluster, r, slot, at_s)
            cluster.slots[r, slot].first_v = math.inf
        elif first_v < least_v:
            least_v = first_v
    replica.first_v = least_v


@inlined
def progress_to(cluster: Cluster, r: int, virtual_s: float, at_s: float) -> None:
    replica = cluster.replicas[r]
    if replica.first_v <= virtual_s:
        emit_first_tokens(cluster, r, virtual_s)
    replica.virtual_s = virtual_s
    replica.updated_s = at_s


@inlined
def progress(cluster: Cluster, r: int, at_s: float) -> None:
    """Move replica r's virtual clock to `at_s`."""
    replica = cluster.replicas[r]
    served_s = cluster.speed[replica.running] * (at_s - replica.updated_s)
    progress_to(cluster, r, replica.virtual_s + served_s, at_s)


@inlined
def find_next_finish(cluster: Cluster) -> None:
    """The replica whose request ends first, among all."""
    state = cluster.state[0]
    state.next_finish_s = math.inf
    state.next_finish_replica = NOT_A_REPLICA
    for r in range(state.used):
        if cluster.replicas[r].finish_s < state.next_finish_s:
            state.next_finish_s = cluster.replicas[r].finish_s
            state.next_finish_replica = r


@inlined
def reschedule(cluster: Cluster, r: int) -> None:
    """Replica r's next completion as a time, after its number of requests changed."""
    state = cluster.state[0]
    replica = cluster.replicas[r]
    remaining_s = replica.finish_v - replica.virtual_s
    replica.finish_s = replica.updated_s + remaining_s / cluster.speed[replica.running]
    if replica.finish_s < state.next_finish_s:
        state.next_finish_s = replica.finish_s
        state.next_finish_replica = r
    elif r == state.next_finish_replica:
        find_next_finish(cluster)


@inlined
def find_finish_slot(cluster: Cluster, r: int) -> None:
    """Replica r's request that ends first."""
    replica = cluster.replicas[r]
    replica.finish_v = math.inf
    for slot in range(replica.running):
        if cluster.slots[r, slot].finish_v < replica.finish_v:
            replica.finish_v = cluster.slots[r, slot].finish_v
            replica.finish_slot = slot


@inlined
def least_loaded(cluster: Cluster) -> int:
    """The ready replica with the fewest requests that can take one more, or NOT_A_REPLICA."""
    state = cluster.state[0]
    chosen, least = NOT_A_REPLICA, state.slots
    for r in range(state.used):
        replica = cluster.replicas[r]
        if replica.phase == READY and replica.running < least:
            chosen, least = r, replica.running
    return chosen


@inlined
def dispatch(cluster: Cluster, requests: Requests, r: int) -> None:
    """The request at the head of the queue begins on replica r, now."""
    state = cluster.state[0]
    i = state.head
    state.head += 1
    progress(cluster, r, state.now_s)
    replica = cluster.replicas[r]
    prompt, output = requests.prompt_tokens[i], requests.output_tokens[i]
    slot = cluster.slots[r, replica.running]
    slot.first_v = replica.virtual_s + prompt * state.prefill_s
    slot.finish_v = slot.first_v + output * state.tpot_s
    slot.arrival_s = requests.arrival_s[i]
    slot.wait_s = state.now_s - slot.arrival_s
    slot.output_tokens = output
    slot.scored = is_scored(cluster, slot.arrival_s)
    slot.late = 0
    replica.first_v = min(replica.first_v, slot.first_v)
    if slot.finish_v < replica.finish_v:
        replica.finish_v = slot.finish_v
        replica.finish_slot = replica.running
    replica.running += 1
    replica.taken += 1
    state.running += 1
    state.prompt_tokens += prompt
    reschedule(cluster, r)


@inlined
def fill(cluster: Cluster, requests: Requests, r: int) -> None:
    """Replica r takes from the queue what it can."""
    state = cluster.state[0]
    while state.head < state.tail and cluster.replicas[r].running < state.slots:
        dispatch(cluster, requests, r)


@inlined
def leave(cluster: Cluster, r: int, slot: int) -> None:
    """Take a request off replica r; the last slot moves into its place."""
    replica = cluster.replicas[r]
    last = replica.running - 1
    if slot != last:
        cluster.slots[r, slot] = cluster.slots[r, last]
    replica.running = last
    cluster.state[0].running -= 1
    if last == 0:
        replica.virtual_s = 0.0
        replica.first_v = math.inf
    find_finish_slot(cluster, r)
    reschedule(cluster, r)


@inlined
def complete(cluster: Cluster) -> int:
    """The next completion of all happens; returns its replica."""
    state = cluster.state[0]
    r = int(state.next_finish_replica)
    replica = cluster.replicas[r]
    state.now_s = replica.finish_s
    progress_to(cluster, r, replica.finish_v, replica.finish_s)
    request = cluster.slots[r, replica.finish_slot]
    state.completions += 1
    state.output_tokens += request.output_tokens
    if request.scored:
        state.completed += 1
        state.response_sum_s += state.now_s - request.arrival_s
    leave(cluster, r, replica.finish_slot)
    return r


@compiled
def fail_all(cluster: Cluster, r: int) -> None:
    """Every request of replica r fails now: a violation, unless it already was one."""
    state = cluster.state[0]
    progress(cluster, r, state.now_s)
    replica = cluster.replicas[r]
    while replica.running > 0:
        slot = replica.running - 1
        request = cluster.slots[r, slot]
        state.failures += 1
        if request.scored:
            state.failed += 1
            if not request.late:
                count_violation(cluster, request.arrival_s, request.wait_s, math.nan)
        leave(cluster, r, slot)
