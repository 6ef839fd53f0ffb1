"""`leadtime demo`: one compressed day twice, side by side."""

import importlib.metadata
import importlib.util
import platform
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from controller.demo import day, report, scorer
from controller.demo.cluster import DidNotStart
from controller.demo.measure import measured_script
from controller.demo.model import Candidate, best_native, past_of
from controller.demo.play import Played, Scene, play
from controller.demo.scorer import Result
from controller.demo.script import STANDIN, Script
from controller.replay.native import NativeSettings

VERSIONS = ("leadtime", "ray", "numpy", "scikit-learn")


def run_demo(seed: int, out: Path, engine: str = "standin") -> int:
    """Play the day of a seed under Serve's own autoscaler, then under Leadtime, on replicas that
    are the stand-in or, with `engine` "vllm", real engines, which are measured first.

    Returns 0 if the loop closed, 1 if it did not, 130 if interrupted. `out` receives
    summary.json and report.html.
    """
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="leadtime-demo-"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        script = STANDIN if engine == "standin" else _measured(folder, console)
        return _Demo(seed, script, out, folder, console).run()
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started has been ended")
        return 130
    except DidNotStart as error:
        console.print(str(error), style="red", markup=False)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(folder: Path, console: Console) -> Script:
    if importlib.util.find_spec("vllm") is None:
        raise DidNotStart("vLLM is not installed here; make demo-vllm sets it up")
    (folder / "measured").mkdir()
    with console.status("") as status:
        script = measured_script(folder / "measured", status.update)
    law = script.law
    console.print(
        f"an engine here: cold start {script.cold_start_s:.0f} s, {law.token_s * 1000:.1f} ms a "
        f"token alone, {law.speed(law.slots):.0%} of that speed with {law.slots} at once, "
        f"{script.capacity_rps:.1f} requests/s"
    )
    return script


def _interrupt(*_: object) -> None:
    """Any signal to end unwinds the stack, which ends what was started; a second one waits."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


class _Demo:
    def __init__(
        self, seed: int, script: Script, out: Path, folder: Path, console: Console
    ) -> None:
        self._seed = seed
        self._out = out
        self._folder = folder
        self._console = console
        self._day = day.make_day(seed, script)

    def run(self) -> int:
        history = [day.make_day(other, self._day.script) for other in day.history_seeds(self._seed)]
        with Progress(TextColumn("{task.description}"), BarColumn(), console=self._console) as bar:
            task = bar.add_task("choosing the opponent's settings", total=1.0)
            best, tried = best_native(history, lambda share: bar.update(task, completed=share))
        self._console.print(report.grid_table(best, tried))
        pasts = [past_of(earlier) for earlier in history]
        played = {
            "native": self._play("native", best.settings, []),
            "leadtime": self._play("leadtime", None, pasts),
        }
        return self._tell(played, best)

    def _play(self, policy: str, native: NativeSettings | None, pasts: Sequence[Any]) -> Played:
        folder = self._folder / policy
        folder.mkdir()
        with Live(console=self._console, refresh_per_second=2, transient=True) as live:

            def show(scene: Scene) -> None:
                live.update(_scene_table(scene, self._day.script.season_s))

            return play(self._day, folder, native, pasts, show)

    def _tell(self, played: Mapping[str, Played], best: Candidate) -> int:
        script = self._day.script
        results = {
            name: scorer.score_day(script, run.load, run.sights, run.zero_s)
            for name, run in played.items()
        }
        ramps = {
            name: scorer.score_ramps(self._day, run.sights, run.zero_s)
            for name, run in played.items()
        }
        lags = {name: float(np.nanpercentile(r.load.send_lag_s, 99)) for name, r in played.items()}
        void = [
            f"{name}: {why}"
            for name, run in played.items()
            for why in scorer.why_void(script, run.cpu_p95, lags[name], run.cold_starts_s)
        ]
        closed = _closed(script, played["leadtime"], results["leadtime"])
        summary = {
            "native": scorer.as_json(results["native"]),
            "leadtime": scorer.as_json(results["leadtime"]),
            "ramps": [asdict(score) for score in ramps["leadtime"]],
            "native_ramps": [asdict(score) for score in ramps["native"]],
            "native_settings": asdict(best.settings),
            "closed": closed,
            "alerts": list(played["leadtime"].alerts),
            "void": bool(void),
            "why_void": void,
            "seed": self._seed,
            "engine": script.engine["kind"],
            "law": asdict(script.law),
            "versions": _versions(),
            "host_cpu_p95": round(max(run.cpu_p95 for run in played.values()), 1),
            "send_lag_p99_ms": round(1000 * max(lags.values()), 2),
            "cold_starts_s": [round(s, 1) for run in played.values() for s in run.cold_starts_s],
        }
        self._out.mkdir(parents=True, exist_ok=True)
        report.write_summary(self._out / "summary.json", summary)
        page = self._out / "report.html"
        report.write_report(page, played, results, ramps, self._day, void)
        if void:
            self._console.print("This run measured the machine and is void:", style="bold red")
            for why in void:
                self._console.print(f"  {why}", style="red", markup=False)
        else:
            self._console.print(report.results_table(results, script.ttft_s))
            self._console.print(report.ramps_table(ramps))
        self._console.print(f"written: {self._out / 'summary.json'}, {page}")
        told = ", ".join(played["leadtime"].alerts) or "none"
        self._console.print(f"alerts under Leadtime: {told}")
        if not closed:
            self._console.print("the loop did not close", style="bold red")
        return 0 if closed else 1


def _closed(script: Script, run: Played, result: Result) -> bool:
    """Whether Leadtime's decisions became replicas: decisions applied in Serve, the forecast
    model in force, replicas taken and given back, and requests served."""
    applied = {decision["wanted"] for decision in run.decisions if decision["applied"]}
    modelled = any((d["ahead"] or {}).get("model") == "location_scale" for d in run.decisions)
    ready = [sight.running for sight in run.sights]
    moved = max(ready) >= min(ready) + script.least_move
    return len(applied) >= 2 and modelled and moved and result.errors < result.requests / 2


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in VERSIONS:
        found[name] = importlib.metadata.version(name)
    return found


def _scene_table(scene: Scene, season_s: float) -> Table:
    table = Table("policy", "phase", "req/s", "ready / requested", "open", "TTFT p95", "errors")
    load, sight = scene.load, scene.sight
    at = f" {scene.at_s:.0f} of {season_s:.0f} s" if scene.at_s > float("-inf") else ""
    late = load.get("ttft_p95_s")
    table.add_row(
        scene.policy,
        scene.phase + at,
        f"{load.get('sent_rps', 0.0):.1f}",
        "" if sight is None else f"{sight.running} / {sight.target}",
        f"{load.get('open', 0)}",
        "" if late is None else f"{late:.2f} s",
        f"{load.get('errors', 0)}",
    )
    return table
