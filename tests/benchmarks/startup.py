"""`make bench-startup`: one hour of mooncake's conversations, starts of 30 to 300 s.

A planner that reacts falls off a cliff where a start takes longer than its patience: Dynamo's own
sweep puts it at 100-120 s on such a trace (docs/dynosim/planner-benchmarking.md). The hour has no
yesterday, so ours plans with what it learns on the way.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from rich.console import Console
from rich.table import Table

from controller.replay.cache import FOLDER, Cache
from controller.replay.compare import Task, do
from controller.replay.frontier import cheapest_within
from controller.replay.plant import ColdStart, PlantSettings
from controller.replay.rivals.registry import RIVALS
from controller.replay.runs import OURS, Run, play_ours, play_rival
from controller.replay.scenario import Scenario, scale, split
from controller.replay.trace import TraceError, read
from tests.benchmarks.decide import TRACES

STARTS_S = (30.0, 45.0, 60.0, 90.0, 120.0, 150.0, 180.0, 210.0, 240.0, 300.0)
NO_CLIFF_UP_TO_S = 240.0
CLIFF = 0.02
"""A cliff: this many more of the requests are late than at the start time before."""
TRACE = "mooncake_conversation.csv.gz"
REPLICAS, CAP, WARM_UP_S = 6.0, 24, 600.0
PREFILL_TOKENS_PER_S = 60_000.0
"""Prompts are 12,000 tokens long on average and up to 120,000: within 2 s only if so fast."""
OTHERS = ("dynamo", "ray", "hpa", "kpa")


def scenario(folder: Path, start_s: float) -> Scenario:
    """The hour, its first ten minutes only learned from."""
    settings = PlantSettings(
        prefill_tokens_per_s=PREFILL_TOKENS_PER_S, cap=CAP, cold_start=ColdStart(start_s)
    )
    trace, replicas = scale(TRACE.split(".")[0], read(folder / TRACE), REPLICAS, settings)
    return Scenario(trace.name, trace, split(trace, WARM_UP_S), settings, mean_replicas=replicas)


def sweep(folder: Path, cache: Cache) -> dict[str, list[Run]]:
    """A run a start time: ours, and rivals tuned in hindsight for the fastest start."""
    scenarios = [scenario(folder, start_s) for start_s in STARTS_S]
    runs = {OURS: [play_ours(one, cache).run for one in scenarios]}
    for name in OTHERS:
        tried = do(Task(scenarios[0], name, RIVALS[name], cache, quick=True))
        best = cheapest_within(tried, scenarios[0].budget) or min(
            tried, key=lambda run: run.violation_ratio
        )
        runs[name] = [
            play_rival(one, RIVALS[name], dict(best.params), cache).run for one in scenarios
        ]
    return runs


def cliff_at_s(runs: Sequence[Run]) -> float | None:
    """The first start time at which far more requests are late than at the one before."""
    late = [run.violation_ratio for run in runs]
    for place in range(1, len(late)):
        if late[place] - late[place - 1] > CLIFF:
            return STARTS_S[place]
    return None


def table(runs: dict[str, list[Run]]) -> Table:
    shown = Table(title=f"{TRACE.split('.')[0]}: late, GPU-hours by start-up time")
    shown.add_column("policy")
    for start_s in STARTS_S:
        shown.add_column(f"{start_s:g} s", justify="right")
    shown.add_column("cliff")
    for policy, row in runs.items():
        cells = [f"{run.violation_ratio:.1%}\n{run.gpu_hours:.1f}" for run in row]
        at_s = cliff_at_s(row)
        shown.add_row(policy, *cells, "none" if at_s is None else f"{at_s:g} s")
    return shown


def plot(runs: dict[str, list[Run]]) -> go.Figure:
    """Late share, 99 % time to first token and GPU-hours against the start-up time."""
    titles = ("late requests", "99 % of first tokens within, s", "GPU-hours")
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, subplot_titles=titles)
    for policy, row in runs.items():
        late = [run.violation_ratio for run in row]
        for place, values in enumerate(
            (late, [run.ttft_p99_s for run in row], [run.gpu_hours for run in row]), start=1
        ):
            line = go.Scatter(
                x=STARTS_S, y=values, name=policy, legendgroup=policy, showlegend=place == 1
            )
            figure.add_trace(line, row=place, col=1)
    figure.update_yaxes(tickformat=".1%", row=1, col=1)
    figure.update_yaxes(type="log", row=2, col=1)
    figure.update_xaxes(title="start-up time, s", row=3, col=1)
    figure.update_layout(height=800, template="plotly_white", hovermode="x unified")
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the sweep and write the plot; 1 if ours has a cliff, 2 without the trace."""
    parser = argparse.ArgumentParser(prog="bench-startup", description=__doc__)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--cache", type=Path, default=FOLDER)
    parser.add_argument("--html", type=Path, default=Path("bench-out/startup.html"))
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 140)
    try:
        runs = sweep(options.traces, Cache(options.cache))
    except (TraceError, OSError) as error:
        console.print(f"bench-startup: {error}", style="red", markup=False)
        return 2
    console.print(table(runs))
    options.html.parent.mkdir(parents=True, exist_ok=True)
    plot(runs).write_html(options.html)
    console.print(f"plot: {options.html}")
    at_s = cliff_at_s(runs[OURS])
    return int(at_s is not None and at_s <= NO_CLIFF_UP_TO_S)


if __name__ == "__main__":
    sys.exit(main())
