"""`make bench-robust`: one thing changed at a time, on two series at a lead of 120 s.

Ours keeps its defaults; rivals are tuned in hindsight anew for every change, as in bench-decide.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from controller.replay.cache import FOLDER, Cache
from controller.replay.frontier import Result, geometric_mean
from controller.replay.plant import ColdStart, MetricsPath, PlantSettings
from controller.replay.pool import default_workers
from controller.replay.scenario import Scenario, full_replica_rps
from controller.replay.series import WINDOW_S, Lengths, Recipe, draw
from controller.replay.tables import as_json, ratio
from controller.replay.trace import DAY_S, Bins, TraceError, read
from tests.benchmarks.decide import TRACES, run

LEAD_S = 120.0
MEAN_REPLICAS, CAP = 6.1, 48
COST_MARK = 0.95
SERIES = (("azure_s10", "azure_llm_2024_conv", 10, 5.5), ("m_small", "servegen_m_small", 0, 7.5))
USUAL = PlantSettings(cold_start=ColdStart(LEAD_S))


@dataclass(frozen=True)
class Change:
    """What differs from the usual: the plant, the lengths, the tick or the mean load."""

    name: str
    plant: PlantSettings = USUAL
    lengths: float = 1.0
    tick_s: float = 10.0
    mean_replicas: float = MEAN_REPLICAS


def _lag(age_s: float) -> MetricsPath:
    """Metrics that are about so old when they are read."""
    if age_s < 5:
        return MetricsPath(push_s=2.0, push_offset_s=1.0, scrape_s=1.0, lag_s=1.0)
    return replace(MetricsPath(), lag_s=age_s - 4.0)


CHANGES = (
    Change("nothing"),
    *(Change(f"slots {slots}", replace(USUAL, slots=slots)) for slots in (8, 64)),
    *(Change(f"beta {beta}", replace(USUAL, beta=beta)) for beta in (0.02, 0.12)),
    *(Change(f"lengths x {factor:g}", lengths=factor) for factor in (0.5, 2.0, 4.0)),
    *(
        Change(f"start jitter {jitter:.0%}", replace(USUAL, cold_start=ColdStart(LEAD_S, jitter)))
        for jitter in (0.05, 0.4)
    ),
    *(Change(f"metrics {age} s old", replace(USUAL, metrics=_lag(age))) for age in (2, 30)),
    *(Change(f"tick {tick} s", tick_s=float(tick)) for tick in (5, 30)),
    *(Change(f"mean of {mean} replicas", mean_replicas=float(mean)) for mean in (2, 30)),
)


def scenarios(folder: Path, changes: Sequence[Change] = CHANGES) -> Iterator[Scenario]:
    """Each change on each series, scaled so that the mean load fills as many replicas."""
    for change in changes:
        usual = Lengths()
        lengths = replace(
            usual,
            prompt_mean=usual.prompt_mean * change.lengths,
            output_mean=usual.output_mean * change.lengths,
        )
        full_rps = full_replica_rps(change.plant, lengths.prompt_mean, lengths.output_mean)
        cap = max(CAP, round(CAP / MEAN_REPLICAS * change.mean_replicas))
        for name, file, spikes, day in SERIES:
            bins = read(folder / f"{file}.csv.gz")
            assert isinstance(bins, Bins)
            mean_rps = change.mean_replicas * full_rps
            recipe = Recipe(mean_rps=mean_rps, spikes=spikes, lengths=lengths)
            trace = replace(draw(bins.until(14 * DAY_S), recipe), name=name)
            yield Scenario(
                f"{name}@{day:g}, {change.name}",
                trace,
                (day * DAY_S, day * DAY_S + WINDOW_S),
                replace(change.plant, cap=cap),
                mean_replicas=change.mean_replicas,
                tick_s=change.tick_s,
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a change costs more than the mark, 2 without the traces."""
    parser = argparse.ArgumentParser(prog="bench-robust", description=__doc__)
    parser.add_argument("--only", action="append", help="a change's name, as 'slots 8'; repeatable")
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--workers", type=int, default=default_workers())
    parser.add_argument("--cache", type=Path, default=FOLDER)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 140)
    chosen = [c for c in CHANGES if not options.only or c.name in options.only]
    if not chosen:
        parser.error(f"--only: choose of {', '.join(change.name for change in CHANGES)}")
    began_s = time.monotonic()
    try:
        made = list(scenarios(options.traces, chosen))
    except (TraceError, OSError) as error:
        console.print(f"bench-robust: {error}", style="red", markup=False)
        return 2
    results = run(console, made, Cache(options.cache), options.workers)
    order = {scenario.name: place for place, scenario in enumerate(made)}
    results.sort(key=lambda result: order[result.name])
    console.print(table(results))
    console.print(f"{len(results)} scenarios in {(time.monotonic() - began_s) / 60:.1f} min")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(as_json(results, {}), indent=2) + "\n")
    return int(any((r.cost_at_equal_violations or 0.0) > COST_MARK for r in results))


def table(results: Sequence[Result]) -> Table:
    """A row a change and series, and the geometric mean."""
    shown = Table(title=f"lead {LEAD_S:g} s, cost at equal violations (<= {COST_MARK})")
    for heading in ("series", "changed", "late", "GPU-h", "at equal violations", "cost"):
        shown.add_column(heading)
    costs = []
    for result in results:
        assert result.ours is not None
        series, changed = result.name.split(", ")
        equal, cost = result.equal_rival, result.cost_at_equal_violations
        costs += [cost] if cost is not None else []
        shown.add_row(
            series,
            changed,
            f"{result.ours.violation_ratio:.2%}",
            f"{result.ours.gpu_hours:.1f}",
            f"{equal.policy} {equal.gpu_hours:.1f}" if equal else "none reaches it",
            ratio(cost),
        )
    shown.add_row("geometric mean", "", "", "", "", ratio(geometric_mean(costs)))
    return shown


if __name__ == "__main__":
    sys.exit(main())
