"""Dynamo's planner: a floor from a forecast of one interval, and a load loop that moves by one.

From ai-dynamo's planner (throughput loop, load loop): every interval the request rate of the next
is forecast and divided by what an engine serves within the SLO: the floor. Every 5 s the load loop
adds one when the queue would make every engine miss the SLO, takes one away when N - 1 engines
would stay below 0.8 of it, and does nothing while replicas are starting. An engine's measures here:
the wait of a new request is the queue over what all serve, and the room for requests is its slots.
"""

import math

from controller.replay.compiled import compiled
from controller.replay.layout import AT_S, QUEUED, READY_REPLICAS, STARTING_REPLICAS, TARGET
from controller.replay.plant import Plant
from controller.replay.rivals.predictors import (
    AUTO_REGRESSION,
    KALMAN,
    LAST_VALUE,
    PREDICTOR_LENGTH,
    note_value,
    predict,
)
from controller.replay.rivals.rings import ring_length
from controller.replay.rivals.scrapes import is_blind, load, note_arrivals, rate
from controller.replay.rivals.stabilisation import bounded, needed
from controller.replay.runner import play as play_rule
from controller.replay.score import Score
from controller.replay.trace import Floats

LOAD_LOOP_S = 5.0
CONSOLIDATION = 0.8
NAMES = ("rps_per_replica", "interval_s", "predictor", "waits_for_starts")
RPS, INTERVAL_S, PREDICTOR, WAITS, CAP, SLOTS, SLO_S = range(7)

SCRAPES = 72
FLOOR, NEXT_S, FORECAST = 0, 1, 2
ARRIVED = FORECAST + PREDICTOR_LENGTH
MEMORY = ARRIVED + ring_length(SCRAPES)

_DEFAULTS = {"interval_s": 180.0, "predictor": float(AUTO_REGRESSION), "waits_for_starts": 1.0}
_READY = _DEFAULTS | {"waits_for_starts": 0.0}
STYLES: tuple[dict[str, float], ...] = (
    _DEFAULTS,
    _READY | {"interval_s": 60.0, "predictor": float(KALMAN)},
    _READY | {"interval_s": 60.0},
    _READY | {"interval_s": 30.0, "predictor": float(LAST_VALUE)},
    _READY | {"predictor": float(KALMAN)},
    _READY | {"interval_s": 300.0, "predictor": float(LAST_VALUE)},
    _DEFAULTS | {"interval_s": 60.0, "predictor": float(KALMAN)},
)


@compiled
def would_carry(replicas: float, queued: float, requests: float, parameters: Floats) -> bool:
    """The consolidation check: that many stay below 0.8 of the SLO and of their slots."""
    if replicas < 1:
        return False
    wait_s = queued / (replicas * parameters[RPS])
    room = CONSOLIDATION * parameters[SLOTS] * replicas
    return bool(wait_s < CONSOLIDATION * parameters[SLO_S] and requests < room)


@compiled
def load_step(target: int, ready: float, queued: float, requests: float, p: Floats) -> int:
    """+1, -1 or 0. Two engines of 2 requests/s, SLO 2 s: 9 queued wait 2.25 s, so one more."""
    if queued / (max(ready, 1.0) * p[RPS]) > p[SLO_S]:
        return 1
    return -1 if would_carry(target - 1, queued, requests, p) else 0


@compiled
def plan_floor(view: Floats, memory: Floats, parameters: Floats) -> None:
    """At each interval's end: the forecast of the next one sets the floor."""
    at_s, interval_s = view[AT_S], parameters[INTERVAL_S]
    if memory[NEXT_S] == 0:
        memory[NEXT_S] = at_s + interval_s
    if at_s < memory[NEXT_S]:
        return
    memory[NEXT_S] += interval_s
    seen_rps = rate(memory, ARRIVED, SCRAPES, interval_s)
    if math.isnan(seen_rps):
        return
    kind = int(parameters[PREDICTOR])
    note_value(memory, FORECAST, kind, seen_rps)
    memory[FLOOR] = needed(predict(memory, FORECAST, kind, 1.0), parameters[RPS])


@compiled
def dynamo(view: Floats, memory: Floats, parameters: Floats) -> int:
    """Parameters: NAMES, cap, slots of a replica, SLO in seconds."""
    target = int(view[TARGET])
    if is_blind(view):
        return target
    note_arrivals(view, memory, ARRIVED, SCRAPES)
    plan_floor(view, memory, parameters)
    if view[STARTING_REPLICAS] > 0:
        if parameters[WAITS]:
            return target
        return bounded(max(target, int(memory[FLOOR])), parameters[CAP])
    wanted = target + load_step(target, view[READY_REPLICAS], view[QUEUED], load(view), parameters)
    return bounded(max(wanted, int(memory[FLOOR])), parameters[CAP])


def play(plant: Plant, params: dict[str, float]) -> Score:
    settings = plant.settings
    known = (settings.cap, settings.slots, settings.slo_ttft_s)
    parameters = [*(params[name] for name in NAMES), *known]
    return play_rule(plant, dynamo, parameters=parameters, memory=MEMORY, tick_s=LOAD_LOOP_S)
