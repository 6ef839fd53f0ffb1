"""How fast a replay is: days of load at 10 requests a second, each policy in the loop with the
plant, drawing the load included; one process, one core, nothing else compiled on the way."""

import time
from collections.abc import Callable
from dataclasses import replace

from threadpoolctl import threadpool_limits

from controller.commands.recordings import Synthetic
from controller.replay.ours import Leadtime
from controller.replay.plant import ColdStart, PlantSettings
from controller.replay.rivals.registry import RIVALS
from controller.replay.runner import run
from controller.replay.runs import EPOCH_S, ready_planner
from controller.replay.scenario import Scenario, full_replica_rps
from controller.replay.series import Lengths, Recipe, draw
from controller.replay.trace import DAY_S

MEAN_RPS, DAYS, PAST_DAYS, LEAD_S = 10.0, 7.0, 7.0, 120.0
RULE, TARGET = "hpa", 8.0


def rival_and_ours() -> tuple[float, float]:
    """(the plant with a compiled rule, our own planner, its fits included), times real time."""
    scenario = _scenario()

    def rule(played: Scenario) -> None:
        rival = RIVALS[RULE]
        rival.play(played.plant(), {**rival.styles[0], rival.size.name: TARGET})

    def ours(played: Scenario) -> None:
        policy = Leadtime(ready_planner(played), played.settings.slots, EPOCH_S)
        run(played.plant(), policy, tick_s=played.tick_s)

    with threadpool_limits(1):
        return _times_real(scenario, rule), _times_real(scenario, ours)


def _scenario() -> Scenario:
    bins = Synthetic(days=PAST_DAYS + DAYS).bins()
    settings, mean = PlantSettings(cold_start=ColdStart(LEAD_S)), Lengths()
    replicas = MEAN_RPS / full_replica_rps(settings, mean.prompt_mean, mean.output_mean)
    trace = draw(bins, Recipe(mean_rps=MEAN_RPS))
    scored = (PAST_DAYS * DAY_S, (PAST_DAYS + DAYS) * DAY_S)
    return Scenario("speed", trace, scored, settings, mean_replicas=replicas)


def _times_real(scenario: Scenario, play: Callable[[Scenario], None]) -> float:
    start_s, end_s = scenario.scored
    play(replace(scenario, scored=(start_s, start_s + 3600)))  # compiles
    began_s = time.perf_counter()
    play(scenario)
    return (end_s - start_s) / (time.perf_counter() - began_s)
