"""`leadtime plan`: one tick, dry."""

import asyncio
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from controller.adapters.telemetry.logs import set_up_logs
from controller.core.forecasting import fitting
from controller.core.records import record
from controller.settings import Settings, load
from controller.wiring import build


def plan_once(config: Path | None, as_json: bool) -> int:
    """Print what a tick would decide; 0 if every source answered, else 1."""
    settings = load(config)
    set_up_logs("console", "error")
    records, failures = asyncio.run(_decide(settings))
    if as_json:
        print(json.dumps({"decisions": records, "failures": failures}, indent=2))
    else:
        _show(records, failures)
    return 1 if failures or not records else 0


async def _decide(settings: Settings) -> tuple[list[dict[str, object]], list[str]]:
    """Two looks one scrape apart, as arrivals are differences, with the models fitted here.

    Nothing is written: the actuator is the shadow's and the journal is only read.
    """
    shadow = settings.model_copy(update={"mode": "shadow"})
    daemon = build(shadow)
    loop = daemon.loop
    loop.recorders, loop.chooser = (), None
    try:
        loop.planners.update(await loop.makes.prepare(await loop.source.replicas()))
        for planner in loop.planners.values():
            job = planner.fit_due()
            if job is not None:
                planner.adopt(fitting.run(job))
        await loop.tick()
        await asyncio.sleep(settings.prometheus.scrape_s)
        tick = await loop.tick()
    finally:
        await daemon.close()
    return [record(*decided) for decided in tick.decisions], list(tick.failures)


def _show(records: list[dict[str, object]], failures: list[str]) -> None:
    console = Console()
    columns = ("deployment", "ready", "requested", "wanted", "reason", "demand", "at lead, 95 %")
    table = Table(*columns, "lead", "a replica carries")
    for row in records:
        inputs, ahead = row["inputs"], row["ahead"]
        table.add_row(
            f"{row['application']}/{row['deployment']}",
            _number(row["ready"], ""),
            _number(row["requested"], ""),
            _number(row["wanted"], ""),
            str(row["reason"]),
            _number(inputs["demand_rps"], "/s"),  # type: ignore[index]
            _number(ahead["quantiles"]["0.95"], "/s") if ahead else "?",  # type: ignore[index]
            _number(row["lead_s"], " s"),
            _number(row["capacity_rps"], "/s"),
        )
    console.print(table)
    for failure in failures:
        console.print(f"not read: {failure}", style="red", markup=False)


def _number(value: object, unit: str) -> str:
    return "?" if value is None else f"{value:.3g}{unit}"
