"""What the demo leaves behind: a table, summary.json and a self-contained report.html."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from rich.table import Table

from controller.demo import scorer
from controller.demo.day import Day
from controller.demo.model import Candidate
from controller.demo.play import Played
from controller.demo.scorer import RampScore, Result

WANTED, REQUESTED, READY, LOAD, BAND = "#d97706", "#6b7280", "#059669", "#2563eb", "147,197,253"
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>Leadtime: one compressed day</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;
color:#111;background:#fff}}table{{border-collapse:collapse;margin:1rem 0}}
td,th{{padding:.25rem .75rem;text-align:right;border-bottom:1px solid #ddd}}
td:first-child,th:first-child{{text-align:left}}.void{{color:#b91c1c}}</style>
<h1>One compressed day, played twice</h1>{verdict}{tables}{figures}</html>"""


def results_table(results: Mapping[str, Result], ttft_s: float) -> Table:
    """The two policies side by side, for the terminal."""
    table = Table("", *results, title="the day", title_justify="left")
    for label, texts in _rows(results, ttft_s):
        table.add_row(label, *texts)
    return table


def ramps_table(ramps: Mapping[str, Sequence[RampScore]]) -> Table:
    """How long before the need (or, negative, after it) each ramp's capacity was ready."""
    headings = [f"{policy}: margin" for policy in ramps]
    table = Table("ramp", "need at", *headings, title="the ramps", title_justify="left")
    for place, scores in enumerate(zip(*ramps.values(), strict=True)):
        margins = [f"{score.margin_s:+.1f} s" for score in scores]
        table.add_row(f"{place + 1}", f"{scores[0].need_at_s:.0f} s", *margins)
    return table


def grid_table(best: Candidate, tried: Sequence[Candidate]) -> Table:
    """The best settings of Serve's own autoscaler, cheapest first."""
    title = (
        f"Serve's own autoscaler: {len(tried)} settings tried in the small model on the six "
        "earlier days; the cheapest with at most 5 % late is played"
    )
    columns = ("target", "up delay", "down delay", "look back", "interval", "late", "replica s")
    table = Table(*columns, title=title, title_justify="left")
    good = [c for c in tried if c.violation_ratio <= 0.05] or list(tried)
    for candidate in sorted(good, key=lambda c: c.replica_seconds)[:5]:
        chosen = candidate.settings
        table.add_row(
            f"{chosen.target_ongoing_requests:g}",
            f"{chosen.upscale_delay_s:g} s",
            f"{chosen.downscale_delay_s:g} s",
            f"{chosen.look_back_period_s:g} s",
            f"{chosen.metrics_interval_s:g} s",
            f"{candidate.violation_ratio:.1%}",
            f"{candidate.replica_seconds:.0f}",
            style="bold" if candidate is best else None,
        )
    return table


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """summary.json."""
    path.write_text(json.dumps(summary, indent=2) + "\n")


def write_report(
    path: Path,
    played: Mapping[str, Played],
    results: Mapping[str, Result],
    ramps: Mapping[str, Sequence[RampScore]],
    the_day: Day,
    void: Sequence[str],
) -> None:
    """report.html, with everything it needs inside."""
    figures = [_figure(run, the_day) for run in played.values()]
    html = [
        figure.to_html(full_html=False, include_plotlyjs=place == 0)
        for place, figure in enumerate(figures)
    ]
    verdict = "".join(f'<p class="void">Void, not scored: {escape(why)}</p>' for why in void)
    tables = _html_table(
        ["", *results], [[label, *texts] for label, texts in _rows(results, the_day.script.ttft_s)]
    )
    rows = [
        [f"ramp {place + 1}", *(f"{score.margin_s:+.1f} s" for score in scores)]
        for place, scores in enumerate(zip(*ramps.values(), strict=True))
    ]
    tables += _html_table(["ready before it was needed", *ramps], rows)
    path.write_text(
        PAGE.format(verdict=verdict, tables=tables, figures="".join(html)), encoding="utf-8"
    )


def _rows(results: Mapping[str, Result], ttft_s: float) -> list[tuple[str, list[str]]]:
    formats = (
        ("requests", "requests", "{:,}"),
        ("errors", "errors", "{:,}"),
        (f"later than {ttft_s:g} s", "slo_violation_ratio", "{:.2%}"),
        ("TTFT p50", "ttft_p50_s", "{:.2f} s"),
        ("TTFT p95", "ttft_p95_s", "{:.2f} s"),
        ("TTFT p99", "ttft_p99_s", "{:.2f} s"),
        ("replica-seconds", "replica_seconds", "{:,.0f}"),
        ("scale changes", "scale_changes", "{:,}"),
    )
    return [
        (label, [text.format(getattr(result, name)) for result in results.values()])
        for label, name, text in formats
    ]


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{cells}</tr>{body}</table>"


def _figure(run: Played, the_day: Day) -> go.Figure:
    figure = make_subplots(
        rows=2,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.06,
        subplot_titles=(f"{run.policy}: load, in busy replicas", f"{run.policy}: replicas"),
    )
    times = np.arange(0.0, the_day.script.season_s, 0.5, dtype=np.float64)
    figure.add_scatter(
        x=times,
        y=scorer.busy_replicas(the_day, times),
        name="offered work",
        line={"color": LOAD},
        row=1,
        col=1,
    )
    seconds = [sight.at_s - run.zero_s for sight in run.sights]
    for name, colour, values in (
        ("requested", REQUESTED, [sight.target for sight in run.sights]),
        ("ready", READY, [sight.running for sight in run.sights]),
    ):
        line = {"color": colour, "shape": "hv"}
        figure.add_scatter(x=seconds, y=values, name=name, line=line, row=2, col=1)
    if run.decisions:
        _add_decisions(figure, run, the_day.script.capacity_rps)
    figure.update_xaxes(range=[-the_day.script.warm_up_s, the_day.script.season_s])
    figure.update_xaxes(title_text="second of the day", row=2, col=1)
    figure.update_layout(height=640, hovermode="x unified", template="plotly_white")
    return figure


def _add_decisions(figure: go.Figure, run: Played, carried: float) -> None:
    """What Leadtime forecast when, drawn where it was forecast for, and what it wanted."""
    told = [decision for decision in run.decisions if decision["ahead"]]
    opens_s = [d["at_s"] + d["ahead"]["horizon_s"] - run.zero_wall_s for d in told]
    for quantile, fill in (("0.5", None), ("0.95", "tonexty")):
        figure.add_scatter(
            x=opens_s,
            y=[d["ahead"]["quantiles"][quantile] / carried for d in told],
            name=f"forecast {float(quantile):.0%}",
            line={"color": f"rgba({BAND},0.9)", "width": 1},
            fill=fill,
            fillcolor=f"rgba({BAND},0.35)",
            row=1,
            col=1,
        )
    figure.add_scatter(
        x=[d["at_s"] - run.zero_wall_s for d in run.decisions],
        y=[d["wanted"] for d in run.decisions],
        name="wanted",
        line={"color": WANTED, "shape": "hv", "dash": "dot"},
        customdata=[[d["reason"], d["detail"]] for d in run.decisions],
        hovertemplate="%{y}, %{customdata[0]} %{customdata[1]}",
        row=2,
        col=1,
    )
