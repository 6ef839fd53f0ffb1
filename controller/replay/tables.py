"""Results in plain values: what `--json` writes and what tables show."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from controller.replay.causes import Split
from controller.replay.frontier import Result, best_by_policy
from controller.replay.runs import Run

Splits = Mapping[tuple[str, float], Split]
"""By name and lead of a scenario."""


def as_json(results: Sequence[Result], splits: Splits) -> dict[str, Any]:
    """Every run of every scenario; a time that was never reached is null."""
    return {"scenarios": [_scenario(result, splits) for result in results]}


def _scenario(result: Result, splits: Splits) -> dict[str, Any]:
    every = [run for run in (result.ours, result.clairvoyant) if run] + list(result.rivals)
    return {
        "trace": result.name,
        "lead_s": result.lead_s,
        "mean_replicas": result.mean_replicas,
        "runs": [_run(run) for run in every],
        "best_rival": _run(result.best_rival) if result.best_rival else None,
        "clairvoyant": _run(result.clairvoyant) if result.clairvoyant else None,
        "leadtime": _ours(result, splits),
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "policy": run.policy,
        "params": dict(run.params),
        "attainment": run.attainment,
        "ttft_p99_s": run.ttft_p99_s if math.isfinite(run.ttft_p99_s) else None,
        "gpu_hours": run.gpu_hours,
        "changes": run.changes,
    }


def _ours(result: Result, splits: Splits) -> dict[str, Any] | None:
    if result.ours is None:
        return None
    split = splits.get((result.name, result.lead_s))
    return _run(result.ours) | {
        "cost_at_equal_violations": result.cost_at_equal_violations,
        "over_clairvoyance": result.over_clairvoyance,
        "violations": split
        and {
            "unavoidable": split.unavoidable,
            "prefill_alone": split.prefill_alone,
            "avoidable": split.avoidable,
        },
    }


def policy_rows(result: Result) -> list[tuple[str, Run | None, str]]:
    """(policy, its cheapest run that meets the SLO, its setting) for the table of a scenario.

    Ours is shown whether it meets the SLO or not, as it has one setting only.
    """
    rows: list[tuple[str, Run | None, str]] = []
    if result.ours is not None:
        rows.append((result.ours.policy, result.ours, "defaults"))
    best = best_by_policy(result.rivals, result.budget)
    costs = {policy: run.gpu_hours if run else math.inf for policy, run in best.items()}
    rows += [(p, best[p], setting(best[p])) for p in sorted(best, key=lambda p: costs[p])]
    if result.clairvoyant is not None:
        rows.append((result.clairvoyant.policy, result.clairvoyant, setting(result.clairvoyant)))
    return rows


def setting(run: Run | None) -> str:
    """A run's parameters in a line."""
    if run is None:
        return ""
    return ", ".join(f"{name} {value:.4g}" for name, value in run.params.items())


def size_text(run: Run | None) -> str:
    """The parameter that was swept, which comes last."""
    if run is None or not run.params:
        return ""
    name, value = list(run.params.items())[-1]
    return f"{name} {value:.4g}"


def row_texts(run: Run | None) -> list[str]:
    """Attainment, first-token times, GPU-hours, changes and time unplanned, as text."""
    if run is None:
        return ["not reached", "", "", "", "", "", ""]
    return [
        f"{run.attainment:.2%}",
        *(seconds(value) for value in (run.ttft_p50_s, run.ttft_p95_s, run.ttft_p99_s)),
        f"{run.gpu_hours:.1f}",
        f"{run.changes:,}",
        f"{run.unplanned_s / 60:.0f} min",
    ]


HEADINGS = ("attainment", "TTFT p50", "p95", "p99", "GPU-hours", "changes", "unplanned")


def seconds(value: float) -> str:
    return f"{value:.2f} s" if math.isfinite(value) else "never"


def ratio(value: float | None) -> str:
    """A ratio, or a dash."""
    return "-" if value is None else f"{value:.3f}"
