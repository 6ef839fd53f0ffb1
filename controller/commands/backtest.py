"""`leadtime backtest`: what each policy would have cost under a load, and what a lead is worth."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from controller.commands.recordings import (
    LoadError,
    Recording,
    column_names,
    cut,
    duration_s,
    from_file,
    from_past,
    synthetic,
)
from controller.replay.cache import Cache
from controller.replay.causes import Minute, split, worst_minutes
from controller.replay.compare import Comparison, Task
from controller.replay.frontier import Result
from controller.replay.plant import ColdStart, PlantSettings
from controller.replay.pool import Engine, EngineError, default_workers
from controller.replay.rivals.registry import RIVALS
from controller.replay.runs import CLAIRVOYANT, OURS, Played, Run, play_ours, play_rival
from controller.replay.scenario import WARM_UP_S, Scenario, scale
from controller.replay.scenario import split as scored_span
from controller.replay.tables import (
    HEADINGS,
    Splits,
    as_json,
    policy_rows,
    ratio,
    row_texts,
    size_text,
)
from controller.replay.trace import DAY_S, Trace, TraceError

POLICIES = (OURS, CLAIRVOYANT, *RIVALS)
USUAL_REPLICAS = 6.0
PLAIN_WIDTH = 140
LONGEST_WARM_UP_S = 7 * DAY_S


@dataclass(frozen=True)
class Order:
    """What the command line asked for, as it was spelled there."""

    traces: Sequence[Path] = ()
    columns: Sequence[str] = ()
    prometheus: str | None = None
    since: str = "14d"
    config: Path | None = None
    synthetic: str | None = None
    leads_s: Sequence[float] = (120.0,)
    replicas: float | None = None
    cap: int = 48
    slo_ttft_s: float = 2.0
    attainment: float = 0.99
    policies: str = "all"
    start: str | None = None
    end: str | None = None
    stretch: float = 1.0
    warm_up: str | None = None
    engine: str = Engine.PROCESSES.value
    workers: int | None = None
    cache: Path | None = None
    quick: bool = False
    choosing: bool = False
    json: Path | None = None
    html: Path | None = None


def backtest(order: Order) -> int:
    """Run it and show it; 2 with a line on standard error when the order cannot be carried out."""
    complaints = Console(stderr=True)
    try:
        policies = chosen_policies(order.policies)
        engine = _engine(order.engine)
        scenarios = scenarios_of(order)
        for path in filter(None, (order.json, order.html)):
            _writable(path)
        comparison = Comparison(
            scenarios, policies, RIVALS, Cache(order.cache), order.quick, order.choosing
        )
        done = _run(comparison, engine, order.workers or default_workers())
    except (LoadError, TraceError, EngineError) as error:
        complaints.print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 2
    results = comparison.results(done)
    ours = _ours(order, scenarios, policies)
    splits = {
        (s.name, s.lead_s): split(s, played.arrays, played.run.requests)
        for s, played in zip(scenarios, ours, strict=False)
    }
    _show(Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH), results, splits)
    if order.json:
        order.json.write_text(json.dumps(as_json(results, splits), indent=2) + "\n")
    if order.html:
        _write_html(order, scenarios, results, ours)
    return 0


def chosen_policies(text: str) -> list[str]:
    """The policies named, in the order of the registry."""
    if text == "all":
        return list(POLICIES)
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in POLICIES]
    if unknown or not names:
        raise LoadError(
            f"--policies: {', '.join(unknown) or 'nothing'} is no policy; choose from "
            f"{', '.join(POLICIES)}, or all"
        )
    return [name for name in POLICIES if name in names]


def scenarios_of(order: Order) -> list[Scenario]:
    """One a load and lead."""
    if not 0.5 <= order.attainment < 1:
        raise LoadError(f"--attainment: {order.attainment:g} must be a share from 0.5 to below 1")
    wrong = [lead_s for lead_s in order.leads_s if not 0 < lead_s <= 3600]
    if wrong:
        raise LoadError(f"--lead: {wrong[0]:g} must be above 0 and at most 3600 seconds")
    made = [_scenario(order, *load) for load in _loads(order)]
    return [scenario.with_lead(lead_s) for scenario in made for lead_s in order.leads_s]


def _scenario(order: Order, name: str, recording: Recording, usual: float) -> Scenario:
    settings = PlantSettings(slo_ttft_s=order.slo_ttft_s, cap=order.cap, cold_start=ColdStart())
    start_s = 0.0 if order.start is None else duration_s("--start", order.start)
    end_s = math.inf if order.end is None else duration_s("--end", order.end)
    if end_s <= start_s:
        raise LoadError(f"--end: {order.end} must be later than --start {order.start or '0'}")
    part = cut(recording, start_s, end_s, order.stretch)
    trace, mean = scale(name, part, order.replicas or usual, settings)
    if mean >= order.cap:
        raise LoadError(
            f"--replicas: a mean of {mean:.3g} replicas does not fit under --cap {order.cap}; "
            "lower one or raise the other"
        )
    return Scenario(
        name=name,
        trace=trace,
        scored=scored_span(trace, _warm_up_s(order, trace)),
        settings=settings,
        attainment=order.attainment,
        mean_replicas=mean,
        warm_up_s=WARM_UP_S,
        initial=max(1, round(1.3 * mean)),
    )


def _warm_up_s(order: Order, trace: Trace) -> float:
    """As asked; else a third of the load, a week at most."""
    if order.warm_up is not None:
        return duration_s("--warm-up", order.warm_up)
    return min((trace.end_s - trace.start_s) / 3, LONGEST_WARM_UP_S)


def _loads(order: Order) -> list[tuple[str, Recording, float]]:
    """(name, recording, mean replicas unless others are asked for) of each load."""
    kinds = [bool(order.traces), order.prometheus is not None, order.synthetic is not None]
    if sum(kinds) != 1:
        raise LoadError("give a load: one of --trace FILE, --prometheus URL, --synthetic RECIPE")
    if order.prometheus is not None:
        return _from_prometheus(order, order.prometheus)
    if order.synthetic is not None:
        return [("synthetic", synthetic(order.synthetic).bins(), USUAL_REPLICAS)]
    columns = column_names(order.columns)
    return [
        (path.name.split(".")[0], from_file(path, columns), USUAL_REPLICAS) for path in order.traces
    ]


def _from_prometheus(order: Order, url: str) -> list[tuple[str, Recording, float]]:
    """Each deployment's arrivals, scaled by what its replicas were seen to carry."""
    from controller.commands.history import read_past

    found = read_past(url, duration_s("--since", order.since), order.config)
    loads = from_past(found.past, found.bin_s)
    if not loads:
        raise LoadError(
            f"--prometheus: {url} holds no arrivals of any deployment in the last {order.since}; "
            "is it the one that scrapes Ray, and is prometheus.selector right?"
        )
    return [
        (name, bins, found.mean_replicas.get(name, USUAL_REPLICAS)) for name, bins in loads.items()
    ]


