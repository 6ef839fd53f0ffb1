"""`make bench-decide`: our planner against every rival tuned in hindsight, on the fifteen windows.

Ours has its defaults and the SLO and nothing else; every rival has, in each window, its cheapest
setting at 99 % and at what we violated (see `controller.replay.sweep`). Runs are cached. Whole runs
also tell what the rivals come to when they were tuned in the window before.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from controller.replay.cache import FOLDER, Cache
from controller.replay.causes import Cause, Split, split
from controller.replay.compare import Chain, decide_all
from controller.replay.frontier import (
    Result,
    Summary,
    best_by_policy,
    cost_above_frontier,
    geometric_mean,
    summarise,
)
from controller.replay.pool import Engine, default_workers
from controller.replay.rivals.registry import RIVALS
from controller.replay.runs import play_ours
from controller.replay.scenario import LEADS_S, Scenario, fifteen_windows
from controller.replay.tables import Splits, as_json, ratio
from controller.replay.trace import TraceError
from tests.benchmarks.carried import carried, carried_table

TRACES = Path(__file__).parents[3] / "shared" / "traces"


@dataclass(frozen=True)
class Mark:
    """What must be shown at one lead, and what is aimed at."""

    violations: float
    cost: float
    aim_cost: float
    aim_at_target: int
    aim_over_clairvoyance: float


MARKS = {
    45.0: Mark(0.010, 0.92, 0.90, 15, 1.12),
    120.0: Mark(0.010, 0.88, 0.84, 14, 1.22),
    300.0: Mark(0.012, 0.85, 0.78, 12, 1.30),
}
WORST_COST = 1.10
AVOIDABLE = 0.001
WIDTH = 150


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 1 if a mark is missed, 2 if the traces are not there."""
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    try:
        scenarios = fifteen_windows(options.traces, options.lead, last_only=options.quick)
    except TraceError as error:
        console.print(f"bench-decide: {error}", style="red", markup=False)
        return 2
    scenarios = [s for s in scenarios if not options.window or s.name in options.window]
    began_s = time.monotonic()
    cache = Cache(options.cache)
    results = run(console, scenarios, cache, options.workers, options.choosing)
    splits: Splits = {(s.name, s.lead_s): split_of(s, cache, options.choosing) for s in scenarios}
    console.print(window_table(results, splits), policy_table(results))
    console.print(summary_table(results, splits))
    if followed := carried(results, scenarios, cache):
        console.print(carried_table(followed))
    console.print(f"{len(results)} scenarios in {(time.monotonic() - began_s) / 60:.1f} min")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(as_json(results, splits), indent=2) + "\n")
    return int(any(missed(summary) for summary in summarise(results)))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-decide", description=__doc__)
    quick = os.environ.get("QUICK", "") not in ("", "0")
    parser.add_argument("--quick", action="store_true", default=quick, help="last windows only")
    parser.add_argument("--choosing", action="store_true", help="model and price chosen daily")
    parser.add_argument("--lead", type=float, action="append", help="seconds; repeatable")
    parser.add_argument("--window", action="append", help="as nasa@8.1; repeatable")
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--workers", type=int, default=default_workers())
    parser.add_argument("--cache", type=Path, default=FOLDER)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    options.lead = options.lead or LEADS_S
    return options


def run(
    console: Console,
    scenarios: Sequence[Scenario],
    cache: Cache,
    workers: int,
    choosing: bool = False,
) -> list[Result]:
    """Every scenario's result, by lead, each series' windows one after the other."""
    groups: dict[tuple[str, float], list[Scenario]] = {}
    for scenario in scenarios:
        series = scenario.name.split("@")[0]
        groups.setdefault((series, scenario.lead_s), []).append(scenario)
    rivals = tuple(RIVALS.values())
    chains = [Chain(tuple(group), rivals, cache, choosing) for group in groups.values()]
    results: list[Result] = []
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console) as bar:
        whole = bar.add_task("windows", total=len(scenarios))
        for _, done in decide_all(chains, Engine.PROCESSES, workers):
            results += done
            bar.advance(whole, len(done))
    place = {(s.name, s.lead_s): index for index, s in enumerate(scenarios)}
    return sorted(results, key=lambda r: (r.lead_s, place[r.name, r.lead_s]))


def split_of(scenario: Scenario, cache: Cache, choosing: bool) -> Split:
    """Why we were late; our run is in the cache by now."""
    played = play_ours(scenario, cache, choosing=choosing)
    return split(scenario, played.arrays, played.run.requests)


