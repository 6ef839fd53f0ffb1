"""The composite's forecast: the load one lead ahead, and its quantile from its own past errors.

Three ways to the middle: the last minute's rate, a Kalman filter's line through the minutes, or the
last minute's rate times what yesterday did between now and then. Each minute the forecast that was
made for now is compared with what came, and the quantile of the logarithm of their ratio is moved:
up by q of a step when more came, down by 1 - q when less did. Compiled.
"""

import math

from controller.replay.compiled import compiled
from controller.replay.rivals.daily import days_length, mean_of, note_count, span_of
from controller.replay.rivals.predictors import KALMAN, PREDICTOR_LENGTH, note_value, predict
from controller.replay.rivals.rings import held, place_of, remember, ring_length
from controller.replay.trace import DAY_S, Floats

MINUTE_S = 60.0
SEASONAL = 3
SPANS = 1600
SMOOTHED = 2
GREATEST_RATIO = 2.0
FIRST_ERROR, ERROR_STEP = 0.25, 0.05
MADE = 64
LEAST_RPS = 0.01

STARTED, ERROR, LINE = 0, 1, 2
PAST = LINE + PREDICTOR_LENGTH
FORECASTS = PAST + days_length(SPANS)
FORESIGHT_LENGTH = FORECASTS + ring_length(MADE)
"""Numbers of memory that the forecast takes."""


@compiled
def level_at(memory: Floats, base: int, number: int) -> float:
    """Mean rate of the five minutes around that one; NaN where none is known."""
    total, known = 0.0, 0
    for k in range(number - SMOOTHED, number + SMOOTHED + 1):
        rate = mean_of(memory, base + PAST, SPANS, k)
        if not math.isnan(rate):
            total, known = total + rate, known + 1
    return total / known if known else math.nan


@compiled
def season_ratio(memory: Floats, base: int, at_s: float, lead_s: float) -> float:
    """What yesterday did between this time and a lead later; 1 where it is not known."""
    then = level_at(memory, base, span_of(at_s - DAY_S, MINUTE_S))
    later = level_at(memory, base, span_of(at_s - DAY_S + lead_s, MINUTE_S))
    if not then > LEAST_RPS or math.isnan(later):
        return 1.0
    return float(min(max(later / then, 1 / GREATEST_RATIO), GREATEST_RATIO))


@compiled
def middle(memory: Floats, base: int, kind: int, at_s: float, rps: float, lead_s: float) -> float:
    """The load one lead ahead, as often exceeded as not if the way to it is any good."""
    if kind == KALMAN:
        return predict(memory, base + LINE, KALMAN, lead_s / MINUTE_S)
    if kind == SEASONAL:
        return rps * season_ratio(memory, base, at_s, lead_s)
    return rps


@compiled
def learn(memory: Floats, base: int, at_s: float, rps: float, quantile: float) -> None:
    """Compare the newest forecast for a time that has come with what came; move the error."""
    ring = base + FORECASTS
    for back in range(held(memory, ring, MADE)):
        place = place_of(memory, ring, MADE, back)
        if memory[place] <= at_s:
            error = math.log(max(rps, LEAST_RPS) / max(memory[place + MADE], LEAST_RPS))
            exceeded = 1.0 if error > memory[base + ERROR] else 0.0
            memory[base + ERROR] += ERROR_STEP * (exceeded - (1 - quantile))
            return


@compiled
def foresee(
    memory: Floats,
    base: int,
    kind: int,
    quantile: float,
    lead_s: float,
    at_s: float,
    rps: float,
    count: float,
) -> float:
    """The quantile of the load one lead ahead, from the last minute's rate and the counter."""
    if memory[base + STARTED] == 0:
        memory[base + STARTED], memory[base + ERROR] = 1, FIRST_ERROR
    closed = note_count(memory, base + PAST, SPANS, MINUTE_S, at_s, count)
    if closed:
        learn(memory, base, at_s, rps, quantile)
        note_value(memory, base + LINE, KALMAN, rps)
    found = middle(memory, base, kind, at_s, rps, lead_s)
    if closed:
        remember(memory, base + FORECASTS, MADE, at_s + lead_s, found)
    return float(found * math.exp(memory[base + ERROR]))
