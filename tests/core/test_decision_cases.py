"""Decisions and actuation, case by case; ids are those of the field cases that the project
collects. Cases that are not here are named where they are tested: grep for the id."""

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest

from controller.core.events import KnownEvent
from controller.core.forecasting import fitting
from controller.core.overrides import Effect, Override, Source
from controller.core.periods import Periods
from controller.core.planning import Planner
from controller.core.types import (
    Decision,
    Hold,
    Reason,
    Replica,
    Replicas,
    ReplicaState,
    Sample,
    ScaleDeployment,
)
from tests.core.worlds import SLOTS, START_S, World, planner

WARM = 60


def test_starting_replicas_go_first_and_ready_never_falls_below_need() -> None:
    """D7: three run, more start, three are needed."""
    live, made = World.with_replicas(3, rate_rps=5), planner()
    live.run(made, WARM)
    live.lead_s = 1500
    live.rate_rps = 14
    asked = max(d.plan.wanted for d in live.run(made, 15))
    ready = sum(live.at_s - since_s >= live.lead_s for _, since_s in live.replicas)
    assert asked > ready
    live.rate_rps = 5
    need = ceil(5 * 2.1 / SLOTS)
    for _ in range(60):
        live.step(made)
        ready = sum(live.at_s - since_s >= live.lead_s for _, since_s in live.replicas)
        assert ready >= need
    assert live.target < asked


def test_a_start_that_never_ends_is_cancelled_and_told() -> None:
    """D8: initialising for an hour; first cancelled with a reason, and with the load gone the
    target follows the need at once."""
    live, made = World.with_replicas(2, rate_rps=5), planner(start_timeout_s=3600.0)
    live.run(made, WARM)
    live.lead_s = 1e6
    live.replicas = [(n, START_S - 1e7) for n in range(2)]
    live.rate_rps = 15
    decisions = live.run(made, 380)
    assert max(d.plan.wanted for d in decisions) > 3
    stuck = [d for d in decisions if d.plan.reason is Reason.STUCK]
    assert stuck
    assert min(d.plan.wanted for d in stuck) == 2
    assert stuck[0].plan.limited_by == "capacity"
    live.rate_rps = 1
    assert live.run(made, 30)[-1].plan.wanted <= 2


def test_a_stuck_start_does_not_stretch_the_lead() -> None:
    """D8 in kind: what never starts is not slow; the time for which a need is kept stays."""
    live, made = World.with_replicas(2), planner(start_timeout_s=600.0)
    live.run(made, 10)
    hung = tuple(Replica(f"h{n}", ReplicaState.STARTING, live.at_s) for n in range(4))
    for _ in range(90):
        members = live.readings().replicas
        assert members is not None
        live.step(made, replicas=Replicas(6, 6, (*members.members, *hung), None, SLOTS))
    assert made.lead_s == 60


def test_capacity_is_there_before_need_on_almost_every_ramp() -> None:
    """D13: three ramps a season, a lead of 300 s, learned from the replicas themselves; after
    two seasons to learn from."""
    season_s, lead_s, tick_s = 14_400.0, 300.0, 10.0
    rng = np.random.default_rng(5)
    made = planner(periods=Periods.of_season(season_s, tick_s), lead_prior_s=120.0, max_replicas=24)
    live = World.with_replicas(4, rate_rps=4, lead_s=lead_s)
    tops, met = 0, 0
    for season in range(4):
        for tick in range(int(season_s / tick_s)):
            phase = (tick * tick_s) % (season_s / 3)
            rate = float(np.interp(phase, [0, 2000, 2400, 3600, 3800, 4800], [4, 4, 16, 16, 4, 4]))
            live.rate_rps = max(0.5, rate * (1 + 0.03 * rng.standard_normal()))
            job = made.fit_due()
            if job is not None:
                made.adopt(fitting.run(job))
            decision = live.step(made)
            if season >= 2 and abs(phase - 2400) < tick_s / 2:
                replicas = decision.observation.replicas
                capacity_rps = decision.learned.capacity_rps
                assert replicas is not None
                assert capacity_rps is not None
                tops += 1
                met += replicas.ready * capacity_rps >= 16
    assert tops == 6
    assert met >= 0.95 * tops


