"""Our wall clock steps by an hour either way: the samples' times are Prometheus's and tell. Nothing
shrinks meanwhile, and all is as before when the clock is right again."""

from dataclasses import replace

import pytest

from controller.core.planning import Planner
from controller.core.types import Decision, ScaleDeployment
from tests.core.worlds import World, planner

HOUR_S = 3600.0


def ticks(live: World, made: Planner, count: int, off_s: float) -> list[Decision]:
    """So many ticks while our clock is off."""
    found = []
    for _ in range(count):
        live.at_s += 10
        live.arrived += 10 * live.rate_rps
        live.done += 10 * live.rate_rps
        seen = live.readings()
        decision = made.tick(replace(seen, at_s=seen.at_s + off_s))
        if isinstance(decision.action, ScaleDeployment):
            live.scale(decision.action.replicas)
        found.append(decision)
    return found


@pytest.mark.parametrize("off_s", [HOUR_S, -HOUR_S], ids=["an hour ahead", "an hour behind"])
def test_a_clock_step_shrinks_nothing_and_passes(off_s: float) -> None:
    live, made = World.with_replicas(3, rate_rps=9.0), planner()
    steady = ticks(live, made, 120, 0.0)[-1].plan.wanted
    stepped = ticks(live, made, 60, off_s)
    assert min(decision.plan.wanted for decision in stepped) >= steady
    after = ticks(live, made, 120, 0.0)
    assert min(decision.plan.wanted for decision in after) >= steady - 1
    assert after[-1].plan.reason not in ("blind", "stale")
    assert after[-1].plan.wanted <= steady + 1
