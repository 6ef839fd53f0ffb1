"""What a rival reads from its Prometheus: load, and rates of the arrivals' counter. Compiled.

Before the first scrape there is nothing, and every rule keeps its target.
"""

import math

from controller.replay.compiled import compiled, inlined
from controller.replay.layout import ARRIVALS, ONGOING, QUEUED, SCRAPED_AT_S
from controller.replay.rivals.rings import INSTANT_S, held, place_of, remember
from controller.replay.trace import Floats

LEAST_SPAN_S = 10.0
"""Workers push every 10 s: over less, a counter that stood still says nothing."""


@inlined
def is_blind(view: Floats) -> bool:
    """Nothing has been scraped yet."""
    return math.isnan(view[SCRAPED_AT_S])


@inlined
def load(view: Floats) -> float:
    """Requests queued or running at the last scrape."""
    return float(view[QUEUED] + view[ONGOING])


@compiled
def note_arrivals(view: Floats, memory: Floats, base: int, size: int) -> None:
    """Put the counter of a scrape not seen before into the ring."""
    fresh = held(memory, base, size) == 0
    if fresh or view[SCRAPED_AT_S] > memory[place_of(memory, base, size, 0)] + INSTANT_S:
        remember(memory, base, size, view[SCRAPED_AT_S], view[ARRIVALS])


@compiled
def rate(memory: Floats, base: int, size: int, window_s: float) -> float:
    """Arrivals per second over the last `window_s`, or since the first scrape.

    NaN below 10 s. Windows of whole pushes (10 s) are exact: both ends are equally late.
    """
    entries = held(memory, base, size)
    if entries < 2:
        return math.nan
    newest = place_of(memory, base, size, 0)
    oldest = newest
    for back in range(1, entries):
        oldest = place_of(memory, base, size, back)
        if memory[newest] - memory[oldest] >= window_s - INSTANT_S:
            break
    span_s = memory[newest] - memory[oldest]
    if span_s < LEAST_SPAN_S - INSTANT_S:
        return math.nan
    return float((memory[newest + size] - memory[oldest + size]) / span_s)
