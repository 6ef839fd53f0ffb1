"""The bench's tables, its verdicts and its JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from rich.table import Table

from controller.core.windows import Values
from tests.benchmarks.accuracy.live import QUANTILES
from tests.benchmarks.accuracy.rivals import AUTO_ARIMA, LAST_VALUE, PROPHET
from tests.benchmarks.accuracy.scores import (
    COVERED,
    OURS,
    TOLERANCE,
    Scored,
    Tested,
    hindsight,
    interval,
    mase,
    ratio,
    share_below,
)

FASTER = 20.0
JUDGED_FITS = (AUTO_ARIMA.name, PROPHET.name)


@dataclass(frozen=True)
class Results:
    """All that was measured. `week_fit_s`: CPU seconds of fits on the same week, by name."""

    leads_s: tuple[float, ...]
    series: Sequence[Scored]
    tests: Sequence[Tested]
    stress: Sequence[Tested]
    week_fit_s: Mapping[str, Sequence[float]]

    @property
    def names(self) -> list[str]:
        """Forecasters, ours first."""
        return list(self.series[0].quantiles)

    @cached_property
    def hindsight(self) -> dict[str, Values]:
        """Each forecaster's pinball over last value's by lead, corrected in hindsight."""
        return {name: hindsight(self.series, name, LAST_VALUE.name) for name in self.names}


def lead_table(results: Results, lead: int | None) -> Table:
    """A row a forecaster at one lead, or over all leads."""
    where = "all leads" if lead is None else f"lead {results.leads_s[lead]:g} s"
    table = Table(title=where, title_justify="left")
    headings = ("origins", "pinball", "in hindsight", "ours / it", "90 % of draws", "MASE")
    table.add_column("forecaster")
    for heading in (*headings, "below 90 / 95 / 99 %"):
        table.add_column(heading, justify="right", no_wrap=True)
    leads = range(len(results.leads_s)) if lead is None else [lead]
    for name in results.names:
        below = np.mean([share_below(results.series, name, k) for k in leads], axis=0)
        best = results.hindsight[name][list(leads)]
        table.add_row(
            name,
            str(sum(int(scored.asked(name).sum()) for scored in results.series)),
            f"{ratio(results.series, name, LAST_VALUE.name, lead):.3f}",
            f"{np.exp(np.log(best).mean()):.3f}",
            *_against(results, name, lead),
            f"{np.mean([mase(results.series, name, k) for k in leads]):.2f}",
            _percents(below),
        )
    return table


def _against(results: Results, name: str, lead: int | None) -> tuple[str, str]:
    if name == OURS:
        return "", ""
    low, high = interval(results.series, OURS, name, lead)
    return f"{ratio(results.series, OURS, name, lead):.3f}", f"{low:.2f}-{high:.2f}"


def series_table(results: Results) -> Table:
    """Pinball over last value's, series by series, all leads."""
    names = [scored.name for scored in results.series]
    table = Table("pinball by series", *names)
    for name in results.names:
        cells = [f"{ratio([s], name, LAST_VALUE.name):.3f}" for s in results.series]
        table.add_row(name, *cells)
    return table


def fit_table(results: Results) -> Table:
    """CPU seconds of a fit."""
    table = Table(title="CPU seconds of a fit on one thread", title_justify="left")
    table.caption = (
        "as scored: ours 10 s bins, all leads; the others minutes, all leads; the week: ours"
        " 10 s bins, the two windows of a planner; the others minutes"
    )
    for heading in ("forecaster", "as scored", "on a week", "ours is faster by", "failed"):
        table.add_column(heading, justify="left" if heading == "forecaster" else "right")
    ours = _mean(results.week_fit_s[OURS])
    for name in results.names:
        scored = [t for s in results.series for t in s.fit_s[name]]
        week = results.week_fit_s.get(name)
        table.add_row(
            name,
            f"{_mean(scored):.3f}",
            f"{_mean(week):.3f}" if week else "",
            f"{_mean(week) / ours:.0f} x" if week and name != OURS else "",
            str(sum(s.failed.get(name, 0) for s in results.series)),
        )
    return table


