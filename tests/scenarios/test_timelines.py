"""Whole stories on the small world, decision by decision, held against recorded timelines.

A line is written when the load, the replicas, the plan or its reason change. After a wanted
change of behaviour: LEADTIME_GOLDEN=write pytest tests/scenarios, and read the difference.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.core.types import Decision, Replicas
from tests.core.worlds import SLOTS, START_S, World, planner

GOLDEN = Path(__file__).parent / "golden"
Ticks = Iterator[tuple[World, Decision]]


@dataclass(frozen=True)
class Phase:
    """So many ticks at a load, with readings changed."""

    ticks: int
    rate_rps: float
    changes: dict[str, Any]


def phase(ticks: int, rate_rps: float, **changes: Any) -> Phase:
    return Phase(ticks, rate_rps, changes)


def play(start: int, phases: list[Phase], world: dict[str, Any], settings: dict[str, Any]) -> Ticks:
    live, made = World.with_replicas(start, **world), planner(**settings)
    for part in phases:
        live.rate_rps = part.rate_rps
        for _ in range(part.ticks):
            yield live, live.step(made, **part.changes)


def lines(ticks: Ticks) -> Iterator[str]:
    before: tuple[object, ...] = ()
    for live, decision in ticks:
        replicas = decision.observation.replicas
        shown = (
            live.rate_rps,
            None if replicas is None else replicas.ready,
            live.target,
            decision.plan.wanted,
            decision.plan.reason.value,
        )
        if shown != before:
            rate, ready, target, wanted, reason = shown
            trail = " ".join(f"{s.guard}:{s.before}>{s.after}" for s in decision.plan.trail)
            yield (
                f"{live.at_s - START_S:6.0f} s  {rate:5.1f} rps  ready {ready!s:>4}  "
                f"target {target:2d}  wanted {wanted:2d}  {reason}  {trail}".rstrip()
            )
        before = shown


def full(count: int) -> Replicas:
    """Serve's account with no room for another replica."""
    members = World.with_replicas(count).readings().replicas
    assert members is not None
    return Replicas(count, count, members.members, 0, SLOTS)


STORIES: dict[str, tuple[int, list[Phase], dict[str, Any], dict[str, Any]]] = {
    "a rise and its end": (
        3,
        [phase(60, 5), phase(20, 12), phase(20, 20), phase(60, 5)],
        *({}, {}),
    ),
    "a slow start under a rise": (
        2,
        [phase(60, 5), phase(60, 15)],
        *({"lead_s": 300.0}, {"lead_prior_s": 300}),
    ),
    "blind at the peak, seeing after it": (
        3,
        [phase(60, 5), phase(20, 18), phase(20, 5, arrivals=None), phase(40, 5)],
        *({}, {}),
    ),
    "Serve away and back": (
        4,
        [phase(60, 10), phase(20, 10, replicas=None), phase(10, 10)],
        *({}, {}),
    ),
    "no room for another": (
        3,
        [phase(60, 5), phase(30, 18, replicas=full(3))],
        *({}, {}),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_the_story_goes_as_recorded(name: str) -> None:
    told = "\n".join(lines(play(*STORIES[name]))) + "\n"
    path = GOLDEN / f"{name.replace(' ', '-').replace(',', '')}.txt"
    if os.environ.get("LEADTIME_GOLDEN") == "write":
        path.write_text(told)
    assert told == path.read_text()
