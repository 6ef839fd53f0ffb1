"""Earlier days written into Prometheus's own storage, under the names that Ray gives."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from controller.demo.cluster import DidNotStart
from controller.demo.day import Floats
from controller.demo.model import Past

STARTS = 40
START_BOUNDS_S = (5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 240.0)
"""Ray's own bounds for starts of replicas."""
COMMON = 'SessionName="earlier",NodeAddress="10.0.0.1",application="{app}",deployment="{dep}"'


def write_blocks(
    data: Path,
    pasts: Sequence[Past],
    ends_s: float,
    until_s: float,
    target: tuple[str, str],
    cold_start_s: float = 12.0,
) -> None:
    """Write days that end at `ends_s` as blocks below `data`, nothing later than `until_s`; in
    them replicas took `cold_start_s` to start, as far as a histogram's buckets tell.

    Each day becomes the counters and gauges of one router and of its replicas, a sample a
    second. Raises DidNotStart when promtool refuses.
    """
    common = COMMON.format(app=target[0], dep=target[1])
    times, arrivals, completions, running = _timeline(pasts, ends_s, until_s)
    router = f'ray_serve_num_router_requests_total{{{common},handle="earlier"}}'
    lines = ["# TYPE ray_serve_num_router_requests counter"]
    lines += _samples(router, times, arrivals)
    lines.append("# TYPE ray_serve_deployment_request_counter counter")
    replicas = running.shape[1]
    for replica in range(replicas):
        labels = f'{{{common},replica="earlier{replica}"}}'
        done = completions / replicas
        lines += _samples(f"ray_serve_deployment_request_counter_total{labels}", times, done)
    lines.append("# TYPE ray_serve_replica_processing_queries gauge")
    for replica in range(replicas):
        labels = f'{{{common},replica="earlier{replica}"}}'
        held = running[:, replica]
        lines += _samples(f"ray_serve_replica_processing_queries{labels}", times, held)
    lines.append("# TYPE ray_serve_replica_startup_latency_ms histogram")
    for bound, begun in starts(cold_start_s):
        series = f'ray_serve_replica_startup_latency_ms_bucket{{{common},le="{bound}"}}'
        lines += _samples(series, times[-1:], np.array([float(begun)]))
    lines.append("# EOF\n")
    data.mkdir(parents=True, exist_ok=True)
    text = data.parent / "earlier-days.txt"
    text.write_text("\n".join(lines))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise DidNotStart(f"promtool wrote no history: {made.stderr[-1000:]}")


def starts(cold_start_s: float) -> list[tuple[str, int]]:
    """A start-up histogram, its bounds in milliseconds as Ray writes them.

    12 s is between the bounds 10000.0 and 20000.0: 0 starts up to the first, all 40 from then on.
    """
    bounds = [
        (str(bound_s * 1000), STARTS * (cold_start_s <= bound_s)) for bound_s in START_BOUNDS_S
    ]
    return [*bounds, ("+Inf", STARTS)]


def _timeline(
    pasts: Sequence[Past], ends_s: float, until_s: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Times, cumulative arrivals and completions, and requests running, all days in a row."""
    count = sum(len(past.arrivals) for past in pasts)
    times: Floats = ends_s - count + 1.0 + np.arange(count, dtype=np.float64)
    ended = [np.array([past.arrivals[-1], past.completions[-1]]) for past in pasts]
    before = np.concatenate([np.zeros((1, 2)), np.cumsum(ended, axis=0)])
    arrivals = np.concatenate([p.arrivals + b[0] for p, b in zip(pasts, before, strict=False)])
    completed = np.concatenate([p.completions + b[1] for p, b in zip(pasts, before, strict=False)])
    running = np.concatenate([past.running for past in pasts])
    kept = times <= until_s
    return times[kept], arrivals[kept], completed[kept], running[kept]


def _samples(series: str, times: Floats, values: Floats) -> list[str]:
    return [f"{series} {value:.6f} {at_s:.3f}" for at_s, value in zip(times, values, strict=True)]
