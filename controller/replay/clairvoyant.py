"""A policy that sees the future load and pays the cold start: what no forecast can beat by much."""

import math

import numpy as np

from controller.replay.compiled import compiled
from controller.replay.layout import AT_S
from controller.replay.plant import Plant, PlantSettings
from controller.replay.runner import play
from controller.replay.score import Score
from controller.replay.trace import Floats, Trace

STEP_S = 10.0
WINDOW_S = 60.0
START_MARGIN = 1.2
HEADROOMS = tuple(round(0.9 + 0.02 * k, 2) for k in range(26))
"""The grid on which the cheapest head-room at a target attainment is looked for."""


def arriving_work(trace: Trace, settings: PlantSettings, step_s: float = STEP_S) -> Floats:
    """Seconds of work, alone, that arrive per second, by step from the trace's start."""
    work = np.zeros(math.ceil((trace.end_s - trace.start_s) / step_s))
    for _, requests in trace.chunks():
        alone_s = requests.prompt_tokens / settings.prefill_tokens_per_s
        alone_s = alone_s + requests.output_tokens * settings.tpot_s
        step = ((requests.arrival_s - trace.start_s) / step_s).astype(np.int64)
        work += np.bincount(step, weights=alone_s, minlength=len(work))
    return work / step_s


def plan(
    work: Floats, settings: PlantSettings, *, headroom: float, lead_s: float, step_s: float = STEP_S
) -> Floats:
    """Replicas to ask for, by step: enough for everything that arrives in [t, t + lead].

    A replica not needed for less than a lead is kept, one not needed for longer is dropped: its
    restart costs a lead of GPU time, so this is where both cost the same. `headroom` multiplies the
    load. Arriving work is averaged over 60 s, as running requests and the queue do, and starts are
    asked for 20 % early, as they vary: among 10-120 s and 0-30 % these needed the fewest GPU-hours
    at 1 % violations on four windows at 45 and 300 s.
    """
    width = max(round(WINDOW_S / step_s), 1)
    smooth = np.convolve(work, np.ones(width) / width, "same")
    need = np.maximum(np.ceil(headroom * smooth / settings.full_speed - 1e-9), 1)
    ahead = math.ceil(lead_s * START_MARGIN / step_s) + 1
    padded = np.concatenate((need, np.full(ahead, need[-1])))
    targets: Floats = np.lib.stride_tricks.sliding_window_view(padded, ahead + 1).max(axis=1)
    return targets


@compiled
def follow(view: Floats, memory: Floats, parameters: Floats) -> int:
    """The plan's target at this time; parameters: start, step, then one target per step."""
    step = int((view[AT_S] - parameters[0]) / parameters[1] + 1e-9)
    return int(parameters[2 + min(step, parameters.size - 3)])


def play_plan(plant: Plant, targets: Floats, *, step_s: float = STEP_S) -> Score:
    """Follow a plan made beforehand until the trace ends."""
    parameters = np.concatenate(([plant.start_s, step_s], targets))
    return play(plant, follow, parameters=parameters, tick_s=step_s)
