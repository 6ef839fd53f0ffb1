"""PHPA: an HPA that also predicts its own replica counts by Holt-Winters, and takes the greater.

From jthomperoo/predictive-horizontal-pod-autoscaler. What it smooths is what the HPA's metric asked
for at each sync, not the load. `lookahead_s` 0 is its one step; more is what its linear model has.
"""

import math

from controller.replay.compiled import compiled
from controller.replay.layout import TARGET
from controller.replay.plant import Plant
from controller.replay.rivals import hpa
from controller.replay.rivals.holt_winters import ahead, smooth, smoothing_length
from controller.replay.rivals.hpa import SYNC_S, advice, behaved
from controller.replay.rivals.scrapes import is_blind
from controller.replay.runner import play as play_rule
from controller.replay.score import Score
from controller.replay.trace import DAY_S, Floats

NAMES = (*hpa.NAMES, "season_s", "lookahead_s", "alpha", "beta", "gamma")
PERIOD, STEPS, ALPHA, BETA, GAMMA = range(hpa.CAP + 1, hpa.CAP + 6)

HISTORY = hpa.MEMORY

_DEFAULTS = hpa.DEFAULTS | {
    "season_s": 90.0,
    "lookahead_s": 0.0,
    "alpha": 0.9,
    "beta": 0.9,
    "gamma": 0.9,
}
_DAILY = hpa.DEFAULTS | {
    "tolerance": 0.02,
    "up_percent": 900.0,
    "season_s": DAY_S,
    "lookahead_s": 120.0,
    "alpha": 0.1,
    "beta": 0.0,
    "gamma": 0.3,
}
STYLES: tuple[dict[str, float], ...] = (
    _DEFAULTS,
    _DAILY,
    _DAILY | {"lookahead_s": 300.0},
    _DAILY | {"lookahead_s": 300.0, "alpha": 0.03, "gamma": 0.6, "down_window_s": 120.0},
    _DAILY | {"lookahead_s": 60.0, "average_s": 60.0},
    _DAILY | {"season_s": SYNC_S, "alpha": 0.2, "beta": 0.02, "gamma": 0.0},
)
"""First the example of its documentation (six syncs a season); the last is Holt's trend alone."""


@compiled
def phpa(view: Floats, memory: Floats, parameters: Floats) -> int:
    """Parameters: hpa's and its cap, syncs a season, steps ahead, three weights."""
    if is_blind(view):
        return int(view[TARGET])
    desired = advice(view, memory, hpa.LOAD, parameters)
    period = int(parameters[PERIOD])
    weights = parameters[ALPHA], parameters[BETA], parameters[GAMMA]
    smooth(memory, HISTORY, period, desired, weights[0], weights[1], weights[2])
    foreseen = ahead(memory, HISTORY, period, int(parameters[STEPS]))
    if not math.isnan(foreseen):
        desired = max(desired, math.ceil(foreseen - 1e-9))
    return behaved(view, memory, hpa.ADVICE, desired, parameters)


def play(plant: Plant, params: dict[str, float]) -> Score:
    period = max(round(params["season_s"] / SYNC_S), 1)
    steps = max(round(params["lookahead_s"] / SYNC_S), 1)
    of_hpa = [*(params[name] for name in hpa.NAMES), plant.settings.cap]
    weights = (params["alpha"], params["beta"], params["gamma"])
    memory = HISTORY + smoothing_length(period)
    parameters = [*of_hpa, period, steps, *weights]
    return play_rule(plant, phpa, parameters=parameters, memory=memory, tick_s=SYNC_S)
