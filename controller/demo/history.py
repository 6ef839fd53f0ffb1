"""Earlier days written into Prometheus's own storage, under the names that Ray gives."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from controller.demo import day
from controller.demo.cluster import DidNotStart
from controller.demo.model import PAST_REPLICAS, Past

COMMON = 'SessionName="earlier",NodeAddress="10.0.0.1",application="{app}",deployment="{dep}"'


def write_blocks(
    data: Path,
    pasts: Sequence[Past],
    ends_s: float,
    until_s: float,
    target: tuple[str, str],
) -> None:
    """Write days that end at `ends_s` as blocks below `data`, nothing later than `until_s`.

    Each day becomes the counters and gauges of one router and of `PAST_REPLICAS` replicas, a
    sample a second. Raises DidNotStart when promtool refuses.
    """
    common = COMMON.format(app=target[0], dep=target[1])
    arrivals, completions, running = [], [], []
    arrived = completed = 0.0
    for place, past in enumerate(pasts):
        begins_s = ends_s - (len(pasts) - place) * day.SEASON_S
        for second in range(len(past.arrivals)):
            at_s = begins_s + second + 1
            if at_s > until_s:
                break
            arrivals.append(f"{arrived + past.arrivals[second]:.0f} {at_s:.3f}")
            completions.append((completed + past.completions[second], at_s))
            running.append((past.running[second], at_s))
        arrived += float(past.arrivals[-1])
        completed += float(past.completions[-1])
    lines = ["# TYPE ray_serve_num_router_requests counter"]
    router = f'ray_serve_num_router_requests_total{{{common},handle="earlier"}}'
    lines += [f"{router} {sample}" for sample in arrivals]
    for kind, name, samples in (
        ("counter", "ray_serve_deployment_request_counter", completions),
        ("gauge", "ray_serve_replica_processing_queries", running),
    ):
        lines.append(f"# TYPE {name} {kind}")
        suffix = "_total" if kind == "counter" else ""
        for replica in range(PAST_REPLICAS):
            series = f'{name}{suffix}{{{common},replica="earlier{replica}"}}'
            lines += [f"{series} {v / PAST_REPLICAS:.6f} {at_s:.3f}" for v, at_s in samples]
    lines.append("# EOF\n")
    data.mkdir(parents=True, exist_ok=True)
    text = data.parent / "earlier-days.txt"
    text.write_text("\n".join(lines))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DidNotStart(f"promtool wrote no history: {done.stderr[-1000:]}")
