"""Ray Serve's own autoscaler (2.60), compiled: handle metrics, policy, delays, bounds, every 0.1 s.

From ray/serve/autoscaling_policy.py, _private/autoscaling_state.py, _private/router.py. One handle
(one proxy) is modelled; it records queued and running requests every min(look_back / 5, interval)
seconds and pushes the points of the last look_back seconds every interval. Times are taken as they
are: Ray rounds some to 10 ms and then compares them with unrounded ones, so that in the one case
where its youngest source began at the very last change its window is a matter of chance.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.replay.compiled import compiled, inlined
from controller.replay.events import advance
from controller.replay.fleet import set_target
from controller.replay.layout import READY, Cluster, Record
from controller.replay.plant import Plant
from controller.replay.runner import through
from controller.replay.score import Score
from controller.replay.trace import Floats, Requests

CONTROL_LOOP_S = 0.1
DELAY_TOLERANCE_S = 1e-6
INSTANT_S = 1e-3


@dataclass(frozen=True, slots=True)
class NativeSettings:
    """`autoscaling_config` of a deployment, with Ray's defaults."""

    min_replicas: int = 1
    max_replicas: int = 100
    target_ongoing_requests: float = 2.0
    upscale_delay_s: float = 30.0
    downscale_delay_s: float = 600.0
    downscale_to_zero_delay_s: float | None = None
    upscaling_factor: float = 1.0
    downscaling_factor: float = 1.0
    metrics_interval_s: float = 10.0
    look_back_period_s: float = 30.0

    @property
    def record_interval_s(self) -> float:
        return min(0.2 * self.look_back_period_s, self.metrics_interval_s)


CONTROLLER = np.dtype(
    [
        ("min_replicas", "i8"),
        ("max_replicas", "i8"),
        ("target_ongoing", "f8"),
        ("upscale_delay_s", "f8"),
        ("downscale_delay_s", "f8"),
        ("to_zero_delay_s", "f8"),
        ("upscaling_factor", "f8"),
        ("downscaling_factor", "f8"),
        ("interval_s", "f8"),
        ("look_back_s", "f8"),
        ("record_s", "f8"),
        # delays: which way the wish has gone without a break, and since when
        ("direction", "i8"),
        ("since_s", "f8"),
        ("ticks", "i8"),
        # the handle: points ever recorded, reports ever pushed, arrivals seen at the last tick
        ("points", "i8"),
        ("reports", "i8"),
        ("arrivals", "i8"),
        # the last report: points first..last - 1, and their total as far as it does not move
        ("first", "i8"),
        ("last", "i8"),
        ("version", "i8"),
        ("from_s", "f8"),
        ("area", "f8"),
        ("last_point_s", "f8"),
        ("last_total", "f8"),
        ("last_change_s", "f8"),
    ],
    align=True,
)


class Controller(NamedTuple):
    """The handle's recorded points in a ring of K, and the controller's state."""

    state: NDArray[np.void]  # [1] CONTROLLER
    point_s: Floats  # [K]
    queued: Floats  # [K]
    running: Floats  # [K, R]
    serial: NDArray[np.int64]  # [K, R] the replica it belongs to; -1: no point


def new_controller(settings: NativeSettings, replicas: int) -> Controller:
    """A controller just started, for a cluster of `replicas` places."""
    state = np.zeros(1, CONTROLLER)
    to_zero_s = settings.downscale_to_zero_delay_s
    values: dict[str, float] = {
        "min_replicas": settings.min_replicas,
        "max_replicas": settings.max_replicas,
        "target_ongoing": settings.target_ongoing_requests,
        "upscale_delay_s": settings.upscale_delay_s,
        "downscale_delay_s": settings.downscale_delay_s,
        "to_zero_delay_s": settings.downscale_delay_s if to_zero_s is None else to_zero_s,
        "upscaling_factor": settings.upscaling_factor,
        "downscaling_factor": settings.downscaling_factor,
        "interval_s": settings.metrics_interval_s,
        "look_back_s": settings.look_back_period_s,
        "record_s": settings.record_interval_s,
        "version": -1,
        "last_change_s": math.nan,
    }
    for name, value in values.items():
        state[name] = value
    kept_s = settings.look_back_period_s + settings.metrics_interval_s
    points = math.ceil(kept_s / settings.record_interval_s) + 3
    return Controller(
        state=state,
        point_s=np.zeros(points),
        queued=np.zeros(points),
        running=np.zeros((points, replicas)),
        serial=np.full((points, replicas), -1, np.int64),
    )


