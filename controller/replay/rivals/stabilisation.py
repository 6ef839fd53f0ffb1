"""Kubernetes' stabilisation windows and steps, which three rivals share; and bounds. Compiled.

From the HorizontalPodAutoscaler's `behavior`: among the recommendations of the up window the least
may raise the target, among those of the down window the greatest may lower it; then policies limit
the step. Recommendations are kept before the bounds are applied.
"""

import math

from controller.replay.compiled import compiled
from controller.replay.rivals.rings import greatest, least, remember
from controller.replay.trace import Floats

RECOMMENDATIONS = 128
"""Places in the ring of recommendations: 32 minutes at one every 15 s."""


@compiled
def stabilised(
    memory: Floats,
    base: int,
    at_s: float,
    desired: int,
    target: int,
    up_window_s: float,
    down_window_s: float,
) -> int:
    """The target after both windows; `base` is a ring of RECOMMENDATIONS places.

    Down window 300 s: 10, then 4 wanted, stays 10 until 300 s after the last 10 was wanted.
    """
    remember(memory, base, RECOMMENDATIONS, at_s, desired)
    low = least(memory, base, RECOMMENDATIONS, up_window_s)
    high = greatest(memory, base, RECOMMENDATIONS, down_window_s)
    return int(min(max(target, low), high))


@compiled
def stepped(wanted: int, target: int, up_percent: float, up_pods: float) -> int:
    """At most the larger of two steps up per sync: from 3 with 100 % and 4 pods to 7."""
    if wanted <= target:
        return wanted
    by_percent = math.ceil(target * (1 + up_percent / 100) - 1e-9)
    return int(min(wanted, max(by_percent, target + int(up_pods))))


@compiled
def needed(load: float, per_replica: float) -> int:
    """The least number that carries the load: 8.6 at 1 each, 9; 8 at 2 each, 4."""
    return math.ceil(load / per_replica - 1e-9)


@compiled
def bounded(wanted: int, cap: float) -> int:
    """Within 1 and the cap."""
    return int(max(1, min(wanted, int(cap))))
