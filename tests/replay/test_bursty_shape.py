"""The llm-d project's bursty shape: 15, 2, 10, 15, 5, 2 requests/s, 150 s each, starts of 103 s.

Published for a reactive scaler: p99 TTFT 262 s, 6,110 errors (llm-d autoscaling, PR 1118). A
replica here completes about 3 requests of 1,000 + 1,000 tokens a second, as measured there.
"""

import numpy as np
import pytest

from controller.core.periods import Periods
from controller.core.planning import Planner, PlannerSettings
from controller.core.types import Decision, DeploymentId, Readings
from controller.replay.ours import Leadtime
from controller.replay.plant import ColdStart, Plant, PlantSettings
from controller.replay.runner import run
from controller.replay.trace import Trace, from_requests

RATES_RPS = (15, 2, 10, 15, 5, 2)
PHASE_S = 150.0
QUIET_S, QUIET_RPS = 600.0, 2


class Watched(Leadtime):
    def __init__(self, planner: Planner) -> None:
        super().__init__(planner, 32)
        self.decided: list[Decision] = []

    def decide(self, readings: Readings) -> Decision:
        self.decided.append(super().decide(readings))
        return self.decided[-1]


def bursty() -> Trace:
    """A quiet ten minutes, to know what a replica carries, then the shape."""
    rng = np.random.default_rng(1)
    phases = [(0.0, QUIET_S, QUIET_RPS)]
    phases += [(QUIET_S + i * PHASE_S, PHASE_S, rate) for i, rate in enumerate(RATES_RPS)]
    arrival_s = np.concatenate(
        [np.sort(begin + rng.uniform(0, span, int(rate * span))) for begin, span, rate in phases]
    )
    tokens = np.full(len(arrival_s), 1000, np.int32)
    return from_requests("bursty", arrival_s, tokens, tokens, QUIET_S + len(RATES_RPS) * PHASE_S)


def decisions(cap: int) -> list[Decision]:
    plant = PlantSettings(
        slots=32, beta=0.06, tpot_s=0.00355, cap=cap, cold_start=ColdStart(103, 0.05)
    )
    settings = PlannerSettings(Periods.of_season(86_400, 10), 10, 5, 2.0, 0.99, 1, cap, 103)
    policy = Watched(Planner(DeploymentId("replay", "llm"), settings))
    run(Plant(plant, bursty(), initial=1), policy)
    return policy.decided


@pytest.mark.parametrize("cap", [4, 10])
def test_a_maximum_that_is_too_low_is_said_at_once(cap: int) -> None:
    burst = [d for d in decisions(cap) if QUIET_S < d.observation.at_s <= QUIET_S + 40]
    assert burst[-1].plan.wanted == cap
    assert any(decision.plan.limited_by == "capacity" for decision in burst)


def test_enough_are_asked_for_within_two_ticks_of_being_seen() -> None:
    asked = [d.observation.at_s for d in decisions(10) if d.plan.wanted >= 5]
    assert asked[0] <= QUIET_S + 20
