"""What is worth telling others: the moments at which something about a deployment changed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from controller.core.types import (
    Decision,
    DeploymentId,
    Outcome,
    Plan,
    Reason,
    ScaleDeployment,
    Tick,
)

TICKS_UNTIL_OVER = 3  # a condition that comes and goes within so many ticks is told once
TICKS_AT_RISK = 3


class Kind(StrEnum):
    """Kinds of notices."""

    SCALED = "scaled"
    HELD = "held"
    DISTRUSTED = "distrusted"
    CONFLICT = "conflict"
    UNSCHEDULABLE = "unschedulable"
    SLO_AT_RISK = "slo_at_risk"
    BUDGET_EXHAUSTED = "budget_exhausted"
    LEADER_CHANGED = "leader_changed"
    CONFIG_CHANGED = "config_changed"


HOLDING = frozenset(
    {
        Reason.BLIND,
        Reason.STALE,
        Reason.NON_FINITE,
        Reason.PARTIAL,
        Reason.SERVE_UNREACHABLE,
    }
)
WORDS: Mapping[Kind, str] = {
    Kind.HELD: "holds: its signals are not to be trusted",
    Kind.DISTRUSTED: "does not trust its forecast",
    Kind.CONFLICT: "stopped writing: someone else writes the replicas too",
    Kind.UNSCHEDULABLE: "wants more replicas than the cluster has room for",
    Kind.SLO_AT_RISK: "serves more late first tokens than the SLO allows",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that happened at `at_s`, in words, with its figures; `id` is the same when it
    is made again from the same tick."""

    id: str
    kind: Kind
    at_s: float
    text: str
    target: DeploymentId | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "at_s": self.at_s,
            "text": self.text,
            "target": None if self.target is None else list(self.target),
            "data": dict(self.data),
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Notice":
        """From `plain()`; raises KeyError, TypeError or ValueError."""
        target = None if plain["target"] is None else DeploymentId(*plain["target"])
        return cls(**{**plain, "kind": Kind(plain["kind"]), "target": target})


def made(
    kind: Kind,
    at_s: float,
    text: str,
    target: DeploymentId | None = None,
    data: Mapping[str, Any] | None = None,
) -> Notice:
    """A notice with the id that its kind, target and time give it."""
    where = "leadtime" if target is None else str(target)
    state = "" if data is None or "state" not in data else f"/{data['state']}"
    return Notice(f"{where}/{kind.value}{state}/{at_s:.3f}", kind, at_s, text, target, data or {})


class Watcher:
    """Makes notices of ticks: each condition when it begins and when it has been over for three
    ticks, each scaling when it was done. `attainment` says which share of a deployment's first
    tokens must be in time."""

    def __init__(self, attainment: Callable[[DeploymentId], float]) -> None:
        self._attainment = attainment
        self._absent: dict[tuple[DeploymentId, Kind], int] = {}
        self._late: dict[DeploymentId, int] = {}

    def notices(self, tick: Tick) -> list[Notice]:
        """What a tick has to tell."""
        found: list[Notice] = []
        for decision, outcome in tick.decisions:
            found += _scaled(decision, outcome)
            found += self._turns(decision, self._standing(decision))
        return found

    def _standing(self, decision: Decision) -> set[Kind]:
        """The conditions that a decision shows."""
        plan, forecasts = decision.plan, (decision.near, decision.ahead)
        shown = {
            Kind.HELD: plan.reason in HOLDING,
            Kind.DISTRUSTED: any(made is not None and not made.trusted for made in forecasts),
            Kind.CONFLICT: plan.reason is Reason.CONFLICT,
            Kind.UNSCHEDULABLE: _without_room(plan),
            Kind.SLO_AT_RISK: self._at_risk(decision),
        }
        return {kind for kind, stands in shown.items() if stands}

    def _at_risk(self, decision: Decision) -> bool:
        target, load = decision.target, decision.observation.load
        late = None if load is None else load.late_ratio
        if late is not None:
            allowed = 1 - self._attainment(target)
            self._late[target] = self._late.get(target, 0) + 1 if late > allowed else 0
        return self._late.get(target, 0) >= TICKS_AT_RISK

    def _turns(self, decision: Decision, standing: Iterable[Kind]) -> list[Notice]:
        told = []
        for kind in WORDS:
            key = decision.target, kind
            if kind in standing:
                if key not in self._absent:
                    told.append(_turned(decision, kind, "began"))
                self._absent[key] = 0
            elif key in self._absent:
                self._absent[key] += 1
                if self._absent[key] >= TICKS_UNTIL_OVER:
                    del self._absent[key]
                    told.append(_turned(decision, kind, "over"))
        return told


def _scaled(decision: Decision, outcome: Outcome) -> list[Notice]:
    action, replicas = outcome.action, decision.observation.replicas
    if not outcome.applied or not isinstance(action, ScaleDeployment):
        return []
    before = None if replicas is None else replicas.setpoint
    text = f"{decision.target}: {before} -> {action.replicas} replicas ({decision.plan.reason})"
    data = {"before": before, "after": action.replicas, **_figures(decision)}
    return [made(Kind.SCALED, decision.observation.at_s, text, decision.target, data)]


def _turned(decision: Decision, kind: Kind, state: str) -> Notice:
    words = WORDS[kind] if state == "began" else f"no longer {WORDS[kind]}"
    data = {"state": state, **_figures(decision)}
    at_s = decision.observation.at_s
    return made(kind, at_s, f"{decision.target} {words}", decision.target, data)


def _figures(decision: Decision) -> dict[str, Any]:
    observation, plan = decision.observation, decision.plan
    replicas, load = observation.replicas, observation.load
    return {
        "reason": plan.reason.value,
        "wanted": plan.wanted,
        "requested": None if replicas is None else replicas.requested,
        "ready": None if replicas is None else replicas.ready,
        "late_ratio": None if load is None else load.late_ratio,
        "queued": None if load is None else load.queued,
    }


def _without_room(plan: Plan) -> bool:
    return any(s.guard == "within_free_resources" and s.after < s.before for s in plan.trail)
