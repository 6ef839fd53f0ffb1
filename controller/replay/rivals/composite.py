"""The strongest opponent on paper: nobody ships it, all its parts are published.

A floor of the 90 % forecast one lead ahead over the capacity of a replica; supply that counts what
is starting, with need at 0.85 and spare at 0.70 of capacity (llm-d WVA, V2); one replica less at a
time, and only if the rest stays below 0.8 (Dynamo); Knative's panic latch, which never shrinks
until 60 s after the last crossing. The lead is the plant's true mean cold start. A backlog is
demand too: it should be gone one lead from now. `hold_ratio` keeps a target for so many leads.
"""

import math

from controller.replay.compiled import compiled
from controller.replay.layout import (
    ARRIVALS,
    AT_S,
    QUEUED,
    READY_REPLICAS,
    SCRAPED_AT_S,
    TARGET,
)
from controller.replay.plant import Plant
from controller.replay.rivals.foresight import FORESIGHT_LENGTH, MINUTE_S, SEASONAL, foresee
from controller.replay.rivals.predictors import KALMAN, LAST_VALUE
from controller.replay.rivals.rings import INSTANT_S, greatest, remember, ring_length
from controller.replay.rivals.scrapes import is_blind, load, note_arrivals, rate
from controller.replay.rivals.stabilisation import bounded, needed
from controller.replay.runner import play as play_rule
from controller.replay.score import Score
from controller.replay.trace import Floats

TICK_S = 5.0
NEED, CONSOLIDATION = 0.85, 0.8
PANIC_WINDOW_S, LATCH_S = 20.0, 60.0
PLAIN_NAMES = ("rps_per_replica", "predictor", "quantile", "panic_threshold", "spare_load")
RPS, PREDICTOR, QUANTILE, THRESHOLD, SPARE, LEAD_S, HOLD_S, CAP, SLOTS = range(9)

SCRAPES, TARGETS = 32, 256
PANICKING, CROSSED_AT_S, ARRIVED = 0, 1, 2
KEPT = ARRIVED + ring_length(SCRAPES)
FORESIGHT = KEPT + ring_length(TARGETS)
MEMORY = FORESIGHT + FORESIGHT_LENGTH

_DEFAULTS = {
    "predictor": float(LAST_VALUE),
    "quantile": 0.9,
    "panic_threshold": 2.0,
    "spare_load": 0.7,
    "lead_ratio": 1.0,
    "hold_ratio": 0.0,
}
_TIGHT = _DEFAULTS | {"spare_load": 0.85}
_DAILY = _DEFAULTS | {"predictor": float(SEASONAL)}
STYLES: tuple[dict[str, float], ...] = (
    _DEFAULTS,
    _TIGHT,
    _DAILY,
    _DEFAULTS | {"predictor": float(KALMAN)},
    _DEFAULTS | {"quantile": 0.7, "panic_threshold": 1.2},
    _DEFAULTS | {"quantile": 0.98},
    _TIGHT | {"hold_ratio": 1.0},
    _DAILY | {"hold_ratio": 1.0, "spare_load": 0.85},
    _DAILY | {"hold_ratio": 1.0, "lead_ratio": 1.3, "quantile": 0.98},
)


@compiled
def supplied(target: int, demand_rps: float, requests: float, p: Floats) -> int:
    """WVA's need and spare over all replicas asked for; the rest must pass Dynamo's check.

    At 1 request/s each: 8.6 requests/s need ceil(8.6 / 0.85) = 11 replicas; of 14, 1.7 are spare
    at 0.70, so 13 remain, unless 13 replicas' slots are more than 0.8 full.
    """
    need = needed(demand_rps, NEED * p[RPS])
    if need >= target:
        return need
    without_spare = needed(demand_rps, p[SPARE] * p[RPS])
    carrying = needed(demand_rps, CONSOLIDATION * p[RPS])
    roomy = needed(requests, CONSOLIDATION * p[SLOTS])
    return int(min(target, max(without_spare, carrying, roomy)))


@compiled
def latched(memory: Floats, at_s: float, wanted: int, target: int, urgent: int, crowd: bool) -> int:
    """While in panic the target never shrinks and covers the last 20 s."""
    if crowd:
        memory[PANICKING], memory[CROSSED_AT_S] = 1, at_s
    elif memory[PANICKING] and at_s > memory[CROSSED_AT_S] + LATCH_S + INSTANT_S:
        memory[PANICKING] = 0
    return int(max(wanted, target, urgent)) if memory[PANICKING] else wanted


@compiled
def released(memory: Floats, at_s: float, wanted: int, target: int, hold_s: float) -> int:
    """The greatest wanted in the last `hold_s`; a smaller target is reached one at a time."""
    remember(memory, KEPT, TARGETS, at_s, wanted)
    return int(max(greatest(memory, KEPT, TARGETS, hold_s), target - 1))


@compiled
def foreseen_floor(view: Floats, memory: Floats, p: Floats, rps: float) -> int:
    """Replicas for the forecast quantile one lead ahead."""
    kind, at_s, count = int(p[PREDICTOR]), view[SCRAPED_AT_S], view[ARRIVALS]
    load_rps = foresee(memory, FORESIGHT, kind, p[QUANTILE], p[LEAD_S], at_s, rps, count)
    return int(needed(load_rps, p[RPS]))


@compiled
def composite(view: Floats, memory: Floats, parameters: Floats) -> int:
    """Parameters: PLAIN_NAMES, lead and hold in seconds, cap, slots of a replica."""
    target, at_s, p = int(view[TARGET]), view[AT_S], parameters
    if is_blind(view):
        return target
    note_arrivals(view, memory, ARRIVED, SCRAPES)
    rps = rate(memory, ARRIVED, SCRAPES, MINUTE_S)
    if math.isnan(rps):
        return target
    backlog_rps = view[QUEUED] / p[LEAD_S]
    wanted = supplied(target, rps + backlog_rps, load(view), p)
    urgent_rps = rate(memory, ARRIVED, SCRAPES, PANIC_WINDOW_S) + backlog_rps
    urgent = needed(urgent_rps, p[RPS])
    crowd = urgent >= p[THRESHOLD] * max(view[READY_REPLICAS], 1.0)
    wanted = max(wanted, foreseen_floor(view, memory, p, rps))
    wanted = latched(memory, at_s, wanted, target, urgent, crowd)
    return bounded(released(memory, at_s, wanted, target, p[HOLD_S]), p[CAP])


def play(plant: Plant, params: dict[str, float]) -> Score:
    settings = plant.settings
    cold_start = settings.cold_start
    samples_s = cold_start.samples_s
    mean_s = sum(samples_s) / len(samples_s) if samples_s else cold_start.mean_s
    lead_s = max(params["lead_ratio"] * mean_s, TICK_S)
    plain = [params[name] for name in PLAIN_NAMES]
    parameters = [*plain, lead_s, params["hold_ratio"] * mean_s, settings.cap, settings.slots]
    return play_rule(plant, composite, parameters=parameters, memory=MEMORY, tick_s=TICK_S)
