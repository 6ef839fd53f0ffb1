"""Why a deployment has the replicas it has, from what the journal keeps of one decision."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

from controller.core import words
from controller.core.capacity import CapacityLaw
from controller.core.guards import GUARDS
from controller.core.risk import Lateness, RiskTable
from controller.core.sizing import need
from controller.core.types import Forecast

SHOWN = (0.5, 0.9, 0.95, 0.99)
MEDIAN = 0.5
LARGEST_MULTIPLE = 64.0
PRECISION = 0.005


@dataclass(frozen=True, slots=True)
class Promise:
    """What an explanation must know of the settings: the SLO, the bounds, the window that is
    forecast, and which share of `ttft_s` the prefill takes."""

    ttft_s: float
    attainment: float
    min_replicas: int
    max_replicas: int
    window_s: float
    prefill_share: float


def explained(decision: Mapping[str, Any], asked_s: float, promise: Promise) -> dict[str, Any]:
    """A decision explained at `asked_s`, as JSON values: its reason in words, the inputs with
    their ages when it was made, the forecasts, what a replica carries, the model and price in force
    and why, the number before and
    after every guard, what blocks a change and for how many seconds from `asked_s`, and which
    load would change the need."""
    return {
        "application": decision["application"],
        "deployment": decision["deployment"],
        "at_s": decision["at_s"],
        "age_s": asked_s - decision["at_s"],
        "ready": decision["ready"],
        "requested": decision["requested"],
        "wanted": decision["wanted"],
        "reason": decision["reason"],
        "in_words": words.in_words(decision["reason"]),
        "limited_by": decision["limited_by"],
        "action": decision["action"],
        "applied": decision["applied"],
        "detail": decision["detail"],
        "slo": {
            "ttft_s": promise.ttft_s,
            "attainment": promise.attainment,
            "late_ratio": decision["inputs"]["late_ratio"],
        },
        "inputs": _inputs(decision["inputs"]),
        "forecasts": _forecasts(decision),
        "capacity": {
            key: decision[key]
            for key in ("capacity_rps", "slots", "work_s", "lead_s", "price_gpu_s")
        },
        "choice": _choice(decision.get("choice"), asked_s),
        "guards": walked(decision["trail"], decision["wanted"]),
        "blocking": _blocking(decision.get("timers", ()), asked_s),
        "would_change": would_change(decision, promise),
    }


def walked(trail: Sequence[Sequence[Any]], wanted: int) -> list[dict[str, Any]]:
    """Every guard in order with the number before and after it."""
    changed = {step[0]: step for step in trail}
    number = trail[0][1] if trail else wanted
    steps = []
    for guard, _ in GUARDS:
        name = guard.__name__
        after = changed[name][2] if name in changed else number
        promise = words.GUARDS.get(name, "")
        steps.append({"guard": name, "promise": promise, "before": number, "after": after})
        number = after
    return steps


def would_change(decision: Mapping[str, Any], promise: Promise) -> list[dict[str, Any]]:
    """How many times the expected load one replica more, and one fewer, would be needed, and what
    that load is at the median, one lead ahead. Nothing where the load did not decide."""
    forecasts = [_forecast(decision[name], decision["at_s"]) for name in ("near", "ahead")]
    law = law_of(decision)
    if law is None or None in forecasts:
        return []
    known = [made for made in forecasts if made is not None]
    before = decision.get("unforced") or decision["wanted"]

    def needed(multiple: float) -> int:
        lateness = Lateness(promise.ttft_s, promise.prefill_share * promise.ttft_s)
        risk = RiskTable(law, lateness, promise.window_s)
        most = 2 * promise.max_replicas
        price, carries = decision["price_gpu_s"], law.capacity_rps
        return max(
            need(_scaled(made, multiple), risk, carries, price, most, 0.0, before) for made in known
        )

    now = needed(1.0)
    median_rps = known[-1].at(MEDIAN)
    found = []
    for more in (True, False):
        multiple = _crossing(needed, now, more)
        if multiple is not None:
            found.append(
                {
                    "replicas": needed(multiple),
                    "need_now": now,
                    "multiple": multiple,
                    "median_rps": multiple * median_rps,
                }
            )
    return found


def law_of(decision: Mapping[str, Any]) -> CapacityLaw | None:
    """The law that a decision went by, from its slots, work and capacity; None if not known."""
    slots, work_s, capacity_rps = (decision[key] for key in ("slots", "work_s", "capacity_rps"))
    if not (slots and work_s and capacity_rps):
        return None
    slow_down = slots / (work_s * capacity_rps) - 1.0
    beta = 0.0 if isclose(slots, 1.0) else max(0.0, slow_down / (slots - 1.0))
    return CapacityLaw(slots, work_s, beta)


def _crossing(needed: Any, now: int, more: bool) -> float | None:
    """The multiple nearest to 1 at which the need is larger (smaller) than `now`."""
    inside, outside = 1.0, 1.0
    while needed(outside) == now:
        inside, outside = outside, outside * (1.5 if more else 1 / 1.5)
        if not 1 / LARGEST_MULTIPLE <= outside <= LARGEST_MULTIPLE:
            return None
    if (needed(outside) > now) is not more:
        return None
    while abs(outside / inside - 1.0) > PRECISION:
        middle = (inside * outside) ** 0.5
        if needed(middle) == now:
            inside = middle
        else:
            outside = middle
    return float(outside)


def _inputs(inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"signal": name, **signal} for name, signal in sorted(inputs["signals"].items())]


def _forecasts(decision: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for name in ("near", "ahead"):
        made = _forecast(decision[name], decision["at_s"])
        if made is not None:
            quantiles = {f"{p:g}": made.at(p) for p in SHOWN}
            found.append(
                {
                    "horizon": name,
                    "horizon_s": made.horizon_s,
                    "model": made.model,
                    "rps": quantiles,
                }
            )
    return found


def _forecast(plain: Mapping[str, Any] | None, at_s: float) -> Forecast | None:
    if plain is None:
        return None
    pairs = sorted((float(p), value) for p, value in plain["quantiles"].items())
    probabilities, quantiles = zip(*pairs, strict=True)
    return Forecast(at_s, plain["horizon_s"], probabilities, quantiles, plain["model"])


def _choice(choice: Mapping[str, Any] | None, asked_s: float) -> dict[str, Any] | None:
    """The model and price in force, why, how old the choice is, and what each candidate came to;
    None where they are not chosen."""
    if choice is None:
        return None
    chosen_s = choice["chosen_s"]
    names = ("model", "price_ratio", "gpu_hours", "late_ratio")
    return {
        "model": choice["model"],
        "price_ratio": choice["price_ratio"],
        "verdict": choice["verdict"],
        "in_words": words.verdict_in_words(choice["verdict"]),
        "age_s": None if chosen_s is None else asked_s - chosen_s,
        "problem": choice["problem"],
        "trials": [dict(zip(names, trial, strict=True)) for trial in choice["trials"]],
    }


def _scaled(made: Forecast, multiple: float) -> Forecast:
    quantiles = tuple(multiple * value for value in made.quantiles)
    return Forecast(made.at_s, made.horizon_s, made.probabilities, quantiles, made.model)


def _blocking(timers: Sequence[Sequence[Any]], asked_s: float) -> list[dict[str, Any]]:
    return [
        {
            "guard": guard,
            "what": what,
            "for_s": None if until_s is None else max(0.0, until_s - asked_s),
        }
        for guard, until_s, what in timers
    ]
