"""`make bench-oracle`: what a perfect forecast would be worth, on the series without spikes.

The oracle knows the recipe that drew the load: the recorded rate to come, and where the AR(1) noise
stands now. Only the noise still to come and the Poisson arrivals are left to chance, in the
proportions of the recipe. The planner is ours as it ships, the rivals those of bench-decide. Where
even this costs about what the best rival in hindsight costs, no better forecaster can help.
"""

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from controller.core.forecasting.forecaster import LEVELS, PROBABILITIES
from controller.core.planning import Planner
from controller.core.types import Forecast
from controller.replay.cache import FOLDER, Cache
from controller.replay.compare import evaluation, holding
from controller.replay.frontier import cheapest_within
from controller.replay.ours import Leadtime
from controller.replay.rivals.registry import RIVALS
from controller.replay.runner import run
from controller.replay.runs import EPOCH_S, Run, ready_planner
from controller.replay.scenario import LEADS_S, Scenario, fifteen_windows
from controller.replay.series import Recipe, noise
from controller.replay.sweep import Curve, Goal, aim, polish, runs_of
from controller.replay.tables import ratio
from controller.replay.trace import DAY_S, Bins, Floats, TraceError, read
from tests.benchmarks.decide import TRACES

FILES = {"azure_s0": "azure_llm_2024_conv", "m_small": "servegen_m_small", "nasa": "nasa_jul95"}
MEAN_RPS = 10.0
WINDOW_STEPS, BLOCK_STEPS, PATHS = 6, 3, 20_000
Answer = Callable[[float, float], Forecast]


def truth(folder: Path, series: str) -> tuple[Floats, Floats]:
    """(recorded requests per second, logarithm of the noise on them) by step of the recipe."""
    bins = read(folder / f"{FILES[series]}.csv.gz")
    assert isinstance(bins, Bins)
    bins, recipe = bins.until(14 * DAY_S), Recipe(mean_rps=MEAN_RPS)
    step_s = recipe.step_s
    centre_s = np.arange(0.5, bins.end_s / step_s) * step_s
    rate_rps = np.interp(centre_s, bins.start_s + bins.bin_s / 2, bins.requests / bins.bin_s)
    recorded = np.ones(len(centre_s), bool)
    for start_s, end_s in bins.gaps:
        recorded &= (centre_s < start_s) | (centre_s >= end_s)
    rate_rps *= MEAN_RPS / rate_rps[recorded].mean()
    drawn = noise(len(rate_rps), recipe, np.random.default_rng(recipe.seed))
    return rate_rps, np.log(drawn) + recipe.noise_sd**2 / 2


@lru_cache(maxsize=4096)
def peak_ratios(steps_ahead: int, rate_rps: float) -> Floats:
    """Quantiles of the window's peak over its recorded rate, noise now at its mean."""
    recipe, rng = Recipe(), np.random.default_rng(1)
    keep = math.exp(-recipe.step_s / recipe.noise_correlation_s)
    shock = math.sqrt(1 - keep**2) * recipe.noise_sd
    log, counts = np.zeros(PATHS), []
    for step in range(steps_ahead + WINDOW_STEPS):
        log = keep * log + shock * rng.standard_normal(PATHS)
        if step >= steps_ahead:
            mean = recipe.step_s * rate_rps * np.exp(log - recipe.noise_sd**2 / 2)
            counts.append(rng.poisson(mean) / recipe.step_s)
    blocks = [
        np.mean(counts[low : low + BLOCK_STEPS], axis=0)
        for low in range(WINDOW_STEPS - BLOCK_STEPS + 1)
    ]
    ratios: Floats = np.quantile(np.max(blocks, axis=0) / rate_rps, PROBABILITIES)
    return ratios


def oracle(folder: Path, series: str) -> Answer:
    """(now, seconds ahead) -> a forecast."""
    rate_rps, log_noise = truth(folder, series)
    recipe = Recipe()

    def answer(now_s: float, ahead_s: float) -> Forecast:
        at = int((now_s - EPOCH_S) // recipe.step_s)
        opens = min(at + round(ahead_s / recipe.step_s), len(rate_rps) - WINDOW_STEPS)
        rate = float(rate_rps[opens : opens + WINDOW_STEPS].max())
        coarse_rps = math.exp(round(math.log(max(rate, 0.3)) * 5) / 5)
        known = math.exp(-ahead_s / recipe.noise_correlation_s) * log_noise[at - 1]
        peaks = rate * math.exp(known) * peak_ratios(opens - at, coarse_rps)
        return Forecast(now_s, ahead_s, LEVELS, tuple(peaks.tolist()), "oracle")

    return answer


def told(planner: Planner, answer: Answer) -> Planner:
    """The planner, asking the oracle instead of its own forecaster."""
    planner.forecaster.forecast = answer  # type: ignore[method-assign, assignment]
    return planner


def play_oracle(scenario: Scenario, answer: Answer) -> tuple[float, float]:
    """(late share, GPU-hours)."""
    policy = Leadtime(told(ready_planner(scenario), answer), scenario.settings.slots, EPOCH_S)
    score = run(scenario.plant(), policy, tick_s=scenario.tick_s)
    return score.violation_ratio, score.gpu_hours


def cheapest_rival(scenario: Scenario, late: float, cache: Cache) -> Run | None:
    """Of all rivals' settings the cheapest that violates no more than `late`."""
    goals, held = [Goal(late, 1.0)], holding(scenario)
    curves: list[Curve] = []
    for rival in RIVALS.values():
        curves += aim(rival, evaluation(scenario, rival, cache, held), goals, runs_of(curves))
    polish(curves, goals)
    return cheapest_within(runs_of(curves), late)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row a window and lead; 2 without the traces."""
    parser = argparse.ArgumentParser(prog="bench-oracle", description=__doc__)
    parser.add_argument("--window", action="append", help="as nasa@12.5; repeatable")
    parser.add_argument("--lead", type=float, action="append", help="seconds; repeatable")
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--cache", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 140)
    try:
        every = fifteen_windows(options.traces, options.lead or LEADS_S, last_only=True)
    except TraceError as error:
        console.print(f"bench-oracle: {error}", style="red", markup=False)
        return 2
    shown = Table(title="cost at equal violations: our planner with a perfect forecast")
    for heading in ("window", "lead", "late", "GPU-hours", "best rival", "its GPU-hours", "cost"):
        shown.add_column(heading, justify="right")
    for scenario in every:
        series = scenario.name.split("@")[0]
        if series not in FILES or (options.window and scenario.name not in options.window):
            continue
        late, gpu_hours = play_oracle(scenario, oracle(options.traces, series))
        best = cheapest_rival(scenario, late, Cache(options.cache))
        shown.add_row(
            scenario.name,
            f"{scenario.lead_s:g} s",
            f"{late:.2%}",
            f"{gpu_hours:.1f}",
            best.policy if best else "none reaches it",
            f"{best.gpu_hours:.1f}" if best else "",
            ratio(gpu_hours / best.gpu_hours if best else None),
        )
    console.print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