@compiled
def record_point(cluster: Cluster, controller: Controller) -> None:
    """The handle writes down its queue and the requests it has at each replica it ever used."""
    state, me = cluster.state[0], controller.state[0]
    k = me.points % controller.point_s.size
    controller.point_s[k] = state.now_s
    controller.queued[k] = state.tail - state.head
    for r in range(cluster.replicas.size):
        replica = cluster.replicas[r]
        known = r < state.used and replica.phase == READY and replica.taken > 0
        controller.running[k, r] = replica.running
        controller.serial[k, r] = replica.serial if known else -1
    me.points += 1


@compiled
def push_report(controller: Controller, now_s: float) -> None:
    """The points later than now - look_back reach the controller."""
    me = controller.state[0]
    size = controller.point_s.size
    me.last = me.points
    me.first = max(me.points - size, 0)
    while me.first < me.last:
        if controller.point_s[me.first % size] > now_s - me.look_back_s + 1e-9:
            break
        me.first += 1
    me.version = -1


@inlined
def first_point(controller: Controller, r: int, serial: int) -> int:
    """The report's first point of that replica; `last` if it has none."""
    me = controller.state[0]
    for number in range(me.first, me.last):
        if controller.serial[number % controller.point_s.size, r] == serial:
            return number
    return int(me.last)


@inlined
def aligned_start(cluster: Cluster, controller: Controller) -> tuple[float, int]:
    """(time from which every source of the report has points, replicas among the sources)."""
    me = controller.state[0]
    size = controller.point_s.size
    start_s, sources = controller.point_s[me.first % size], 0
    for r in range(cluster.state[0].used):
        replica = cluster.replicas[r]
        if replica.phase != READY:
            continue
        number = first_point(controller, r, replica.serial)
        if number < me.last:
            sources += 1
            start_s = max(start_s, controller.point_s[number % size])
    return start_s, sources


@inlined
def point_total(cluster: Cluster, controller: Controller, number: int) -> tuple[float, bool]:
    """(requests at that point, whether any source changed there); stopped replicas left out."""
    me = controller.state[0]
    size = controller.point_s.size
    k, before = number % size, (number - 1) % size
    first = number == me.first
    total = controller.queued[k]
    changed = total != (0.0 if first else controller.queued[before])
    for r in range(cluster.state[0].used):
        serial = cluster.replicas[r].serial
        if cluster.replicas[r].phase != READY or controller.serial[k, r] != serial:
            continue
        known_before = not first and controller.serial[before, r] == serial
        running = controller.running[k, r]
        changed |= running != (controller.running[before, r] if known_before else 0.0)
        total += running
    return total, changed


@inlined
def integrate(cluster: Cluster, controller: Controller, from_s: float) -> None:
    """Sum the report's step function from `from_s` to its last point."""
    me = controller.state[0]
    me.area, previous_s, previous = 0.0, from_s, 0.0
    for number in range(me.first, me.last):
        at_s = controller.point_s[number % controller.point_s.size]
        total, _ = point_total(cluster, controller, number)
        me.area += max(at_s - previous_s, 0.0) * previous
        previous_s, previous = max(at_s, from_s), total
    me.from_s, me.last_point_s, me.last_total = from_s, previous_s, previous


@compiled
def summarise(cluster: Cluster, controller: Controller) -> None:
    """What of the mean over the report stays fixed until the next one.

    The merge keeps only points where some source changed; the window opens at the first of them,
    or when the youngest source began, whichever is later. A lone source is taken as it is.
    """
    me = controller.state[0]
    start_s, replicas = aligned_start(cluster, controller)
    first_change_s = me.last_change_s = math.nan
    for number in range(me.first, me.last):
        _, changed = point_total(cluster, controller, number)
        if changed or replicas == 0:
            me.last_change_s = controller.point_s[number % controller.point_s.size]
            if math.isnan(first_change_s):
                first_change_s = me.last_change_s
    if not math.isnan(first_change_s):
        late_source = start_s > me.last_change_s
        from_s = first_change_s if late_source else max(start_s, first_change_s)
        integrate(cluster, controller, from_s)
    me.version = cluster.state[0].version


