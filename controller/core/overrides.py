"""Bounded overrides: what an alert's reaction or an operator asks for, on top of the plan.

An override has an end, always. It acts as a guard, so that free resources and the user's bounds
still have the last word, and the planner goes on learning what it would want without it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, isfinite
from typing import Any

from controller.core.types import Plan

BOOST_GUARD = "boosted_on_request"
MOST_REPLICAS = 10_000
LARGEST_FACTOR = 100.0


class Effect(StrEnum):
    """What an override does to the number of replicas."""

    BOOST = "boost"  # more than the plan: `replicas` added, or `factor` times
    HOLD = "hold"  # no change either way
    PIN = "pin"  # exactly `replicas`, in doubt and when blind too


class Source(StrEnum):
    """Who asked for an override; an operator's pin goes before an alert's."""

    ALERT = "alert"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Override:
    """One override of one deployment, in force in [from_s, until_s).

    `id` is unique for a deployment: the same id again replaces what was there. `replicas` is the
    number of a pin and the addition of a boost, `factor` the other way to say a boost. Raises
    ValueError, naming the field, on what makes no sense.
    """

    id: str
    effect: Effect
    source: Source
    why: str
    from_s: float
    until_s: float
    replicas: int | None = None
    factor: float | None = None

    def __post_init__(self) -> None:
        if not (isfinite(self.from_s) and isfinite(self.until_s) and self.from_s < self.until_s):
            raise ValueError("until_s: an override ends, and after it begins")
        problem = _PROBLEMS[self.effect](self)
        if problem:
            raise ValueError(problem)

    def boosted(self, base: int) -> int:
        """What a boost makes of `base` replicas, never fewer. Worked: 3 replicas boosted 1.5
        times are 5 (`test_a_boost_is_never_fewer`)."""
        more = base + (self.replicas or 0) if self.factor is None else ceil(base * self.factor)
        return max(base, more)

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "id": self.id,
            "effect": self.effect.value,
            "source": self.source.value,
            "why": self.why,
            "from_s": self.from_s,
            "until_s": self.until_s,
            "replicas": self.replicas,
            "factor": self.factor,
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Override":
        """From `plain()`; raises KeyError, TypeError or ValueError."""
        known = {
            **plain,
            "effect": Effect(plain["effect"]),
            "source": Source(plain["source"]),
        }
        return cls(**known)


def _boost_problem(override: Override) -> str:
    replicas, factor = override.replicas, override.factor
    if (replicas is None) == (factor is None):
        return "replicas, factor: a boost needs exactly one of them"
    if replicas is not None and not 1 <= replicas <= MOST_REPLICAS:
        return f"replicas: a boost adds 1 to {MOST_REPLICAS}"
    if factor is not None and not 1.0 < factor <= LARGEST_FACTOR:
        return f"factor: a boost is above 1 and at most {LARGEST_FACTOR:g} times"
    return ""


def _hold_problem(override: Override) -> str:
    given = override.replicas is not None or override.factor is not None
    return "replicas, factor: a hold has neither" if given else ""


def _pin_problem(override: Override) -> str:
    if override.factor is not None:
        return "factor: a pin has none"
    if override.replicas is None or not 0 <= override.replicas <= MOST_REPLICAS:
        return f"replicas: a pin needs a number from 0 to {MOST_REPLICAS}"
    return ""


_PROBLEMS = {
    Effect.BOOST: _boost_problem,
    Effect.HOLD: _hold_problem,
    Effect.PIN: _pin_problem,
}


def in_force(overrides: Iterable[Override], at_s: float) -> tuple[Override, ...]:
    """Those that have begun and not ended."""
    return tuple(each for each in overrides if each.from_s <= at_s < each.until_s)


def boosted(overrides: Iterable[Override], base: int) -> int:
    """The largest of what the boosts make of `base`: boosts do not add up."""
    boosts = (each for each in overrides if each.effect is Effect.BOOST)
    return max((each.boosted(base) for each in boosts), default=base)


def boosted_by(plan: Plan) -> int:
    """How many replicas of a plan are there for a boost alone, at most."""
    for step in plan.trail:
        if step.guard == BOOST_GUARD:
            return max(0, min(step.after, plan.wanted) - step.before)
    return 0


def held(overrides: Iterable[Override]) -> bool:
    """Whether any of them forbids change."""
    return any(each.effect is Effect.HOLD for each in overrides)


def pinned(overrides: Iterable[Override]) -> int | None:
    """The number of the pin that counts: an operator's before an alert's, then the newest."""
    pins = [each for each in overrides if each.effect is Effect.PIN]
    if not pins:
        return None
    order = {Source.ALERT: 0, Source.OPERATOR: 1}
    return max(pins, key=lambda each: (order[each.source], each.from_s, each.id)).replicas
