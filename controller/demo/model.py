"""The small model of the demo's cluster: chooses the opponent's settings, makes the past.

A simulated cluster with the stand-in's own law and the cold starts of a real Ray cluster on
this machine; see `controller.replay`.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from controller.demo.day import Day, Floats
from controller.demo.script import Script
from controller.replay.native import NativeSettings, play_native
from controller.replay.plant import ColdStart, MetricsPath, Plant, PlantSettings
from controller.replay.trace import Trace, from_requests

MOST_VIOLATIONS = 0.05
UPSCALE_DELAYS_S = (0.0, 1.0, 3.0)
DOWNSCALE_DELAYS_S = (1.0, 3.0, 6.0, 12.0, 24.0, 40.0, 60.0)
LOOK_BACKS_S = (1.0, 3.0, 8.0)
METRICS_INTERVALS_S = (1.0, 3.0)


@dataclass(frozen=True)
class Candidate:
    """One setting of Serve's own autoscaler and what it gave on the history days, a day."""

    settings: NativeSettings
    violation_ratio: float
    replica_seconds: float


@dataclass(frozen=True)
class Past:
    """A day as its metrics would have shown it, second by second: cumulative arrivals and
    completions, and requests running on each replica (seconds, replicas)."""

    arrivals: Floats
    completions: Floats
    running: Floats


def plant_settings(script: Script) -> PlantSettings:
    """The demo's cluster."""
    return PlantSettings(
        slots=script.law.slots,
        beta=script.law.beta,
        prefill_tokens_per_s=script.law.prefill_tokens_per_s,
        tpot_s=script.law.token_s,
        slo_ttft_s=script.ttft_s,
        cold_start=ColdStart(script.cold_start_s, 0.08),
        cap=script.max_replicas,
        drain_timeout_s=20.0,
        metrics=MetricsPath(push_s=1.0, push_offset_s=0.5, scrape_s=1.0, lag_s=0.2),
    )


def grid(script: Script) -> list[NativeSettings]:
    """Every setting the opponent may be given."""
    combinations = itertools.product(
        script.targets, UPSCALE_DELAYS_S, DOWNSCALE_DELAYS_S, LOOK_BACKS_S, METRICS_INTERVALS_S
    )
    return [
        NativeSettings(
            min_replicas=script.min_replicas,
            max_replicas=script.max_replicas,
            target_ongoing_requests=target,
            upscale_delay_s=up_s,
            downscale_delay_s=down_s,
            look_back_period_s=look_back_s,
            metrics_interval_s=interval_s,
        )
        for target, up_s, down_s, look_back_s, interval_s in combinations
    ]


def best_native(
    history: Sequence[Day], progress: Callable[[float], None]
) -> tuple[Candidate, list[Candidate]]:
    """The cheapest setting with at most 5 % violations on the history days, and all of them."""
    script = history[0].script
    trace = _joined(history)
    choices = grid(script)
    tried = []
    for done, settings in enumerate(choices):
        plant = Plant(plant_settings(script), trace, initial=script.min_replicas, seed=1)
        score = play_native(plant, settings)
        seconds = score.gpu_hours * 3600 / len(history)
        tried.append(Candidate(settings, score.violation_ratio, seconds))
        progress((done + 1) / len(choices))
    good = [candidate for candidate in tried if candidate.violation_ratio <= MOST_VIOLATIONS]
    best = min(good, key=lambda c: c.replica_seconds, default=None)
    return best or min(tried, key=lambda c: c.violation_ratio), tried


def past_of(past_day: Day) -> Past:
    """The metrics of an earlier day on a fleet that was large enough."""
    script = past_day.script
    trace = _joined([past_day])
    plant = Plant(plant_settings(script), trace, initial=script.past_replicas, seed=past_day.seed)
    seconds = int(script.season_s)
    counts, running = np.zeros((2, seconds)), np.zeros((seconds, script.past_replicas))
    for second in range(seconds):
        plant.advance(second + 1.0)
        state = plant.cluster.state[0]
        counts[:, second] = state["arrivals"], state["completions"]
        running[second] = plant.cluster.replicas["running"][: script.past_replicas]
    return Past(counts[0], counts[1], running)


def _joined(days: Sequence[Day]) -> Trace:
    """Days without their warm-up, one after the other."""
    season_s = days[0].script.season_s
    times, prompts, outputs = [], [], []
    for place, part in enumerate(days):
        inside = part.times_s >= 0
        times.append(part.times_s[inside] + place * season_s)
        prompts.append(part.arrivals.prompt_tokens[inside].astype(np.int32))
        outputs.append(part.arrivals.output_tokens[inside].astype(np.int32))
    return from_requests(
        "days",
        np.concatenate(times),
        np.concatenate(prompts),
        np.concatenate(outputs),
        season_s * len(days),
    )