def test_resumes_the_last_good_target_after_an_outage_of_serve() -> None:
    """A6: 503 for five minutes, then back with target = minimum."""
    live, made = World.with_replicas(6, rate_rps=14), planner()
    wanted = live.run(made, WARM)[-1].plan.wanted
    away = live.run(made, 30, replicas=None)
    assert {d.plan.wanted for d in away} == {wanted}
    live.scale(1)
    back = live.step(made)
    assert isinstance(back.action, ScaleDeployment)
    assert back.action.replicas == wanted
    assert back.plan.reason is not Reason.CONFLICT


def test_a_write_without_effect_is_repeated_ever_more_rarely_and_told() -> None:
    """A4 in kind: what is not honoured is not hammered."""
    live, made = World.with_replicas(3, rate_rps=5), planner()
    live.run(made, WARM)
    live.rate_rps = 20
    decisions = [live.step(made, obey=False) for _ in range(30)]
    wanted = {d.plan.wanted for d in decisions[10:]}
    assert decisions[-1].plan.reason is Reason.NOT_HONOURED
    writes = [d for d in decisions[10:] if isinstance(d.action, ScaleDeployment)]
    assert len(writes) < 10 + len(wanted)
    live.scale(decisions[-1].plan.wanted)
    assert live.run(made, 2)[-1].plan.reason is not Reason.NOT_HONOURED


def test_an_empty_list_of_replicas_takes_nothing_away() -> None:
    """A6 in kind: Serve's controller is just back and has not found its replicas again."""
    live, made = World.with_replicas(5, rate_rps=14, room=0), planner()
    wanted = live.run(made, WARM)[-1].plan.wanted
    empty = Replicas(wanted, wanted, (), 0, SLOTS)
    assert {d.plan.wanted for d in live.run(made, 6, replicas=empty)} == {wanted}


def test_wakes_at_zero_replicas_when_something_waits() -> None:
    """D14 in kind: nothing is known yet, nothing runs, and a request has come."""
    made = planner(min_replicas=0)
    live = World(replicas=[], rate_rps=0.0)
    live.run(made, 3)
    live.queued = 3.0
    assert live.step(made).plan.wanted == 1


def world_of(count: int, ticks: int = WARM, **changes: Any) -> tuple[World, Planner]:
    settings = changes.pop("settings", {})
    live, made = World.with_replicas(count, **changes), planner(**settings)
    live.run(made, ticks)
    return live, made


def steady() -> list[Decision]:
    live, made = world_of(4)
    return live.run(made, 30)


def rising(**changes: Any) -> list[Decision]:
    live, made = world_of(3, **changes)
    live.rate_rps = 20
    return live.run(made, 30)


def falling() -> list[Decision]:
    live, made = world_of(3)
    live.rate_rps = 20
    live.run(made, 30)
    live.rate_rps = 3
    return live.run(made, 20)


def surging() -> list[Decision]:
    live, made = world_of(4, ticks=0)
    made.settings = replace(made.settings, max_replicas=32)
    rng = np.random.default_rng(1)
    decisions = []
    for tick in range(1200):
        job = made.fit_due()
        if job is not None:
            made.adopt(fitting.run(job))
        live.rate_rps = 6 + rng.random() if tick < 900 else 6 + 0.5 * (tick - 900)
        decisions.append(live.step(made))
    return decisions


def queued() -> list[Decision]:
    live, made = world_of(2)
    live.queued = 300
    return [live.step(made)]


def awaited() -> list[Decision]:
    live, made = world_of(3)
    made.expect([KnownEvent("launch", live.at_s + 60, live.at_s + 600, rate_rps=20)])
    return live.run(made, 12)