@inlined
def total_requests(cluster: Cluster, controller: Controller, now_s: float) -> float:
    """Time-weighted mean of queued + running over the last report, its last value held till now."""
    me = controller.state[0]
    if me.version != cluster.state[0].version:
        summarise(cluster, controller)
    if math.isnan(me.last_change_s):
        return 0.0
    end_s = now_s if now_s > me.last_change_s else me.last_change_s + INSTANT_S
    if end_s <= me.from_s:
        return 0.0
    area = me.area + me.last_total * (end_s - me.last_point_s)
    return float(area / (end_s - me.from_s))


@inlined
def measure(cluster: Cluster, controller: Controller, now_s: float) -> None:
    """Record and push what is due; with no replica ready a waiting arrival is pushed at once."""
    state, me = cluster.state[0], controller.state[0]
    passed_s = now_s - state.start_s + 1e-9
    if passed_s >= me.points * me.record_s:
        record_point(cluster, controller)
    woken = state.ready == 0 and state.arrivals > me.arrivals and state.tail > state.head
    me.arrivals = state.arrivals
    if passed_s >= me.reports * me.interval_s:
        me.reports += 1
        push_report(controller, now_s)
    elif woken:
        push_report(controller, now_s)


@inlined
def scale(me: Record, desired: float, running: int) -> int:
    """Ray's `_apply_scaling_factors`."""
    if running == 0:
        return math.ceil(desired)
    delta = desired - running
    factor = me.upscaling_factor if delta > 0 else me.downscaling_factor
    scaled = math.ceil(running + factor * delta)
    if math.ceil(desired) < running and scaled == running:
        scaled -= 1
    return int(scaled)


@inlined
def delay(me: Record, now_s: float, desired: int, target: int) -> int:
    """Ray's `_apply_delay_logic`: move only when the wish has stood for its delay."""
    direction = int(desired > target) - int(desired < target)
    if direction == 0 or direction != me.direction:
        me.direction, me.since_s = direction, now_s
    if direction == 0:
        return target
    wait_s = me.upscale_delay_s
    if direction < 0:
        wait_s = me.to_zero_delay_s if target == 1 else me.downscale_delay_s
        desired = desired if target == 1 else max(1, desired)
    if now_s - me.since_s + DELAY_TOLERANCE_S < wait_s:
        return target
    me.direction = 0
    return desired


@compiled
def native_target(me: Record, now_s: float, running: int, target: int, total: float) -> int:
    """One decision of the native policy: a replica count within bounds.

    running 3, target_ongoing 2, total 14: desired 7.
    """
    if running == 0 and total > 0:
        wanted = max(math.ceil(me.upscaling_factor), target)
    else:
        desired = float(target)
        if running > 0:
            desired = running * (total / (me.target_ongoing * running))
        wanted = scale(me, desired, running)
        if running > 0 or wanted <= 0:
            wanted = delay(me, now_s, max(0, wanted), target)
    return int(max(me.min_replicas, min(me.max_replicas, wanted)))


@compiled
def _play_native(
    cluster: Cluster, requests: Requests, controller: Controller, until_s: float
) -> None:
    """Every control loop up to and including `until_s`."""
    state, me = cluster.state[0], controller.state[0]
    while True:
        now_s = state.start_s + me.ticks * CONTROL_LOOP_S
        if now_s > until_s:
            break
        advance(cluster, requests, now_s)
        measure(cluster, controller, now_s)
        total = total_requests(cluster, controller, now_s)
        set_target(cluster, native_target(me, now_s, state.ready, state.target, total))
        me.ticks += 1
    advance(cluster, requests, until_s)


def play_native(plant: Plant, settings: NativeSettings) -> Score:
    """Ray Serve's autoscaler in the loop until the trace ends."""
    controller = new_controller(settings, plant.cluster.replicas.size)

    def step(until_s: float) -> None:
        _play_native(plant.cluster, plant.requests, controller, until_s)

    return through(plant, step)
