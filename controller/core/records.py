"""A decision in plain values: what the journal keeps, the API answers and the log says."""

from math import isfinite
from typing import Any

from controller.core.types import Decision, Forecast, Observation, Outcome, ScaleDeployment


def record(decision: Decision, outcome: Outcome) -> dict[str, Any]:
    """Everything that went into one decision and what became of it, ready for JSON."""
    observation, learned = decision.observation, decision.learned
    replicas = observation.replicas
    action = decision.action
    return {
        "at_s": observation.at_s,
        "application": decision.target.application,
        "deployment": decision.target.deployment,
        "reason": decision.plan.reason.value,
        "wanted": decision.plan.wanted,
        "requested": None if replicas is None else replicas.requested,
        "ready": None if replicas is None else replicas.ready,
        "setpoint": None if replicas is None else replicas.setpoint,
        "limited_by": decision.plan.limited_by,
        "unforced": decision.unforced,
        "timers": [list(timer) for timer in decision.timers],
        "trail": [list(step) for step in decision.plan.trail],
        "action": action.replicas if isinstance(action, ScaleDeployment) else None,
        "applied": outcome.applied,
        "detail": outcome.detail,
        "inputs": _inputs(observation),
        "near": _forecast(decision.near),
        "ahead": _forecast(decision.ahead),
        "lead_s": learned.lead_s,
        "capacity_rps": learned.capacity_rps,
        "work_s": learned.work_s,
        "slots": learned.slots,
        "price_gpu_s": learned.price_gpu_s,
        "choice": None if learned.choice is None else learned.choice.plain(),
    }


def _inputs(observation: Observation) -> dict[str, Any]:
    demand, load = observation.demand, observation.load
    return {
        "age_s": observation.age_s,
        "demand_rps": None if demand is None else demand.rate_rps,
        "queued": None if load is None else load.queued,
        "ongoing": None if load is None else load.ongoing,
        "errors": None if load is None else load.errors,
        "late_ratio": None if load is None else load.late_ratio,
        "signals": {
            name: {
                "trust": signal.trust.value,
                "age_s": signal.age_s,
                "value": signal.value if isfinite(signal.value) else None,
                **({"silent": signal.silent} if signal.silent else {}),
            }
            for name, signal in observation.signals.items()
        },
    }


def _forecast(forecast: Forecast | None) -> dict[str, Any] | None:
    if forecast is None:
        return None
    return {
        "horizon_s": forecast.horizon_s,
        "model": forecast.model,
        "coverage": {f"{probability:g}": share for probability, share in forecast.coverage.items()},
        "quantiles": {
            f"{probability:g}": value
            for probability, value in zip(forecast.probabilities, forecast.quantiles, strict=True)
        },
    }