def _writable(path: Path) -> None:
    if not path.resolve().parent.is_dir():
        raise LoadError(f"{path}: its folder does not exist; make it first")


def _engine(name: str) -> Engine:
    if name not in list(Engine):
        raise LoadError(f"--engine: {name!r} is none; choose from {', '.join(Engine)}")
    return Engine(name)


def _run(comparison: Comparison, engine: Engine, workers: int) -> list[tuple[Task, list[Run]]]:
    done = []
    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        whole = bar.add_task("replaying", total=len(comparison.tasks))
        for task, runs in comparison.run(engine, workers):
            done.append((task, runs))
            what = f"{task.policy}, {task.scenario.lead_s:g} s"
            bar.update(whole, advance=1, description=what)
    return done


def _ours(order: Order, scenarios: Sequence[Scenario], policies: Sequence[str]) -> list[Played]:
    """Our runs with their minutes and decisions; nothing if we were not asked for."""
    if OURS not in policies:
        return []
    cache = Cache(order.cache)
    return [play_ours(scenario, cache, choosing=order.choosing) for scenario in scenarios]


def _show(console: Console, results: Sequence[Result], splits: Splits) -> None:
    for result in results:
        title = (
            f"{result.name}: lead {result.lead_s:g} s, load of {result.mean_replicas:.3g} replicas"
            f", SLO {result.attainment:.4g}"
        )
        table = Table("policy", *HEADINGS, "its best size at the SLO", title=title)
        table.title_justify = "left"
        for policy, run, _ in policy_rows(result):
            style = "bold" if policy == OURS else None
            table.add_row(policy, *row_texts(run), size_text(run), style=style)
        console.print(table)
        console.print(_verdict(result, splits), highlight=False)
    if len({result.lead_s for result in results}) > 1:
        console.print(lead_table(results))


def _verdict(result: Result, splits: Splits) -> str:
    if result.ours is None:
        return ""
    equal = result.equal_rival
    told = (
        f"at equal violations {ratio(result.cost_at_equal_violations)} of the GPU-hours of "
        f"{equal.policy}, the best rival"
        if equal
        else "no rival setting violates as little"
    )
    why = splits[result.name, result.lead_s]
    return (
        f"leadtime: {told}; {ratio(result.over_clairvoyance)} of clairvoyance. "
        f"Late: {why.unavoidable:.2%} by bursts faster than the lead, {why.prefill_alone:.2%} by "
        f"prefill alone, {why.avoidable:.2%} avoidable.\n"
    )


def lead_table(results: Sequence[Result]) -> Table:
    """What a faster start is worth: GPU-hours by lead."""
    table = Table("load", "lead", "leadtime", "late", "best rival at the SLO", "clairvoyant")
    table.title, table.title_justify = "what a faster start is worth, in GPU-hours", "left"
    for result in sorted(results, key=lambda r: (r.name, r.lead_s)):
        ours = result.ours
        table.add_row(
            result.name,
            f"{result.lead_s:g} s",
            f"{ours.gpu_hours:.1f}" if ours else "",
            f"{ours.violation_ratio:.2%}" if ours else "",
            f"{result.best_rival.gpu_hours:.1f}" if result.best_rival else "not reached",
            f"{result.clairvoyant.gpu_hours:.1f}" if result.clairvoyant else "not reached",
        )
    return table


def _write_html(
    order: Order,
    scenarios: Sequence[Scenario],
    results: Sequence[Result],
    ours: Sequence[Played],
) -> None:
    from controller.replay.report import Shown, write_report

    assert order.html is not None
    cache = Cache(order.cache)
    shown = []
    for place, (scenario, result) in enumerate(zip(scenarios, results, strict=True)):
        own = ours[place] if ours else None
        minutes: list[Minute] = worst_minutes(scenario, own.arrays) if own else []
        shown.append(Shown(scenario, result, own, _best_rival(scenario, result, cache), minutes))
    write_report(order.html, shown)


def _best_rival(scenario: Scenario, result: Result, cache: Cache) -> Played | None:
    """The best rival once more, with its minutes."""
    best = result.best_rival or result.equal_rival
    if best is None:
        return None
    return play_rival(scenario, RIVALS[best.policy], dict(best.params), cache, detailed=True)
