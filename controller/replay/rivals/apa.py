"""AIBrix's APA: requests per replica against a target, with tolerances and limited steps.

From vllm-project/aibrix, pkg/controller/podautoscaler/algorithm/apa.go. As published it divides by
the ready replicas and multiplies by all, so it asks again for what is already starting;
`counts_starting` is the guard against that which an expert would add.
"""

import math

from controller.replay.compiled import compiled
from controller.replay.layout import AT_S, READY_REPLICAS, STARTING_REPLICAS, TARGET
from controller.replay.plant import Plant
from controller.replay.rivals.rings import ring_length
from controller.replay.rivals.scrapes import is_blind, load
from controller.replay.rivals.stabilisation import RECOMMENDATIONS, bounded, stabilised
from controller.replay.runner import play as play_rule
from controller.replay.score import Score
from controller.replay.trace import Floats

SYNC_S = 10.0
NAMES = (
    "requests_per_replica",
    "up_tolerance",
    "down_tolerance",
    "up_rate",
    "down_rate",
    "up_window_s",
    "down_window_s",
    "counts_starting",
)
(
    REQUESTS,
    UP_TOLERANCE,
    DOWN_TOLERANCE,
    UP_RATE,
    DOWN_RATE,
    UP_WINDOW_S,
    DOWN_WINDOW_S,
    COUNTS_STARTING,
    CAP,
) = range(9)
MEMORY = ring_length(RECOMMENDATIONS)

_DEFAULTS = {
    "up_tolerance": 0.1,
    "down_tolerance": 0.1,
    "up_rate": 2.0,
    "down_rate": 2.0,
    "up_window_s": 0.0,
    "down_window_s": 300.0,
    "counts_starting": 0.0,
}
_GUARDED = _DEFAULTS | {"counts_starting": 1.0}
STYLES: tuple[dict[str, float], ...] = (
    _DEFAULTS,
    _GUARDED,
    _GUARDED | {"up_tolerance": 0.02, "down_tolerance": 0.02},
    _GUARDED | {"up_tolerance": 0.02, "down_window_s": 120.0},
    _GUARDED | {"up_tolerance": 0.02, "down_window_s": 600.0},
    _GUARDED | {"up_tolerance": 0.3, "down_tolerance": 0.3, "up_rate": 4.0},
)


@compiled
def desired(replicas: int, ratio: float, parameters: Floats) -> int:
    """Two at 45 against 30 want 3; two at 90 no more than 4; six at 10 no fewer than 3."""
    wanted = math.ceil(replicas * ratio - 1e-9)
    if ratio > 1 + parameters[UP_TOLERANCE] + 1e-9:
        return int(min(wanted, math.ceil(parameters[UP_RATE] * replicas)))
    if ratio < 1 - parameters[DOWN_TOLERANCE] - 1e-9:
        return int(max(wanted, math.floor(replicas / parameters[DOWN_RATE])))
    return replicas


@compiled
def apa(view: Floats, memory: Floats, parameters: Floats) -> int:
    """Parameters: NAMES, cap."""
    target = int(view[TARGET])
    if is_blind(view):
        return target
    measured = view[READY_REPLICAS] + parameters[COUNTS_STARTING] * view[STARTING_REPLICAS]
    ratio = load(view) / max(measured, 1.0) / parameters[REQUESTS]
    wanted = desired(target, ratio, parameters)
    up_s, down_s = parameters[UP_WINDOW_S], parameters[DOWN_WINDOW_S]
    wanted = stabilised(memory, 0, view[AT_S], wanted, target, up_s, down_s)
    return bounded(wanted, parameters[CAP])


def play(plant: Plant, params: dict[str, float]) -> Score:
    parameters = [*(params[name] for name in NAMES), plant.settings.cap]
    return play_rule(plant, apa, parameters=parameters, memory=MEMORY, tick_s=SYNC_S)
