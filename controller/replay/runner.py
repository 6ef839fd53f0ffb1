"""Whoever decides, in the loop with a plant: Python objects, or compiled rules at full speed."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numba import typeof, types

from controller.replay.compiled import compiled
from controller.replay.events import advance, observe
from controller.replay.fleet import set_target
from controller.replay.layout import VIEW_SIZE, Cluster
from controller.replay.plant import Plant, View
from controller.replay.score import Score
from controller.replay.trace import Floats, Requests

Decide = Callable[[Floats, Floats, Floats], int]
"""(view, memory, parameters) -> target replicas; compiled. `view` by the places of `layout`."""

_VECTOR = types.float64[::1]
_ARGUMENTS = (_VECTOR, _VECTOR, _VECTOR)
_DECIDE = types.FunctionType(types.int64(*_ARGUMENTS))
TICKS, TICK_S = 0, 1


class Policy(Protocol):
    """Anything that answers a view with a number of replicas."""

    def tick(self, view: View) -> int:
        """Replicas wanted now."""


def run(plant: Plant, policy: Policy, *, tick_s: float = 10.0) -> Score:
    """Let `policy` decide every `tick_s` until the trace ends."""
    ticks = 0
    while (at_s := plant.start_s + ticks * tick_s) < plant.end_s:
        view = plant.view_at(at_s)
        wanted = policy.tick(view)
        if wanted != view.target:
            plant.set_target(wanted)
        ticks += 1
    return plant.finish()


@compiled
def _play(
    cluster: Cluster,
    requests: Requests,
    ticker: Floats,
    decide: Decide,
    view: Floats,
    memory: Floats,
    parameters: Floats,
    until_s: float,
) -> None:
    """Tick up to and including `until_s`."""
    while True:
        at_s = cluster.state[0].start_s + ticker[TICKS] * ticker[TICK_S]
        if at_s > until_s:
            break
        advance(cluster, requests, at_s)
        observe(cluster, view)
        set_target(cluster, decide(view, memory, parameters))
        ticker[TICKS] += 1
    advance(cluster, requests, until_s)


def play(
    plant: Plant,
    decide: Decide,
    *,
    parameters: Sequence[float] | Floats,
    memory: int = 1,
    tick_s: float = 10.0,
) -> Score:
    """Let a compiled rule decide every `tick_s`; it keeps `memory` numbers, zero at the start.

    One machine code plays every rule: the rule is called by its address.
    """
    ticker = np.array([0.0, tick_s])
    vectors = (np.zeros(VIEW_SIZE), np.zeros(memory), np.array(parameters, np.float64))
    _prepare(plant, ticker, decide)

    def step(until_s: float) -> None:
        _play(plant.cluster, plant.requests, ticker, decide, *vectors, until_s)

    return through(plant, step)


def through(plant: Plant, step: Callable[[float], None]) -> Score:
    """Call `step(until_s)` with each stretch of time whose requests are in memory, to the end."""
    until_s = plant.now_s
    while until_s < plant.end_s:
        until_s = min(plant.feed(), plant.end_s)
        step(until_s)
    return plant.finish()


def _prepare(plant: Plant, ticker: Floats, decide: Any) -> None:
    """Compile the loop once for every rule; a rule as an argument's type would never be cached."""
    dispatcher: Any = _play
    decide.compile(_ARGUMENTS)
    if dispatcher.signatures:
        return
    plain = [typeof(value) for value in (plant.cluster, plant.requests, ticker)]
    dispatcher.compile((*plain, _DECIDE, *_ARGUMENTS, types.float64))
    dispatcher.disable_compile()
