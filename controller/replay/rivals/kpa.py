"""Knative's KPA: a stable and a panic window over the concurrency that its queue-proxies report.

From knative/serving (autoscaling documentation, config-autoscaler, pkg/autoscaler/scaling). The
concurrency is probed every second as Knative scrapes its proxies, and decided on every 2 s.
"""

import math

from controller.replay.compiled import compiled
from controller.replay.layout import (
    AT_S,
    DIRECT_ONGOING,
    DIRECT_QUEUED,
    READY_REPLICAS,
    TARGET,
)
from controller.replay.plant import Plant
from controller.replay.rivals.rings import INSTANT_S, greatest, mean, remember, ring_length
from controller.replay.rivals.stabilisation import bounded, needed
from controller.replay.runner import play as play_rule
from controller.replay.score import Score
from controller.replay.trace import Floats

PROBE_S = 1.0
PROBES_PER_DECISION = 2
NAMES = (
    "requests_per_replica",
    "stable_window_s",
    "panic_window_ratio",
    "panic_threshold",
    "down_delay_s",
    "up_rate",
    "down_rate",
)
REQUESTS, STABLE_S, PANIC_RATIO, THRESHOLD, DOWN_DELAY_S, UP_RATE, DOWN_RATE, CAP = range(8)

PROBES, DECISIONS = 320, 640
TICKS, PANICKING, CROSSED_AT_S, PANIC_REPLICAS, PROBED = 0, 1, 2, 3, 4
DECIDED = PROBED + ring_length(PROBES)
MEMORY = DECIDED + ring_length(DECISIONS)

_DEFAULTS = {
    "stable_window_s": 60.0,
    "panic_window_ratio": 0.1,
    "panic_threshold": 2.0,
    "down_delay_s": 0.0,
    "up_rate": 1000.0,
    "down_rate": 2.0,
}
STYLES: tuple[dict[str, float], ...] = (
    _DEFAULTS,
    _DEFAULTS | {"down_delay_s": 300.0},
    _DEFAULTS | {"down_delay_s": 120.0},
    _DEFAULTS | {"down_delay_s": 600.0},
    _DEFAULTS | {"down_delay_s": 300.0, "panic_threshold": 1.2},
    _DEFAULTS | {"down_delay_s": 300.0, "stable_window_s": 20.0, "panic_window_ratio": 0.3},
    _DEFAULTS | {"down_delay_s": 120.0, "stable_window_s": 180.0},
)


@compiled
def limited(concurrency: float, ready: float, parameters: Floats) -> int:
    """Replicas for a concurrency, within the rates: 100 at target 10 is 10; from 30 ready, 15."""
    wanted = needed(concurrency, parameters[REQUESTS])
    most = math.ceil(parameters[UP_RATE] * ready)
    fewest = math.floor(ready / parameters[DOWN_RATE])
    return int(min(max(wanted, fewest), most))


@compiled
def watch_panic(memory: Floats, at_s: float, is_over: bool, stable_s: float) -> None:
    """Panic begins at a crossing and ends once a stable window has passed since the last one."""
    if is_over:
        memory[PANICKING], memory[CROSSED_AT_S] = 1, at_s
    elif memory[PANICKING] and at_s > memory[CROSSED_AT_S] + stable_s + INSTANT_S:
        memory[PANICKING], memory[PANIC_REPLICAS] = 0, 0


@compiled
def decide(
    memory: Floats, parameters: Floats, at_s: float, ready: float, stable: float, panic: float
) -> int:
    """One decision on the mean concurrencies of both windows, the bounds left out."""
    ready = max(ready, 1.0)
    wanted = limited(stable, ready, parameters)
    urgent = limited(panic, ready, parameters)
    crowd = needed(panic, parameters[REQUESTS]) / ready
    watch_panic(memory, at_s, crowd >= parameters[THRESHOLD], parameters[STABLE_S])
    if memory[PANICKING]:
        wanted = int(max(memory[PANIC_REPLICAS], wanted, urgent))
        memory[PANIC_REPLICAS] = wanted
    remember(memory, DECIDED, DECISIONS, at_s, wanted)
    return int(greatest(memory, DECIDED, DECISIONS, parameters[DOWN_DELAY_S]))


@compiled
def kpa(view: Floats, memory: Floats, parameters: Floats) -> int:
    """Parameters: NAMES, cap. It starts in panic at what is there, so as not to drop it."""
    at_s, ready, ticks = view[AT_S], view[READY_REPLICAS], int(memory[TICKS])
    if ticks == 0 and ready > 1:
        memory[PANICKING], memory[CROSSED_AT_S], memory[PANIC_REPLICAS] = 1, at_s, ready
    remember(memory, PROBED, PROBES, at_s, view[DIRECT_ONGOING] + view[DIRECT_QUEUED])
    memory[TICKS] += 1
    if ticks % PROBES_PER_DECISION:
        return int(view[TARGET])
    stable_s = parameters[STABLE_S]
    stable = mean(memory, PROBED, PROBES, stable_s)
    panic = mean(memory, PROBED, PROBES, stable_s * parameters[PANIC_RATIO])
    return bounded(decide(memory, parameters, at_s, ready, stable, panic), parameters[CAP])


def play(plant: Plant, params: dict[str, float]) -> Score:
    parameters = [*(params[name] for name in NAMES), plant.settings.cap]
    return play_rule(plant, kpa, parameters=parameters, memory=MEMORY, tick_s=PROBE_S)