def window_table(results: Iterable[Result], splits: Splits) -> Table:
    """A row a window and lead."""
    table = Table(title="windows", title_justify="left")
    for heading in ("window", "lead", "late", "GPU-h", "changes", "at equal violations", "cost"):
        table.add_column(heading, overflow="fold")
    for heading in ("best rival at the SLO", "GPU-h", "over clairvoyance", "avoidable"):
        table.add_column(heading, overflow="fold")
    for result in results:
        assert result.ours is not None
        equal, best = result.equal_rival, result.best_rival
        split_here = splits[result.name, result.lead_s]
        table.add_row(
            result.name,
            f"{result.lead_s:g} s",
            f"{result.ours.violation_ratio:.2%}",
            f"{result.ours.gpu_hours:.1f}",
            f"{result.ours.changes}",
            f"{equal.policy} {equal.gpu_hours:.1f}" if equal else "none reaches it",
            ratio(result.cost_at_equal_violations),
            best.policy if best else "none",
            f"{best.gpu_hours:.1f}" if best else "",
            ratio(result.over_clairvoyance),
            f"{split_here.avoidable:.2%}",
        )
    return table


def policy_table(results: Sequence[Result]) -> Table:
    """Each rival by name: where it meets the SLO, how often it is the best, how far off."""
    columns = ("rival", "lead", "meets the SLO", "is the best", "GPU-hours over the best's")
    table = Table(*columns, title="rivals", title_justify="left")
    for lead_s in sorted({result.lead_s for result in results}):
        here = [result for result in results if result.lead_s == lead_s]
        for rival in RIVALS:
            own = [best_by_policy(result.rivals, result.budget).get(rival) for result in here]
            reached = [(run, r) for run, r in zip(own, here, strict=True) if run is not None]
            above = [cost_above_frontier(run, r.rivals) for run, r in reached]
            ahead = sum(run is r.best_rival for run, r in reached)
            table.add_row(
                rival,
                f"{lead_s:g} s",
                f"{len(reached)} of {len(here)}",
                f"{ahead}",
                ratio(geometric_mean(above)),
            )
    return table


def summary_table(results: Sequence[Result], splits: Splits) -> Table:
    """A column a lead, each figure beside its mark and what is aimed at."""
    summaries = summarise(results)
    table = Table("", *(f"{s.lead_s:g} s" for s in summaries), title="all windows")
    rows = [_summary_cells(summary, results, splits) for summary in summaries]
    for name in rows[0] if rows else ():
        table.add_row(name, *(cells[name] for cells in rows))
    return table


def _summary_cells(summary: Summary, results: Sequence[Result], splits: Splits) -> dict[str, str]:
    mark = MARKS.get(summary.lead_s, Mark(1.0, 9.0, 9.0, 0, 9.0))
    here = [result for result in results if result.lead_s == summary.lead_s]
    shares = pooled(here, splits)
    return {
        "late, pooled": _cell(f"{summary.violation_ratio:.2%}", f"{mark.violations:.1%}"),
        "  of these unavoidable": f"{shares[0]:.2%}",
        "  prefill alone": f"{shares[1]:.2%}",
        "  avoidable": _cell(f"{shares[2]:.2%}", f"{AVOIDABLE:.1%}"),
        "    of these, the cap wanted": f"{shares[3]:.2%}",
        "windows at the SLO": f"{summary.at_target} of {summary.scenarios}"
        f" (rivals {summary.rival_at_target}; aim {mark.aim_at_target} of 15)",
        "cost at equal violations": _cell(
            ratio(summary.cost), f"{mark.cost:g}, aim {mark.aim_cost:g}"
        ),
        "  largest": _cell(ratio(summary.worst_cost), f"{WORST_COST:g}"),
        "  no rival reaches ours in": ", ".join(summary.out_of_reach) or "none",
        "over clairvoyance": _cell(
            ratio(summary.over_clairvoyance), f"aim {mark.aim_over_clairvoyance:g}"
        ),
        "GPU-hours": f"{summary.gpu_hours:.0f}",
        "verdict": ", ".join(missed(summary)) or "met",
    }


def pooled(results: Iterable[Result], splits: Splits) -> list[float]:
    """Unavoidable, prefill alone, avoidable, and of these at the cap: shares of all requests of
    these scenarios."""
    total = 0
    sums = [0.0] * 4
    for result in results:
        assert result.ours is not None
        requests, why = result.ours.requests, splits[result.name, result.lead_s]
        total += requests
        shares = why.unavoidable, why.prefill_alone, why.avoidable, why.causes[Cause.CAP]
        sums = [sum_ + share * requests for sum_, share in zip(sums, shares, strict=True)]
    return [sum_ / max(total, 1) for sum_ in sums]


def missed(summary: Summary) -> list[str]:
    """The marks that a lead misses; none is set for other leads than the three."""
    mark = MARKS.get(summary.lead_s)
    if mark is None:
        return []
    checks = (
        ("late", summary.violation_ratio, mark.violations),
        ("cost", summary.cost, mark.cost),
        ("largest cost", summary.worst_cost, WORST_COST),
    )
    return [f"{name} MISSED" for name, value, most in checks if value is not None and value > most]


def _cell(value: str, mark: str) -> str:
    return f"{value} (<= {mark})"


if __name__ == "__main__":
    sys.exit(main())
