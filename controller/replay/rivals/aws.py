"""AWS-style: the greater of a predictive and a reactive number of replicas.

From the EC2 Auto Scaling documentation. Predictive: capacity by the hour from the same time of
previous days, in force SchedulingBufferTime before its hour, and never a reason to shrink.
Reactive: target tracking of requests per replica with its two alarms, 3 periods above the target,
15 periods below nine tenths of it; it does not shrink while replicas are starting. The alarms'
periods are what CloudWatch shows for such a policy; the documentation leaves them open.
"""

import math

from controller.replay.compiled import compiled
from controller.replay.layout import ARRIVALS, AT_S, SCRAPED_AT_S, STARTING_REPLICAS, TARGET
from controller.replay.plant import Plant
from controller.replay.rivals.daily import days_length, note_count, same_time, span_of
from controller.replay.rivals.rings import ring_length
from controller.replay.rivals.scrapes import is_blind, note_arrivals, rate
from controller.replay.rivals.stabilisation import bounded, needed
from controller.replay.runner import play as play_rule
from controller.replay.score import Score
from controller.replay.trace import DAY_S, Floats

NAMES = (
    "rps_per_replica",
    "span_s",
    "buffer_s",
    "days",
    "wants_peak",
    "period_s",
    "out_periods",
    "in_periods",
)
RPS, SPAN_S, BUFFER_S, DAYS, WANTS_PEAK, PERIOD_S, OUT, IN, CAP, SPANS = range(10)
LOW_ALARM = 0.9

SCRAPES = 32
HIGH, LOW, ARRIVED = 0, 1, 2
PAST = ARRIVED + ring_length(SCRAPES)

_DEFAULTS = {
    "span_s": 3600.0,
    "buffer_s": 300.0,
    "days": 14.0,
    "wants_peak": 0.0,
    "period_s": 60.0,
    "out_periods": 3.0,
    "in_periods": 15.0,
}
_FAST = _DEFAULTS | {"out_periods": 1.0}
STYLES: tuple[dict[str, float], ...] = (
    _DEFAULTS,
    _FAST,
    _FAST | {"period_s": 20.0},
    _FAST | {"span_s": 900.0, "days": 7.0, "period_s": 20.0},
    _FAST | {"span_s": 300.0, "days": 2.0, "period_s": 20.0, "in_periods": 9.0},
    _FAST | {"span_s": 300.0, "days": 7.0, "wants_peak": 1.0, "in_periods": 5.0},
    _FAST | {"period_s": 20.0, "buffer_s": 0.0, "days": 0.0},
)
"""The last one predicts nothing: target tracking alone."""


@compiled
def predicted_rps(memory: Floats, parameters: Floats, at_s: float) -> float:
    """The greatest forecast of the spans from now to a buffer ahead: 10:00 counts from 9:55."""
    span_s, found = parameters[SPAN_S], 0.0
    spans, days = int(parameters[SPANS]), int(parameters[DAYS])
    peak = parameters[WANTS_PEAK] > 0
    for number in range(span_of(at_s, span_s), span_of(at_s + parameters[BUFFER_S], span_s) + 1):
        found = max(found, same_time(memory, PAST, spans, span_s, number, days, peak))
    return found


@compiled
def tracked(memory: Floats, parameters: Floats, rps: float, target: int, starting: float) -> int:
    """Target tracking: the number that brings requests per replica to the target, once alarmed."""
    per_replica = rps / max(target, 1)
    memory[HIGH] = memory[HIGH] + 1 if per_replica > parameters[RPS] + 1e-9 else 0.0
    memory[LOW] = memory[LOW] + 1 if per_replica < LOW_ALARM * parameters[RPS] else 0.0
    may_grow = memory[HIGH] >= parameters[OUT]
    may_shrink = memory[LOW] >= parameters[IN] and starting == 0
    if may_grow or may_shrink:
        return needed(rps, parameters[RPS])
    return target


@compiled
def aws(view: Floats, memory: Floats, parameters: Floats) -> int:
    """Parameters: NAMES, cap, spans kept; one tick a period."""
    target = int(view[TARGET])
    if is_blind(view):
        return target
    note_arrivals(view, memory, ARRIVED, SCRAPES)
    seen_s, count, spans = view[SCRAPED_AT_S], view[ARRIVALS], int(parameters[SPANS])
    note_count(memory, PAST, spans, parameters[SPAN_S], seen_s, count)
    rps = rate(memory, ARRIVED, SCRAPES, parameters[PERIOD_S])
    if math.isnan(rps):
        return target
    wanted = tracked(memory, parameters, rps, target, view[STARTING_REPLICAS])
    floor = needed(predicted_rps(memory, parameters, view[AT_S]), parameters[RPS])
    return bounded(max(wanted, floor), parameters[CAP])


def play(plant: Plant, params: dict[str, float]) -> Score:
    spans = round((params["days"] + 1) * DAY_S / params["span_s"])
    parameters = [*(params[name] for name in NAMES), plant.settings.cap, spans]
    memory, period_s = PAST + days_length(spans), params["period_s"]
    return play_rule(plant, aws, parameters=parameters, memory=memory, tick_s=period_s)
