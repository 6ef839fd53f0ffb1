"""Means of the arrival rate by time of day, in a ring inside a rule's memory. Compiled.

A span of `span_s` seconds has the number floor(time / span_s). The ring of `spans` places at `base`
takes `days_length(spans)` numbers: the span that is filling (its number + 1, the time and the
counter at its first scrape), then for each place the number + 1 of the span it holds and the mean
rate of that span.
"""

import math

from controller.replay.compiled import compiled, inlined
from controller.replay.trace import DAY_S, Floats

FILLING, BEGAN_S, BEGAN_COUNT, NUMBERS = 0, 1, 2, 3
LEAST_SHARE = 0.9


def days_length(spans: int) -> int:
    """Numbers of memory that the ring takes."""
    return NUMBERS + 2 * spans


@inlined
def span_of(at_s: float, span_s: float) -> int:
    """The number of the span that holds this time."""
    return math.floor(at_s / span_s + 1e-9)


@compiled
def note_count(
    memory: Floats, base: int, spans: int, span_s: float, at_s: float, count: float
) -> bool:
    """Take a counter value; True when a span was closed. A span begun late is left out."""
    number = span_of(at_s, span_s)
    filling = int(memory[base + FILLING]) - 1
    if number == filling:
        return False
    began_s, began_count = memory[base + BEGAN_S], memory[base + BEGAN_COUNT]
    memory[base + FILLING] = number + 1
    memory[base + BEGAN_S], memory[base + BEGAN_COUNT] = at_s, count
    if filling < 0 or at_s - began_s < LEAST_SHARE * span_s:
        return False
    place = base + NUMBERS + filling % spans
    memory[place], memory[place + spans] = filling + 1, (count - began_count) / (at_s - began_s)
    return True


@inlined
def mean_of(memory: Floats, base: int, spans: int, number: int) -> float:
    """Mean rate of that span; NaN where the ring does not hold it."""
    place = base + NUMBERS + number % spans
    is_held = number >= 0 and memory[place] == number + 1
    return float(memory[place + spans]) if is_held else math.nan


@compiled
def same_time(
    memory: Floats, base: int, spans: int, span_s: float, number: int, days: int, wants_peak: bool
) -> float:
    """Mean (or peak) over the previous `days` of the rate at that span's time; 0 if unknown."""
    a_day = round(DAY_S / span_s)
    total, greatest, known = 0.0, 0.0, 0
    for day in range(1, days + 1):
        rate = mean_of(memory, base, spans, number - day * a_day)
        if not math.isnan(rate):
            total, greatest, known = total + rate, max(greatest, rate), known + 1
    if known == 0:
        return 0.0
    return greatest if wants_peak else total / known
