"""`make bench`: what a tick, the idle daemon and the command line cost, how fast a replay is.

Ten deployments of four replicas, 14 days of history, the forecast models in force; Prometheus
and the dashboard are imitated in another process. CPU is the process's own.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml
from rich.console import Console
from rich.table import Table

from controller.adapters.telemetry.logs import set_up_logs
from controller.core.forecasting import fitting
from controller.settings import load
from controller.wiring import build
from tests.benchmarks.speed import rival_and_ours

DEPLOYMENTS, REPLICAS = 10, 4
TICKS = 40
IDLE_S = 60.0
BIN = Path(sys.executable).parent


def main() -> int:
    """Print each figure beside its limit; 1 if one is missed."""
    with tempfile.TemporaryDirectory() as folder, _servers() as url:
        config = Path(folder) / "leadtime.yaml"
        config.write_text(yaml.safe_dump(_settings(url, Path(folder))))
        tick_ms = asyncio.run(_tick_ms(config))
        cpu_percent, rss_mb = _idle_daemon(config)
    rule, ours = rival_and_ours()
    rows = [
        (f"a tick with {DEPLOYMENTS} deployments, CPU", tick_ms, 100.0, "ms"),
        ("the idle daemon, CPU", cpu_percent, 3.0, "% of a core"),
        ("the idle daemon, memory (with its fitter)", rss_mb, 300.0, "MB RSS"),
        ("leadtime --help", _help_s(), 0.4, "s"),
    ]
    table = Table("what", "figure", "limit", "")
    for what, figure, limit, unit in rows:
        verdict = "ok" if figure <= limit else "MISSED"
        table.add_row(what, f"{figure:.3g} {unit}", f"{limit:g} {unit}", verdict)
    missed = any(figure > limit for _, figure, limit, _ in rows)
    for what, figure, limit in (
        ("a replay of 7 days, a compiled rule", rule, 50_000.0),
        ("the same, our planner with its fits", ours, 20_000.0),
    ):
        verdict = "ok" if figure >= limit else "MISSED"
        table.add_row(what, f"{figure:,.0f} x real time", f">= {limit:,.0f}", verdict)
        missed |= figure < limit
    Console().print(table)
    return int(missed)


@contextmanager
def _servers() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.benchmarks.servers", str(DEPLOYMENTS), str(REPLICAS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def _settings(url: str, folder: Path) -> dict[str, object]:
    return {
        "prometheus": {"url": url},
        "serve": {"url": url},
        "http": {"port": 0},
        "journal": {"path": str(folder / "leadtime.db")},
        "log": {"level": "warning"},
    }


async def _tick_ms(config: Path) -> float:
    """Median CPU of a tick of the whole daemon: reading, deciding, recording."""
    set_up_logs("json", "error")
    daemon = build(load(config))
    loop = daemon.loop
    loop.planners.update(await loop.makes.prepare(await loop.source.replicas()))
    for planner in loop.planners.values():
        job = planner.fit_due()
        if job is not None:
            planner.adopt(fitting.run(job))
    costs = []
    for _ in range(TICKS):
        began_s = time.process_time()
        await loop.tick()
        costs.append(time.process_time() - began_s)
    await daemon.close()
    return 1000 * statistics.median(costs)


def _idle_daemon(config: Path) -> tuple[float, float]:
    """CPU share and memory of `leadtime run` over a minute, its start left out."""
    process = subprocess.Popen([str(BIN / "leadtime"), "run", "--config", str(config)])
    try:
        watched = psutil.Process(process.pid)
        time.sleep(25)
        before, began_s = _cpu_s(watched), time.monotonic()
        time.sleep(IDLE_S)
        share = (_cpu_s(watched) - before) / (time.monotonic() - began_s)
        family = [watched, *watched.children(recursive=True)]
        return 100 * share, sum(member.memory_info().rss for member in family) / 1e6
    finally:
        process.terminate()
        process.wait(10)


def _cpu_s(process: psutil.Process) -> float:
    """Its own time, that of children which have ended, and of those which run."""
    running = process.children(recursive=True)
    return sum(process.cpu_times()[:4]) + sum(sum(child.cpu_times()[:2]) for child in running)


def _help_s() -> float:
    times = []
    for _ in range(5):
        began_s = time.perf_counter()
        subprocess.run([str(BIN / "leadtime"), "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - began_s)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