def coverage_table(results: Results) -> Table:
    """Our coverage after every bin, all leads together."""
    table = Table(title="ours after every bin: coverage of 90 / 95 / 99 %", title_justify="left")
    headings = ("series", "days", "pinball", "mean", "rolling days within 1.5", "worst day")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "series" else "right")
    for test in (*results.tests, *results.stress):
        worst = np.abs(test.worst - np.array(COVERED)).argmax(axis=0)
        table.add_row(
            test.name,
            f"{test.days:.1f}",
            f"{np.exp(np.log(test.over_last_value).mean()):.3f}",
            _percents(test.share.mean(axis=0)),
            _percents(test.days_ok.mean(axis=0), 0),
            _percents(np.array([test.worst[lead, k] for k, lead in enumerate(worst)])),
        )
    return table


def missed(results: Results) -> list[str]:
    """Each stated target that is missed, in words."""
    found = [
        f"pinball at {'all leads' if lead is None else f'{results.leads_s[lead]:g} s'}: {name} is"
        f" ahead, ours / it {ahead:.3f}"
        for lead in (None, *range(len(results.leads_s)))
        for name in results.names
        if name != OURS and (ahead := ratio(results.series, OURS, name, lead)) >= 1.0
    ]
    ours = _mean(results.week_fit_s[OURS])
    for name in JUDGED_FITS:
        times = _mean(results.week_fit_s[name]) / ours if name in results.week_fit_s else FASTER
        if times < FASTER:
            found.append(f"fit time: only {times:.1f} x faster than {name}, not {FASTER:g} x")
    return found + [line for test in (*results.tests, *results.stress) for line in _uncovered(test)]


def _uncovered(test: Tested) -> list[str]:
    off = np.abs(test.worst - np.array(COVERED)) > TOLERANCE + 1e-9
    if not off.any():
        return []
    levels = ", ".join(
        f"{covered:.0%} in {test.days_ok[:, k].mean():.0%} of days"
        for k, covered in enumerate(COVERED)
        if off[:, k].any()
    )
    return [f"coverage within 1.5 points on {test.name}: {levels}"]


def as_json(results: Results) -> dict[str, Any]:
    """Everything the tables say, lead by lead."""
    return {
        "leads_s": list(results.leads_s),
        "quantiles": QUANTILES.tolist(),
        "forecasters": {name: _forecaster(results, name) for name in results.names},
        "fit_on_the_same_week_s": {n: list(times) for n, times in results.week_fit_s.items()},
        "coverage": [_test(test) for test in results.tests],
        "stress": [_test(test) for test in results.stress],
        "missed": missed(results),
    }


def _forecaster(results: Results, name: str) -> dict[str, Any]:
    leads = range(len(results.leads_s))
    series, last = results.series, LAST_VALUE.name
    return {
        "pinball_over_last_value": ratio(series, name, last),
        "by_lead": [ratio(series, name, last, lead) for lead in leads],
        "in_hindsight_by_lead": results.hindsight[name].tolist(),
        "mase_by_lead": [mase(series, name, lead) for lead in leads],
        "coverage_by_lead": [share_below(series, name, lead).tolist() for lead in leads],
        "pinball_rps": {s.name: np.nanmean(s.losses(name), axis=0).tolist() for s in series},
        "origins": {s.name: int(s.asked(name).sum()) for s in series},
        "fit_s": {s.name: list(s.fit_s[name]) for s in series},
    }


def _test(test: Tested) -> dict[str, Any]:
    return {
        "series": test.name,
        "days": test.days,
        "coverage": test.share.tolist(),
        "rolling_days_within": test.days_ok.tolist(),
        "worst_day": test.worst.tolist(),
        "pinball_over_last_value": test.over_last_value.tolist(),
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _percents(shares: Values, digits: int = 1) -> str:
    return " / ".join(f"{100 * share:.{digits}f}" for share in shares.tolist())
