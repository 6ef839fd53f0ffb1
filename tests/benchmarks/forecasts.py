"""`make bench-forecast`: our forecaster against every other on the public traces.

Ours runs as live, bin by bin, its fits and its calibration included, and is scored after every
bin; the others are refitted at origins drawn at random from the same days, and all are scored
there on the same peaks. Pinball loss is over that of the last value with empirical quantiles,
geometric means over series. Exit code 1: a target is missed; 2: traces or packages are missing.
"""

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from threadpoolctl import threadpool_limits

from controller.core.forecasting.features import Rows
from controller.replay.series import WINDOW_DAYS
from controller.replay.trace import TraceError
from tests.benchmarks.accuracy import loads, rivals, tables
from tests.benchmarks.accuracy.live import Played, cpu_s, fit_alone, horizons, play
from tests.benchmarks.accuracy.loads import Load, Record
from tests.benchmarks.accuracy.rivals import Rival
from tests.benchmarks.accuracy.scores import OURS, Scored, Tested, tested
from tests.benchmarks.accuracy.tables import Results

TRACES = Path(__file__).parents[3] / "shared" / "traces"
LEADS_S = (30.0, 45.0, 120.0, 300.0, 450.0)
WEEK_LEAD_S = 120.0


@dataclass(frozen=True)
class Size:
    """How much is run: days of history before the first test, days of test (None: all that
    are left), series under stress, days of stress, origins a series, series of week fits."""

    history_days: float
    test_days: float | None
    stressed: int
    stress_days: float
    origins: int
    week_fits: int


