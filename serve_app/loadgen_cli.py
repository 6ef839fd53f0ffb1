"""The command line of the load generator: `python -m serve_app.loadgen`."""

import argparse
import asyncio
import contextlib
import json
import math
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from serve_app.arrivals import Arrivals
from serve_app.load_results import LoadResult
from serve_app.loadgen import LoadPlayer, Progress, Target, watched
from serve_app.recipe import BadRecipe, read_recipe
from serve_app.trace_files import BadTrace, Selection, read_trace

STOPPED = 130


def main(argv: Sequence[str] | None = None) -> None:
    """Exit code 0 when all was played, 1 on bad input, 130 when stopped (results are saved)."""
    options = _parser().parse_args(argv)
    try:
        arrivals = _arrivals(options)
        if not len(arrivals):
            raise BadTrace("there is no request in the chosen part of the load")
        _take_precedence()
        code = _run(_play(options, arrivals))
    except (BadTrace, BadRecipe, OSError, Unreachable) as error:
        sys.exit(f"loadgen: {error}")
    sys.exit(code)


class Unreachable(RuntimeError):
    """The server did not tell its model."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m serve_app.loadgen",
        description="Play a trace or a recipe, open loop, against an OpenAI-compatible server.",
    )
    add = parser.add_argument
    add("--url", required=True, help="the server's root, e.g. http://127.0.0.1:8000")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--trace", type=Path, help="trace file, one row a request or a bin")
    source.add_argument("--recipe", type=Path, help="recipe file (JSON): rate, burst_cv, ...")
    add("--seed", type=int, required=True, help="same seed, same requests")
    add("--out", type=Path, required=True, help="CSV file for one row a request")
    add("--model", help="model name (default: the server's first)")
    add("--timeout", type=_positive, default=60.0, metavar="S", help="per request (default 60)")
    add("--mean-rps", type=_positive, metavar="R", help="scale the whole trace to this mean")
    add("--start", type=_not_negative, default=0.0, metavar="S", help="from this trace second")
    add("--end", type=_positive, metavar="S", help="to this trace second")
    add("--stretch", type=_positive, default=1.0, metavar="F", help="multiply the trace's time")
    add("--spread-ticks", type=_not_negative, default=0.0, metavar="S", help="undo ticks of S s")
    add("--start-at", type=_positive, metavar="T", help="time.monotonic of second 0")
    add(
        "--progress",
        choices=("line", "json", "none"),
        default="line",
        help="a line on stderr, or JSON lines on stdout",
    )
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def _arrivals(options: argparse.Namespace) -> Arrivals:
    rng = np.random.default_rng(options.seed)
    if options.recipe is not None:
        return read_recipe(options.recipe).draw(rng)
    selection = Selection(
        options.start, options.end, options.mean_rps, options.stretch, options.spread_ticks
    )
    return read_trace(options.trace, rng, selection)


async def _play(options: argparse.Namespace, arrivals: Arrivals) -> int:
    model = options.model or await _first_model(options.url)
    player = LoadPlayer(arrivals, Target(options.url, model, options.timeout))
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        player.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    show = {"line": _show_line, "json": _show_json, "none": None}[options.progress]
    result = await watched(player, options.start_at, show, 1.0)
    result.save_csv(options.out)
    _show_summary(options, result)
    return STOPPED if stopped else 0


async def _first_model(url: str) -> str:
    root = url.rstrip("/").removesuffix("/v1")
    timeout = aiohttp.ClientTimeout(total=10)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{root}/v1/models") as response,
        ):
            response.raise_for_status()
            return str((await response.json())["data"][0]["id"])
    except (aiohttp.ClientError, TimeoutError, LookupError, ValueError) as error:
        raise Unreachable(f"{root}/v1/models names no model ({error!r}); give --model") from error


def _take_precedence() -> None:
    """Be scheduled before the cluster beside us where that is allowed: lag is our fault only."""
    with contextlib.suppress(OSError):
        os.nice(-10)


def _run(playing: Coroutine[Any, Any, int]) -> int:
    """On uvloop where it is installed: a third less CPU a chunk (README)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(playing)
    return uvloop.run(playing)


def _show_line(progress: Progress) -> None:
    line = (
        f"{progress.at_s:6.0f}/{progress.span_s:.0f} s  {progress.sent}/{progress.total} sent  "
        f"{progress.sent_rps:5.1f}/s  {progress.open} open  {progress.errors} errors  "
        f"TTFT p50 {progress.ttft_p50_s:.2f} p95 {progress.ttft_p95_s:.2f} s  "
        f"lag max {progress.send_lag_max_s * 1e3:.0f} ms"
    )
    end = "\r" if sys.stderr.isatty() else "\n"
    if end == "\r" or round(progress.at_s) % 10 == 0:
        print(line, end=end, file=sys.stderr, flush=True)


def _show_json(progress: Progress) -> None:
    numbers = {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(progress).items()
    }
    print(json.dumps({"kind": "progress", **numbers}), flush=True)


def _show_summary(options: argparse.Namespace, result: LoadResult) -> None:
    summary = {"started_at_s": result.started_at_s, **result.summary().as_json()}
    if options.progress == "json":
        print(json.dumps({"kind": "summary", **summary}), flush=True)
    else:
        print(json.dumps(summary, indent=2), flush=True)
