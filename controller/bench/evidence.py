"""Reads from Prometheus what the bottleneck of a run is judged by."""

from collections import defaultdict
from collections.abc import Mapping

from controller.adapters.prometheus import names
from controller.adapters.prometheus.client import PrometheusClient
from controller.adapters.prometheus.usage import NODE_CPU, PROCESS_CPU, Mean, means
from controller.adapters.serve.view import View
from controller.bench.bottleneck import Evidence
from controller.core.types import DeploymentId

PROXY = "ray::ProxyActor"
REPLICA = "ray::ServeReplica"


def gather(
    client: PrometheusClient,
    labels: Mapping[str, str],
    view: View,
    target: DeploymentId,
    window_s: float,
    send_lag_p99_s: float,
) -> Evidence:
    """What the last `window_s` showed. Raises PrometheusError."""

    def read(name: str) -> list[Mean]:
        return means(client, labels, name, window_s)

    members = {member.id for member in view.deployments[target].members}
    queued: dict[DeploymentId, float] = defaultdict(float)
    for mean in read(names.QUEUED):
        queued[_deployment(mean)] += mean.value
    outer = view.callers(target)
    processes = read(PROCESS_CPU)
    nodes = read(NODE_CPU)
    kv = [m.value for m in read(names.KV_CACHE) if m.labels.get("ReplicaId") in members]
    limit = view.deployments[target].config.get("max_ongoing_requests")
    return Evidence(
        ongoing={
            mean.labels["replica"]: mean.value
            for mean in read(names.ONGOING)
            if mean.labels.get("replica") in members
        },
        queued=queued.get(target, 0.0),
        outer_queued={str(stage): queued.get(stage, 0.0) for stage in outer},
        slots=float(limit) if limit else None,
        node_busy_ratio={m.labels.get("ip", ""): m.value / 100 for m in nodes},
        head=next((m.labels["ip"] for m in nodes if m.labels.get("IsHeadNode") == "true"), ""),
        proxy_busy_ratio=_busiest(processes, PROXY),
        outer_busy_ratio={
            str(stage): busy
            for stage in outer
            if (busy := _busiest(processes, ":".join((REPLICA, *stage)))) is not None
        },
        kv_cache_ratio=max(kv, default=None),
        send_lag_p99_s=send_lag_p99_s,
    )


def _busiest(processes: list[Mean], component: str) -> float | None:
    """Cores of the busiest process of a component. Ray names it after the method that runs
    (`ray::ProxyActor.receive_asgi_messages`), so that a process has several series."""
    by_process: dict[tuple[str, str], list[float]] = defaultdict(list)
    for mean in processes:
        name = mean.labels.get("Component", "")
        if name == component or name.startswith(component + "."):
            by_process[mean.labels.get("ip", ""), mean.labels.get("pid", "")].append(mean.value)
    busy = (sum(values) / len(values) / 100 for values in by_process.values())
    return max(busy, default=None)


def _deployment(mean: Mean) -> DeploymentId:
    return DeploymentId(mean.labels.get("application", ""), mean.labels.get("deployment", ""))
