"""Hand-made views and memories for rules that are called one decision at a time."""

import math
from collections.abc import Callable

import numpy as np

from controller.replay import layout
from controller.replay.trace import Floats

Rule = Callable[[Floats, Floats, Floats], int]


def a_view(at_s: float, target: int, **fields: float) -> Floats:
    """A view scraped at `at_s`, all replicas ready; fields by their names in `layout`."""
    view = np.zeros(layout.VIEW_SIZE)
    view[layout.AT_S] = view[layout.SCRAPED_AT_S] = at_s
    view[layout.TARGET] = view[layout.READY_REPLICAS] = target
    for name, value in fields.items():
        view[getattr(layout, name.upper())] = value
    return view


def blind_view(target: int) -> Floats:
    """Before the first scrape."""
    view = a_view(0.0, target)
    view[layout.SCRAPED_AT_S : layout.TARGET] = math.nan
    return view


class Decider:
    """A rule with its memory; each call is one decision, the answer is the next target."""

    def __init__(self, rule: Rule, memory: int, parameters: list[float], target: int) -> None:
        self.rule = rule
        self.memory = np.zeros(memory)
        self.parameters = np.array(parameters, float)
        self.target = target

    def __call__(self, at_s: float, **fields: float) -> int:
        view = a_view(at_s, self.target, **fields)
        self.target = self.rule(view, self.memory, self.parameters)
        return self.target


def with_values(names: tuple[str, ...], style: dict[str, float], **changes: float) -> list[float]:
    """Parameters in a rule's order."""
    known = style | changes
    return [known[name] for name in names]
