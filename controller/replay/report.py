"""A backtest as one HTML file with everything it needs inside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from controller.replay.causes import Minute
from controller.replay.frontier import Result, pareto
from controller.replay.runs import REPORT_STEP_S, Played, Run
from controller.replay.scenario import Scenario
from controller.replay.tables import HEADINGS, policy_rows, ratio, row_texts, setting
from controller.replay.trace import Floats

OURS_COLOUR, RIVAL_COLOUR, LOAD, CLAIRVOYANT_COLOUR = "#d97706", "#6b7280", "#2563eb", "#059669"
PALETTE = ("#6b7280", "#7c3aed", "#db2777", "#0891b2", "#65a30d", "#92400e", "#1e40af", "#be123c")
LEAST_SHOWN = 1e-5
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>Leadtime: backtest</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;
color:#111;background:#fff}}table{{border-collapse:collapse;margin:1rem 0}}
td,th{{padding:.25rem .75rem;text-align:right;border-bottom:1px solid #ddd}}
td:first-child,th:first-child{{text-align:left}}.scroll{{overflow-x:auto}}</style>
<h1>Backtest: what each policy would have cost</h1>{body}</html>"""


@dataclass(frozen=True)
class Shown:
    """A scenario's result with what its figures are drawn from."""

    scenario: Scenario
    result: Result
    ours: Played | None
    rival: Played | None
    worst: Sequence[Minute]


def write_report(path: Path, shown: Sequence[Shown]) -> None:
    """The report of every scenario, and of what a faster start is worth."""
    page = _Page()
    if len({each.scenario.lead_s for each in shown}) > 1:
        page.text("h2", "What a faster start is worth")
        page.figure(lead_figure([each.result for each in shown]))
    for each in shown:
        _scenario(page, each)
    path.write_text(PAGE.format(body="".join(page.parts)), encoding="utf-8")


class _Page:
    """Parts of the page; plotly's code goes in with the first figure."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._figures = 0

    def text(self, tag: str, text: str) -> None:
        self.parts.append(f"<{tag}>{escape(text)}</{tag}>")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        cells = "".join(f"<th>{escape(text)}</th>" for text in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows
        )
        self.parts.append(f'<div class="scroll"><table><tr>{cells}</tr>{body}</table></div>')

    def figure(self, figure: go.Figure) -> None:
        first = self._figures == 0
        self.parts.append(figure.to_html(full_html=False, include_plotlyjs=first))
        self._figures += 1


def _scenario(page: _Page, shown: Shown) -> None:
    result = shown.result
    page.text("h2", f"{result.name}, lead {result.lead_s:g} s")
    page.text(
        "p",
        f"A load of {result.mean_replicas:.3g} full replicas on average; {result.attainment:.4g} "
        f"of requests within {shown.scenario.settings.slo_ttft_s:g} s; at most "
        f"{shown.scenario.settings.cap} replicas. Leadtime needs "
        f"{ratio(result.cost_at_equal_violations)} of the GPU-hours of the cheapest rival setting "
        f"that violates no more, and {ratio(result.over_clairvoyance)} of the clairvoyant's.",
    )
    rows = [[policy, *row_texts(run), text] for policy, run, text in policy_rows(result)]
    page.table(["policy", *HEADINGS, "its best setting at the SLO"], rows)
    page.figure(frontier_figure(result))
    page.figure(time_figure(shown))
    if shown.worst:
        page.text("h3", "The worst minutes of Leadtime, and why")
        page.table(
            ["from the start", "requests", "late", "mostly by", "replicas ready", "wanted"],
            [_minute(shown.scenario, minute) for minute in shown.worst],
        )


def _minute(scenario: Scenario, minute: Minute) -> list[str]:
    hours = (minute.at_s - scenario.scored[0]) / 3600
    counts = (minute.ready, minute.wanted)
    return [
        f"{hours:.2f} h",
        f"{minute.arrivals:,}",
        f"{minute.late:,}",
        minute.cause.value,
        *map(str, counts),
    ]


def frontier_figure(result: Result) -> go.Figure:
    """GPU-hours against violations: every run, and each policy's frontier."""
    figure = go.Figure()
    by_policy: dict[str, list[Run]] = {}
    for run in result.rivals:
        by_policy.setdefault(run.policy, []).append(run)
    for place, (policy, runs) in enumerate(by_policy.items()):
        colour = PALETTE[place % len(PALETTE)]
        _add_runs(figure, policy, pareto(runs), {"color": colour}, "lines+markers")
        _add_runs(figure, policy, runs, {"color": colour}, "markers", faint=True)
    if result.clairvoyant:
        style = {"color": CLAIRVOYANT_COLOUR, "size": 12, "symbol": "diamond"}
        _add_runs(figure, "clairvoyant", [result.clairvoyant], style, "markers")
    if result.ours:
        style = {"color": OURS_COLOUR, "size": 16, "symbol": "star"}
        _add_runs(figure, "leadtime", [result.ours], style, "markers")
    figure.add_vline(x=result.budget, line_dash="dot", annotation_text="SLO")
    figure.update_xaxes(type="log", tickformat=".2%", title="late requests", range=[-4, -0.5])
    figure.update_yaxes(title="GPU-hours", type="log")
    figure.update_layout(
        title="GPU-hours against late requests", height=520, template="plotly_white"
    )
    return figure