FULL = Size(3.0, None, 6, 3.0, 160, 6)
QUICK = Size(3.0, 1.0, 1, 1.5, 16, 1)
Advance = Callable[[int], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 1 if a target is missed, 2 if something needed is not there."""
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    size = QUICK if options.quick else FULL
    try:
        chosen = loads.public(options.traces, size.history_days, size.test_days)
    except (TraceError, OSError) as error:
        console.print(f"bench-forecast: no public traces: {error}", style="red", markup=False)
        return 2
    if missing := rivals.missing_packages():
        console.print(
            f"bench-forecast: {', '.join(missing)} not installed here: `make bench-forecast` puts"
            " requirements-bench.txt into .venv-bench and runs there",
            style="red",
            markup=False,
        )
        return 2
    chosen = [load for load in chosen if not options.series or load.name in options.series]
    began_s = time.monotonic()
    with threadpool_limits(1):
        results = run(console, chosen, tuple(options.lead), size, options)
    show(console, results)
    console.print(f"{(time.monotonic() - began_s) / 60:.1f} min")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(tables.as_json(results), indent=2) + "\n")
    missed = tables.missed(results)
    for line in missed:
        console.print(f"MISSED {line}", markup=False)
    return int(bool(missed))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-forecast", description=__doc__)
    quick = os.environ.get("QUICK", "") not in ("", "0")
    parser.add_argument(
        "--quick", action="store_true", default=quick, help="last day, few origins, one stress"
    )
    parser.add_argument("--lead", type=float, action="append", help="seconds; repeatable")
    parser.add_argument("--series", action="append", choices=list(WINDOW_DAYS), help="repeatable")
    parser.add_argument("--origins", type=int, help="origins a series (default 160, quick 16)")
    names = [rival.name for rival in rivals.RIVALS]
    parser.add_argument("--rival", action="append", choices=names, help="repeatable")
    parser.add_argument("--stressed", type=int, help="series under stress (default 6, quick 1)")
    parser.add_argument("--seed", type=int, default=3, help="of the origins and the stresses")
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder of the public traces")
    parser.add_argument("--json", type=Path, help="file to write every figure to")
    options = parser.parse_args(arguments)
    options.lead = options.lead or LEADS_S
    return options


def run(
    console: Console,
    chosen: Sequence[Load],
    leads_s: tuple[float, ...],
    size: Size,
    options: argparse.Namespace,
) -> Results:
    """Measure everything."""
    rivals.load_packages()
    against = rivals.named(options.rival)
    stress = size.stressed if options.stressed is None else options.stressed
    stressed = [
        changed
        for load in chosen[len(chosen) - min(stress, len(chosen)) :]
        for changed in loads.stressed(load, size.stress_days, options.seed)
    ]
    count = options.origins or size.origins
    asks = sum(-(-count // rival.every) for rival in against)
    with _bars(console) as bar:
        played = bar("ours, bin by bin", sum(_tested_bins(load) for load in (*chosen, *stressed)))
        asked = bar("rivals, at origins", asks * len(chosen))
        fitted = bar("fits on a week", size.week_fits * (1 + len(rivals.ON_A_WEEK)))
        series, tests, weeks = [], [], defaultdict[str, list[float]](list)
        for load in chosen:
            record = Record(load)
            ours = play(load, leads_s, played)
            tests.append(tested(record, ours, horizons(leads_s)))
            rows = rivals.origins(record, ours.rows, horizons(leads_s), count, options.seed)
            series.append(score(record, ours, rows, horizons(leads_s), against, asked))
        for load in chosen[-size.week_fits :]:
            for name, spent_s in week_fits(Record(load), fitted):
                weeks[name].append(spent_s)
        strained = [under_stress(load, leads_s, played) for load in stressed]
    return Results(leads_s, series, tests, strained, dict(weeks))


def score(
    record: Record,
    ours: Played,
    rows: Rows,
    ahead: Sequence[int],
    against: Sequence[Rival],
    advance: Advance,
) -> Scored:
    """Ours and the rivals at the same origins."""
    quantiles = {OURS: ours.quantiles[rows - ours.first]}
    fit_s: dict[str, Sequence[float]] = {OURS: ours.fit_s}
    failed: dict[str, int] = {}
    for rival in against:
        made, spent_s, failures = np.full_like(quantiles[OURS], np.nan), [], 0
        for place in range(0, len(rows), rival.every):
            began_s = cpu_s()
            made[place], gave = rivals.answer(rival, record, int(rows[place]), ahead)
            spent_s.append(cpu_s() - began_s)
            failures += not gave
            advance(1)
        quantiles[rival.name], fit_s[rival.name], failed[rival.name] = made, spent_s, failures
    outcomes = record.outcomes(rows, ahead)
    name, naive_error = record.load.name, record.naive_error()
    return Scored(name, rows, naive_error, outcomes, quantiles, fit_s, failed)


def week_fits(record: Record, advance: Advance) -> Iterator[tuple[str, float]]:
    """CPU seconds of a fit on the last week of a series, ours and those we must outrun."""
    row = int(np.flatnonzero(np.isfinite(record.log_peaks))[-1])
    yield OURS, fit_alone(record, row, rivals.WEEK * loads.WINDOW, WEEK_LEAD_S)
    advance(1)
    for rival in rivals.ON_A_WEEK:
        began_s = cpu_s()
        rivals.answer(rival, record, row, horizons([WEEK_LEAD_S]))
        yield rival.name, cpu_s() - began_s
        advance(1)


def under_stress(load: Load, leads_s: Sequence[float], advance: Advance) -> Tested:
    """Ours on a series under stress."""
    return tested(Record(load), play(load, leads_s, advance), horizons(leads_s))


def show(console: Console, results: Results) -> None:
    """Every table."""
    for lead in (*range(len(results.leads_s)), None):
        console.print(tables.lead_table(results, lead))
    console.print(tables.series_table(results), tables.fit_table(results))
    console.print(tables.coverage_table(results))


def _tested_bins(load: Load) -> int:
    return len(load.rates) - load.first_test


@contextmanager
def _bars(console: Console) -> Iterator[Callable[[str, int], Advance]]:
    """A line of progress for each part that is announced."""
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console) as bar:

        def announced(name: str, total: int) -> Advance:
            task = bar.add_task(name, total=total)
            return lambda passed: bar.advance(task, passed)

        yield announced


if __name__ == "__main__":
    sys.exit(main())
