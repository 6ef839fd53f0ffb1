"""Runs the bench: replica counts times loads, each load open loop, nothing assumed of the app."""

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from controller.adapters.prometheus.client import PrometheusClient, PrometheusError
from controller.adapters.serve.api import ServeApi
from controller.adapters.serve.view import View
from controller.bench.bottleneck import Evidence, Suspect, likely_bottleneck
from controller.bench.evidence import gather
from controller.bench.points import GOOD_LINEARITY, Point, Scaling, measured, scaling
from controller.bench.replicas import HeldReplicas, address
from controller.connections import prometheus_options, serve_api
from controller.core.types import DeploymentId
from controller.settings import Settings
from serve_app.load_results import LoadResult


class LoadFailed(RuntimeError):
    """The load could not be played; the message says why."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to measure. Rates and seconds are those of the engine that is stood for: with
    `time_scale` 8 a rate is offered at an eighth and a second lasts eight."""

    target: DeploymentId
    replicas: Sequence[int]
    rates_rps: Sequence[float]
    slo_ttft_s: float
    warm_up_s: float = 10.0
    measured_s: float = 30.0
    prompt_tokens: float = 512.0
    prompt_cv: float = 1.0
    output_tokens: float = 128.0
    output_cv: float = 0.8
    seed: int = 1
    url: str | None = None
    model: str | None = None
    time_scale: float = 1.0
    start_timeout_s: float = 900.0
    answer_timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Every point, what came of scaling, and the bottleneck where it came short."""

    order: Order
    points: tuple[Point, ...]
    rows: tuple[Scaling, ...]
    suspect: Suspect | None = None


Show = Callable[[str], None]


async def run_bench(settings: Settings, order: Order, show: Show) -> Measured:
    """Measure; the deployment is as before at the end. Raises ServeError, NotReady, LoadFailed."""
    api = serve_api(settings.serve)
    client = PrometheusClient(prometheus_options(settings.prometheus))
    try:
        host = urlsplit(settings.serve.url).hostname or "127.0.0.1"
        url = order.url or await address(api, host, order.target.application)
        points, evidence = await _all(settings, order, api, client, url, show)
    finally:
        await api.close()
        client.close()
    rows = scaling(points, order.slo_ttft_s)
    short = rows[-1].linearity < GOOD_LINEARITY
    suspect = likely_bottleneck(evidence) if short and evidence is not None else None
    return Measured(order, tuple(points), tuple(rows), suspect)


async def _all(
    settings: Settings,
    order: Order,
    api: ServeApi,
    client: PrometheusClient,
    url: str,
    show: Show,
) -> tuple[list[Point], Evidence | None]:
    """Every run; a larger load than one that was not carried tells nothing new and is left out."""
    points: list[Point] = []
    evidence: Evidence | None = None
    async with HeldReplicas(api, order.target) as held:
        for count in sorted(set(order.replicas)):
            show(f"{count} replicas: waiting until they run")
            view = await held.set(count, order.start_timeout_s)
            for rate in sorted(set(order.rates_rps)):
                point = await _one(order, url, count, rate)
                points.append(point)
                show(told(point))
                evidence = await _evidence(settings, order, client, view, point, show)
                if not point.carried:
                    break
    return points, evidence


async def _one(order: Order, url: str, replicas: int, rate_rps: float) -> Point:
    scale = order.time_scale
    start_s, end_s = order.warm_up_s * scale, (order.warm_up_s + order.measured_s) * scale
    with tempfile.TemporaryDirectory(prefix="leadtime-bench-") as folder:
        result = await _play(order, Path(folder), url, rate_rps / scale, end_s)
    point = measured(result, replicas, rate_rps / scale, start_s, end_s)
    return replace(
        point,
        offered_rps=rate_rps,
        arrived_rps=point.arrived_rps * scale,
        measured_s=point.measured_s / scale,
        completed_rps=point.completed_rps * scale,
        ttft_p50_s=point.ttft_p50_s / scale,
        ttft_p95_s=point.ttft_p95_s / scale,
        served_ttft_p95_s=point.served_ttft_p95_s / scale,
    )


async def _play(order: Order, folder: Path, url: str, rate_rps: float, span_s: float) -> LoadResult:
    """Play a constant load in a process of its own, so that nothing here makes it late."""
    recipe, out = folder / "recipe.json", folder / "requests.csv"
    recipe.write_text(
        json.dumps(
            {
                "rate": [[0, rate_rps], [span_s, rate_rps]],
                "prompt_mean": order.prompt_tokens,
                "prompt_cv": order.prompt_cv,
                "output_mean": order.output_tokens,
                "output_cv": order.output_cv,
            }
        )
    )
    command = [sys.executable, "-m", "serve_app.loadgen", "--url", url]
    command += ["--recipe", str(recipe), "--seed", str(order.seed), "--out", str(out)]
    command += ["--timeout", f"{order.answer_timeout_s * order.time_scale}", "--progress", "none"]
    command += ["--model", order.model] if order.model else []
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, said = await process.communicate()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise
    if process.returncode != 0:
        raise LoadFailed(said.decode(errors="replace").strip()[-1000:] or "no reason given")
    return LoadResult.read_csv(out)


async def _evidence(
    settings: Settings,
    order: Order,
    client: PrometheusClient,
    view: View,
    point: Point,
    show: Show,
) -> Evidence | None:
    """What the measured seconds showed in Prometheus; None, and said, where it does not answer."""
    window_s = order.measured_s * order.time_scale
    try:
        return await asyncio.to_thread(
            gather,
            client,
            settings.prometheus.selector,
            view,
            order.target,
            window_s,
            point.send_lag_p99_s,
        )
    except PrometheusError as error:
        show(f"no evidence on bottlenecks: {error}")
        return None


def told(point: Point) -> str:
    """A point in a line."""
    failed = f", {point.failed_ratio:.1%} failed" if point.failed_ratio > 0 else ""
    return (
        f"{point.replicas} replicas, {point.offered_rps:g} req/s offered: "
        f"{point.completed_rps:.1f} completed, TTFT p95 {point.ttft_p95_s:.2f} s{failed}"
    )