def _add_runs(
    figure: go.Figure,
    name: str,
    runs: Sequence[Run],
    style: Mapping[str, Any],
    mode: str,
    *,
    faint: bool = False,
) -> None:
    figure.add_scatter(
        x=[max(run.violation_ratio, LEAST_SHOWN) for run in runs],
        y=[run.gpu_hours for run in runs],
        name=name,
        legendgroup=name,
        showlegend=not faint,
        opacity=0.35 if faint else 1.0,
        mode=mode,
        marker=dict(style),
        customdata=[[setting(run)] for run in runs],
        hovertemplate="%{x:.3%}, %{y:.1f} GPU-h<br>%{customdata[0]}",
    )


def time_figure(shown: Shown) -> go.Figure:
    """Load and replicas over time, ours and the best rival's, and who was late when."""
    figure = make_subplots(
        rows=2,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.06,
        subplot_titles=("load and ready replicas", "late requests a minute"),
    )
    told = [("leadtime", OURS_COLOUR, shown.ours)]
    if shown.rival is not None:
        told.append((shown.rival.run.policy, RIVAL_COLOUR, shown.rival))
    for name, colour, played in told:
        if played is None:
            continue
        hours, reports = _scored(shown.scenario, played)
        line = {"color": colour, "shape": "hv"}
        for row, column in ((1, "ready"), (2, "violations")):
            figure.add_scatter(
                x=hours,
                y=reports[column],
                name=name,
                legendgroup=name,
                showlegend=row == 1,
                line=line,
                row=row,
                col=1,
            )
    source = shown.ours or shown.rival
    if source is not None:
        hours, reports = _scored(shown.scenario, source)
        arrivals = reports["arrivals"] / REPORT_STEP_S
        scale = shown.result.mean_replicas / max(float(arrivals.mean()), 1e-9)
        figure.add_scatter(
            x=hours,
            y=arrivals * scale,
            name="load, in full replicas",
            line={"color": LOAD, "width": 1},
            row=1,
            col=1,
        )
    figure.update_xaxes(title_text="hour", row=2, col=1)
    figure.update_layout(height=640, hovermode="x unified", template="plotly_white")
    return figure


def _scored(scenario: Scenario, played: Played) -> tuple[Floats, np.ndarray[Any, Any]]:
    """(hours since scoring began, the minutes of the scored span): every run ends with it."""
    reports = played.arrays["reports"]
    size = int((scenario.scored[1] - scenario.scored[0]) / REPORT_STEP_S)
    return np.arange(size) * REPORT_STEP_S / 3600, reports[-size:]


def lead_figure(results: Sequence[Result]) -> go.Figure:
    """GPU-hours by lead: what a faster start would save."""
    figure = go.Figure()
    for name in dict.fromkeys(result.name for result in results):
        own = sorted((r for r in results if r.name == name), key=lambda r: r.lead_s)
        for label, colour, runs in (
            ("leadtime", OURS_COLOUR, [r.ours for r in own]),
            ("best rival at the SLO", RIVAL_COLOUR, [r.best_rival for r in own]),
            ("clairvoyant", CLAIRVOYANT_COLOUR, [r.clairvoyant for r in own]),
        ):
            figure.add_scatter(
                x=[r.lead_s for r in own],
                y=[run.gpu_hours if run else None for run in runs],
                name=f"{label}, {name}",
                line={"color": colour},
                mode="lines+markers",
            )
    figure.update_xaxes(title="seconds from asking for a replica to having it")
    figure.update_yaxes(title="GPU-hours", rangemode="tozero")
    figure.update_layout(height=420, template="plotly_white")
    return figure
