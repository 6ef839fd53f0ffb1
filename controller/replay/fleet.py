"""The life of replicas: asked for, ready, draining, gone; GPU time of each phase. Compiled."""

import math

from controller.replay.compiled import compiled, inlined
from controller.replay.layout import DRAINING, FREE, NOT_A_REPLICA, READY, STARTING, Cluster
from controller.replay.service import fail_all, fill, find_next_finish
from controller.replay.trace import Requests


@compiled
def settle(cluster: Cluster) -> None:
    """Book GPU time up to now; called before any count of replicas changes."""
    state = cluster.state[0]
    if state.scoring:
        passed_s = state.now_s - state.settled_s
        state.starting_gpu_s += state.starting * passed_s
        state.ready_gpu_s += state.ready * passed_s
        state.draining_gpu_s += state.draining * passed_s
    state.settled_s = state.now_s


@compiled
def find_next_rare(cluster: Cluster) -> None:
    """When a replica becomes ready, is killed, or a metric or a score is due: the earliest."""
    state = cluster.state[0]
    state.next_ready_s = state.next_deadline_s = math.inf
    for r in range(state.used):
        replica = cluster.replicas[r]
        if replica.phase == STARTING:
            state.next_ready_s = min(state.next_ready_s, replica.ready_s)
        elif replica.phase == DRAINING:
            state.next_deadline_s = min(state.next_deadline_s, replica.deadline_s)
    due_s = min(state.next_ready_s, state.next_deadline_s, state.next_push_s)
    state.next_rare_s = min(due_s, state.next_report_s, state.next_bound_s)


@inlined
def free_place(cluster: Cluster) -> int:
    """A place for one more replica, or NOT_A_REPLICA."""
    state = cluster.state[0]
    for r in range(state.used):
        if cluster.replicas[r].phase == FREE:
            return r
    if state.used == cluster.replicas.size:
        return NOT_A_REPLICA
    state.used += 1
    return int(state.used - 1)


@compiled
def place(cluster: Cluster, r: int, phase: int, ready_s: float) -> None:
    """A new replica in place r, without requests."""
    state = cluster.state[0]
    replica = cluster.replicas[r]
    replica.phase = phase
    replica.running = replica.taken = 0
    replica.serial = state.serial
    state.serial += 1
    replica.since_s, replica.ready_s, replica.deadline_s = state.now_s, ready_s, math.inf
    replica.virtual_s, replica.updated_s = 0.0, state.now_s
    replica.first_v = replica.finish_v = replica.finish_s = math.inf


@inlined
def vacate(cluster: Cluster, r: int) -> None:
    state = cluster.state[0]
    cluster.replicas[r].phase = FREE
    cluster.replicas[r].finish_s = math.inf
    while state.used > 0 and cluster.replicas[state.used - 1].phase == FREE:
        state.used -= 1


@compiled
def start_one(cluster: Cluster) -> bool:
    """Ask for one replica; False when the cap leaves no room."""
    state = cluster.state[0]
    held = state.starting + state.ready + state.draining * state.cap_counts_draining
    r = free_place(cluster) if held < state.cap else NOT_A_REPLICA
    if r == NOT_A_REPLICA:
        return False
    cold_start_s = cluster.cold_start_s[state.serial % cluster.cold_start_s.size]
    place(cluster, r, STARTING, state.now_s + cold_start_s)
    state.starting += 1
    state.starts += state.scoring
    return True


@inlined
def youngest_starting(cluster: Cluster) -> int:
    state = cluster.state[0]
    chosen, latest = NOT_A_REPLICA, -1
    for r in range(state.used):
        replica = cluster.replicas[r]
        if replica.phase == STARTING and replica.serial > latest:
            chosen, latest = r, replica.serial
    return chosen


@inlined
def drain_choice(cluster: Cluster) -> int:
    """The least loaded ready replica; the youngest of equals."""
    state = cluster.state[0]
    chosen, least, latest = NOT_A_REPLICA, state.slots + 1, -1
    for r in range(state.used):
        replica = cluster.replicas[r]
        if replica.phase != READY or replica.running > least:
            continue
        if replica.running < least or replica.serial > latest:
            chosen, least, latest = r, replica.running, replica.serial
    return chosen


@compiled
def stop_one(cluster: Cluster) -> None:
    """One replica less: the youngest starting one, else drain the least loaded ready one."""
    state = cluster.state[0]
    r = youngest_starting(cluster)
    if r != NOT_A_REPLICA:
        state.starting -= 1
        state.cancelled += state.scoring
        vacate(cluster, r)
        return
    r = drain_choice(cluster)
    replica = cluster.replicas[r]
    state.ready -= 1
    state.version += 1
    state.drains += state.scoring
    if replica.running == 0:
        vacate(cluster, r)
        return
    replica.phase = DRAINING
    replica.deadline_s = state.now_s + state.drain_timeout_s
    state.draining += 1


@compiled
def reconcile(cluster: Cluster) -> None:
    """Start or stop until starting + ready is the target, as far as the cap allows."""
    state = cluster.state[0]
    settle(cluster)
    while state.starting + state.ready > state.target:
        stop_one(cluster)
    while state.starting + state.ready < state.target:
        if not start_one(cluster):
            break
    find_next_rare(cluster)


@compiled
def set_target(cluster: Cluster, wanted: int) -> None:
    """What a controller asks for, now; held within 0 and the cap."""
    state = cluster.state[0]
    target = min(max(wanted, 0), state.cap)
    if target == state.target:
        return
    state.target = target
    state.changes += state.scoring
    reconcile(cluster)


@compiled
def make_ready(cluster: Cluster, requests: Requests) -> None:
    """Every replica whose cold start is over takes requests."""
    state = cluster.state[0]
    settle(cluster)
    for r in range(state.used):
        replica = cluster.replicas[r]
        if replica.phase == STARTING and replica.ready_s <= state.now_s:
            replica.phase = READY
            replica.updated_s = state.now_s
            state.starting -= 1
            state.ready += 1
            state.version += 1
            fill(cluster, requests, r)


@compiled
def retire(cluster: Cluster, r: int) -> None:
    """A draining replica without requests is gone; its GPU may serve a waiting start."""
    settle(cluster)
    cluster.state[0].draining -= 1
    vacate(cluster, r)
    reconcile(cluster)


@compiled
def kill_overdue(cluster: Cluster) -> None:
    """Draining replicas past their deadline fail what they still run."""
    state = cluster.state[0]
    for r in range(state.used):
        replica = cluster.replicas[r]
        if replica.phase == DRAINING and replica.deadline_s <= state.now_s:
            fail_all(cluster, r)
            retire(cluster, r)
    find_next_finish(cluster)
