"""Kubernetes' HorizontalPodAutoscaler fed by KEDA: a threshold of requests per replica.

From the Kubernetes documentation ("Algorithm details", "Configurable scaling behavior") and KEDA's
Prometheus scaler with metric type AverageValue: desired = ceil(replicas x load / threshold), left
alone within 10 %, every 15 s. Replicas that are starting count, as a pod that is not ready does.
"""

from controller.replay.compiled import compiled
from controller.replay.layout import AT_S, READY_REPLICAS, STARTING_REPLICAS, TARGET
from controller.replay.plant import Plant
from controller.replay.rivals.rings import mean, remember, ring_length
from controller.replay.rivals.scrapes import is_blind, load
from controller.replay.rivals.stabilisation import (
    RECOMMENDATIONS,
    bounded,
    needed,
    stabilised,
    stepped,
)
from controller.replay.runner import play as play_rule
from controller.replay.score import Score
from controller.replay.trace import Floats

SYNC_S = 15.0
NAMES = (
    "requests_per_replica",
    "tolerance",
    "average_s",
    "up_window_s",
    "down_window_s",
    "up_percent",
    "up_pods",
)
REQUESTS, TOLERANCE, AVERAGE_S, UP_WINDOW_S, DOWN_WINDOW_S, UP_PERCENT, UP_PODS, CAP = range(8)

LOADS = 16
ADVICE, LOAD = 0, ring_length(RECOMMENDATIONS)
MEMORY = LOAD + ring_length(LOADS)

DEFAULTS = {
    "tolerance": 0.1,
    "average_s": 0.0,
    "up_window_s": 0.0,
    "down_window_s": 300.0,
    "up_percent": 100.0,
    "up_pods": 4.0,
}
STYLES: tuple[dict[str, float], ...] = (
    DEFAULTS,
    DEFAULTS | {"tolerance": 0.02, "up_percent": 900.0},
    DEFAULTS | {"tolerance": 0.02, "up_percent": 900.0, "down_window_s": 120.0},
    DEFAULTS | {"tolerance": 0.02, "up_percent": 900.0, "down_window_s": 600.0},
    DEFAULTS | {"tolerance": 0.02, "up_percent": 900.0, "average_s": 60.0},
    DEFAULTS | {"average_s": 30.0, "down_window_s": 60.0},
)


@compiled
def recommended(
    requests: float, replicas: float, target: int, threshold: float, tolerance: float
) -> int:
    """Two replicas with 200 each against a threshold of 100: four."""
    ratio = requests / (threshold * max(replicas, 1.0))
    if abs(ratio - 1) <= tolerance + 1e-9:
        return target
    return needed(requests, threshold)


@compiled
def advice(view: Floats, memory: Floats, load_base: int, parameters: Floats) -> int:
    """What the metric alone asks for; `load_base` is a ring of LOADS places."""
    remember(memory, load_base, LOADS, view[AT_S], load(view))
    found = mean(memory, load_base, LOADS, parameters[AVERAGE_S])
    replicas = view[READY_REPLICAS] + view[STARTING_REPLICAS]
    threshold, tolerance = parameters[REQUESTS], parameters[TOLERANCE]
    return int(recommended(found, replicas, int(view[TARGET]), threshold, tolerance))


@compiled
def behaved(view: Floats, memory: Floats, base: int, desired: int, parameters: Floats) -> int:
    """Windows, steps and bounds applied to what is desired."""
    up_s, down_s = parameters[UP_WINDOW_S], parameters[DOWN_WINDOW_S]
    target = int(view[TARGET])
    wanted = stabilised(memory, base, view[AT_S], desired, target, up_s, down_s)
    wanted = stepped(wanted, target, parameters[UP_PERCENT], parameters[UP_PODS])
    return bounded(wanted, parameters[CAP])


@compiled
def hpa(view: Floats, memory: Floats, parameters: Floats) -> int:
    """Parameters: NAMES, cap."""
    if is_blind(view):
        return int(view[TARGET])
    desired = advice(view, memory, LOAD, parameters)
    return behaved(view, memory, ADVICE, desired, parameters)


def play(plant: Plant, params: dict[str, float]) -> Score:
    parameters = [*(params[name] for name in NAMES), plant.settings.cap]
    return play_rule(plant, hpa, parameters=parameters, memory=MEMORY, tick_s=SYNC_S)
