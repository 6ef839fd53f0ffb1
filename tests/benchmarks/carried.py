"""Rivals as users can have them: tuned on a window that is over, then played in the next.

Tuning in hindsight also picks the setting to which the window's own chance was kindest. The setting
that was best in the window before, of all rivals, has no such luck.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from rich.table import Table

from controller.replay.cache import Cache
from controller.replay.frontier import Result
from controller.replay.rivals.registry import RIVALS
from controller.replay.runs import Run, play_rival
from controller.replay.scenario import Scenario


@dataclass(frozen=True)
class Carried:
    """One window: what we came to, and what the rival's setting came to that was the cheapest of
    all in the window before at the SLO and at what we violated there."""

    lead_s: float
    ours: Run
    at_slo: Run
    at_ours: Run


def carried(
    results: Sequence[Result], scenarios: Iterable[Scenario], cache: Cache
) -> list[Carried]:
    """Every window that follows another of its series in which rivals reached both goals."""
    by_name = {(scenario.name, scenario.lead_s): scenario for scenario in scenarios}

    def series(result: Result) -> tuple[float, str]:
        return result.lead_s, result.name.split("@")[0]

    def played(best: Run, result: Result) -> Run:
        scenario = by_name[result.name, result.lead_s]
        return play_rival(scenario, RIVALS[best.policy], dict(best.params), cache).run

    found = []
    for (lead_s, _), windows in groupby(results, series):
        for before, result in pairwise(windows):
            best, equal = before.best_rival, before.equal_rival
            if best is not None and equal is not None and result.ours is not None:
                both = played(best, result), played(equal, result)
                found.append(Carried(lead_s, result.ours, *both))
    return found


def carried_table(windows: Sequence[Carried]) -> Table:
    """Pooled, by lead: late requests and GPU-hours."""
    heading = "tuned in the window before, played in the next"
    table = Table(title=heading, title_justify="left")
    for name in ("lead", "windows", "ours: late", "GPU-h", "best at the SLO: late", "GPU-h"):
        table.add_column(name, overflow="fold")
    for name in ("best at our violations: late", "GPU-h"):
        table.add_column(name, overflow="fold")
    for lead_s in sorted({window.lead_s for window in windows}):
        here = [window for window in windows if window.lead_s == lead_s]
        cells = [f"{lead_s:g} s", f"{len(here)}"]
        for runs in zip(*((w.ours, w.at_slo, w.at_ours) for w in here), strict=True):
            late = sum(run.violations for run in runs) / sum(run.requests for run in runs)
            cells += [f"{late:.2%}", f"{sum(run.gpu_hours for run in runs):.0f}"]
        table.add_row(*cells)
    return table
