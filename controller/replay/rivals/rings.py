"""Rings of (time, value) inside a rule's memory: windows over what the rule has seen. Compiled.

A ring of `size` places that begins at `base` takes `ring_length(size)` numbers: how many were ever
put in, their times, their values. A window is (newest - window_s, newest], so that the newest entry
always belongs to it.
"""

import math

from controller.replay.compiled import compiled, inlined
from controller.replay.trace import Floats

INSTANT_S = 1e-6


def ring_length(size: int) -> int:
    """Numbers of memory that a ring takes."""
    return 1 + 2 * size


@compiled
def remember(memory: Floats, base: int, size: int, at_s: float, value: float) -> None:
    """Put in a value; it takes the place of the oldest when the ring is full."""
    k = base + 1 + int(memory[base]) % size
    memory[k], memory[k + size] = at_s, value
    memory[base] += 1


@inlined
def held(memory: Floats, base: int, size: int) -> int:
    """How many entries the ring holds."""
    return min(int(memory[base]), size)


@inlined
def place_of(memory: Floats, base: int, size: int, back: int) -> int:
    """Where the time of the entry `back` before the newest lies; its value is `size` further."""
    return int(base + 1 + (int(memory[base]) - 1 - back) % size)


@inlined
def reach(memory: Floats, base: int, size: int, window_s: float) -> int:
    """How many of the newest entries lie inside the window."""
    entries = held(memory, base, size)
    if entries == 0:
        return 0
    since_s = memory[place_of(memory, base, size, 0)] - window_s + INSTANT_S
    for back in range(1, entries):
        if memory[place_of(memory, base, size, back)] <= since_s:
            return back
    return entries


@compiled
def mean(memory: Floats, base: int, size: int, window_s: float) -> float:
    """The mean over the window; NaN while the ring is empty."""
    total, entries = 0.0, reach(memory, base, size, window_s)
    for back in range(entries):
        total += memory[place_of(memory, base, size, back) + size]
    return total / entries if entries else math.nan


@compiled
def least(memory: Floats, base: int, size: int, window_s: float) -> float:
    """The least over the window; inf while the ring is empty."""
    found = math.inf
    for back in range(reach(memory, base, size, window_s)):
        found = min(found, memory[place_of(memory, base, size, back) + size])
    return found


@compiled
def greatest(memory: Floats, base: int, size: int, window_s: float) -> float:
    """The greatest over the window; -inf while the ring is empty."""
    found = -math.inf
    for back in range(reach(memory, base, size, window_s)):
        found = max(found, memory[place_of(memory, base, size, back) + size])
    return found
