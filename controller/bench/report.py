"""The bench for people (a table), for pipelines (JSON) and for a browser (one HTML file)."""

import json
from dataclasses import asdict
from html import escape
from math import isfinite
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from rich.console import Console
from rich.table import Table

from controller.bench.main import Measured
from controller.bench.points import GOOD_LINEARITY, Point, Scaling

COLOURS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#0891b2", "#65a30d")
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>Leadtime: bench</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;
color:#111;background:#fff}}</style><h1>{title}</h1><p>{note}</p><p>{verdict}</p>{figure}</html>"""


def show(made: Measured) -> None:
    """Print both tables and the verdict."""
    loads = Table(*("replicas", "offered req/s", "completed req/s", "TTFT p50", "TTFT p95"))
    loads.add_column("TTFT p95 of the served")
    loads.add_column("failed")
    for point in made.points:
        loads.add_row(*_load_cells(point))
    rows = Table("replicas", "most req/s", f"knee (p95 <= {made.order.slo_ttft_s:g} s)")
    rows.add_column("linearity")
    for row in made.rows:
        rows.add_row(*_scaling_cells(row))
    console = Console()
    console.print(loads)
    console.print(rows)
    if note(made):
        console.print(note(made))
    console.print(verdict(made), markup=False)


def note(made: Measured) -> str:
    """What the numbers are in, where that is not plain."""
    scale = made.order.time_scale
    if scale == 1.0:
        return ""
    return (
        f"The engine ran {scale:g} times slower than what it stands for: rates were offered at "
        f"1/{scale:g} and are shown times {scale:g}, times are shown divided by {scale:g}."
    )


def verdict(made: Measured) -> str:
    """How well it scales, and what is in the way."""
    last = made.rows[-1]
    if len(made.rows) < 2:
        return f"{last.replicas} replicas carry {last.throughput_rps:.1f} req/s"
    if not isfinite(last.linearity):
        return (
            f"the load did not fill {made.rows[0].replicas} replicas: offer more to see linearity"
        )
    least = "" if last.saturated else "at least "
    scales = f"{last.replicas} replicas over {made.rows[0].replicas}: {least}{last.linearity:.2f}"
    if last.linearity >= GOOD_LINEARITY:
        return f"{scales} of linear"
    if not last.saturated:
        return f"{scales} of linear: the load did not fill them, offer more"
    if made.suspect is None:
        return f"{scales} of linear; Prometheus gave no evidence on the bottleneck"
    found = made.suspect
    return f"{scales} of linear; likely bottleneck: {found.name} ({found.reason}). {found.fix}"


def write_json(made: Measured, path: Path) -> None:
    """Everything measured; what is not finite is null."""
    body = {
        "order": asdict(made.order),
        "points": [asdict(point) for point in made.points],
        "scaling": [asdict(row) for row in made.rows],
        "bottleneck": None if made.suspect is None else asdict(made.suspect),
        "verdict": verdict(made),
    }
    path.write_text(json.dumps(_finite(body), indent=2, allow_nan=False), encoding="utf-8")


def write_html(made: Measured, path: Path) -> None:
    """Throughput and TTFT p95 over the offered load, and throughput over replicas beside the
    straight line."""
    figure = make_subplots(
        rows=1, cols=3, subplot_titles=("completed req/s", "TTFT p95, s", "most req/s")
    )
    for place, row in enumerate(made.rows):
        here = [point for point in made.points if point.replicas == row.replicas]
        style = {"color": COLOURS[place % len(COLOURS)]}
        for column, values in (
            (1, [point.completed_rps for point in here]),
            (2, [p.ttft_p95_s if isfinite(p.ttft_p95_s) else None for p in here]),
        ):
            line = go.Scatter(
                x=[point.offered_rps for point in here],
                y=values,
                name=f"{row.replicas} replicas",
                mode="lines+markers",
                line=style,
                showlegend=column == 1,
            )
            figure.add_trace(line, row=1, col=column)
    counts = [row.replicas for row in made.rows]
    each = made.rows[0].throughput_rps / made.rows[0].replicas
    most = go.Scatter(x=counts, y=[row.throughput_rps for row in made.rows], name="measured")
    linear = go.Scatter(
        x=counts, y=[each * count for count in counts], name="linear", line={"dash": "dot"}
    )
    figure.add_trace(most, row=1, col=3)
    figure.add_trace(linear, row=1, col=3)
    figure.update_xaxes(title_text="offered req/s", row=1, col=1)
    figure.update_xaxes(title_text="offered req/s", row=1, col=2)
    figure.update_xaxes(title_text="replicas", dtick=1, row=1, col=3)
    figure.update_layout(height=460, template="plotly_white")
    page = PAGE.format(
        title=escape(f"Bench of {made.order.target}"),
        note=escape(note(made)),
        verdict=escape(verdict(made)),
        figure=figure.to_html(full_html=False, include_plotlyjs="inline"),
    )
    path.write_text(page, encoding="utf-8")


def _load_cells(point: Point) -> tuple[str, ...]:
    return (
        str(point.replicas),
        f"{point.offered_rps:g}",
        f"{point.completed_rps:.1f}",
        _seconds(point.ttft_p50_s),
        _seconds(point.ttft_p95_s),
        _seconds(point.served_ttft_p95_s),
        f"{point.failed_ratio:.1%}",
    )


def _scaling_cells(row: Scaling) -> tuple[str, ...]:
    least = "" if row.saturated else ">= "
    return (
        str(row.replicas),
        f"{least}{row.throughput_rps:.1f}",
        f"{row.knee_rps:g}" if isfinite(row.knee_rps) else "below the least offered",
        f"{least}{row.linearity:.2f}" if isfinite(row.linearity) else "not known",
    )


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if isfinite(value) else "never came"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