def overridden(effect: Effect, **what: Any) -> list[Decision]:
    live, made = world_of(3)
    until_s = live.at_s + 1e4
    made.override([Override("x", effect, Source.OPERATOR, "why", live.at_s, until_s, **what)])
    live.rate_rps = 20
    return live.run(made, 12)


def said(**changes: Any) -> list[Decision]:
    live, made = world_of(3)
    return live.run(made, 3, **changes)


def in_doubt() -> list[Decision]:
    live, made = world_of(6, rate_rps=14)
    live.rate_rps = 1
    return live.run(made, 40, ongoing={})


def pressed() -> list[Decision]:
    live, made = world_of(6, rate_rps=14)
    live.rate_rps = 1
    return [live.step(made, gpu_ratio={"r0": Sample(0.99, live.at_s + 9)}) for _ in range(40)]


def draining() -> list[Decision]:
    live, made = world_of(6, rate_rps=14)
    live.rate_rps = 9
    decisions = []
    for _ in range(40):
        members = live.readings().replicas
        assert members is not None
        ahead = World(live.rate_rps, live.lead_s, live.at_s + 10, live.replicas)
        busy = ahead.readings().replicas
        assert busy is not None
        decisions.append(live.step(made, replicas=replace(busy, drain_s=1.0)))
    return decisions


def contested() -> list[Decision]:
    live, made = world_of(4, rate_rps=12)
    decisions = []
    for tick in range(12):
        live.scale(1 if tick % 2 else 12)
        decisions.append(live.step(made))
    return decisions


def stuck() -> list[Decision]:
    live, made = world_of(2, settings={"start_timeout_s": 100.0})
    live.lead_s, live.replicas = 1e6, [(n, START_S - 1e7) for n in range(2)]
    live.rate_rps = 15
    return live.run(made, 40)


def unheard() -> list[Decision]:
    live, made = world_of(3)
    live.rate_rps = 20
    return [live.step(made, obey=False) for _ in range(30)]


def shared() -> list[Decision]:
    live, made = world_of(3)
    made.grant(3)
    live.rate_rps = 20
    return live.run(made, 30)


def minded() -> list[Decision]:
    live, made = World.with_replicas(1), planner(min_replicas=2)
    return [live.step(made)]


REACHED: dict[Reason, Callable[[], list[Decision]]] = {
    Reason.STEADY: steady,
    Reason.FORECAST: rising,
    Reason.FORECAST_DISTRUSTED: surging,
    Reason.BACKLOG: queued,
    Reason.EVENT: awaited,
    Reason.HOLD: falling,
    Reason.BOOST: lambda: overridden(Effect.BOOST, replicas=5),
    Reason.FROZEN: lambda: overridden(Effect.HOLD),
    Reason.PINNED: lambda: overridden(Effect.PIN, replicas=7),
    Reason.BOUNDS: minded,
    Reason.WARMING_UP: lambda: world_of(3, ticks=0)[0].run(planner(), 2),
    Reason.BLIND: lambda: said(arrivals={}),
    Reason.STALE: lambda: said(arrivals={"router": Sample(1.0, START_S)}),
    Reason.NON_FINITE: lambda: said(arrivals={"router": Sample(float("nan"), START_S)}),
    Reason.PARTIAL: in_doubt,
    Reason.PRESSURE: pressed,
    Reason.BUDGET: shared,
    Reason.UNSCHEDULABLE: lambda: rising(room=0),
    Reason.STUCK: stuck,
    Reason.DRAINING: draining,
    Reason.CONFLICT: contested,
    Reason.NOT_HONOURED: unheard,
    Reason.SERVE_UNREACHABLE: lambda: said(replicas=None),
}


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_is_reached(reason: Reason) -> None:
    decisions = REACHED[reason]()
    assert reason in {d.plan.reason for d in decisions}
    held = (Reason.BLIND, Reason.STALE, Reason.NON_FINITE, Reason.SERVE_UNREACHABLE)
    if reason in held:
        assert all(isinstance(d.action, Hold) for d in decisions)
