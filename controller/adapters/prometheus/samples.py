"""Series of an answer, sorted to the deployments and replicas they speak of."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite

from controller.adapters.prometheus import names
from controller.adapters.prometheus.client import Series
from controller.core.types import DeploymentId, Replicas, Sample

# Where a series was scraped from is no part of what it counts.
NOT_IDENTITY = frozenset({"__name__", "job", "instance"})

Samples = dict[str, Sample]
Fields = dict[str, Samples]

SERVE_FIELDS = {
    names.ARRIVALS: "arrivals",
    names.COMPLETIONS: "completions",
    names.ERRORS: "errors",
    names.QUEUED: "queued",
    names.ONGOING: "ongoing",
}
ENGINE_FIELDS = {
    names.WAITING: "waiting",
    names.KV_CACHE: "kv_cache_ratio",
    names.PROMPT_TOKENS: "prompt_tokens",
    names.OUTPUT_TOKENS: "output_tokens",
    names.PREEMPTIONS: "preemptions",
}
ENGINE_COUNTERS = frozenset({"prompt_tokens", "output_tokens", "preemptions"})


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its node reports it: shares of compute and of memory in use."""

    node: str
    gpu: str
    utilization_ratio: float | None
    memory_ratio: float | None


def latest(series: Series) -> Sample:
    """The last sample of a series, raw (`values`) or evaluated (`value`)."""
    at_s, value = series["values"][-1] if "values" in series else series["value"]
    if not isfinite(float(at_s)):
        raise ValueError(f"a sample at {at_s}")
    return Sample(float(value), float(at_s))


def checked(answer: Iterable[Series]) -> list[Series]:
    """The same series, each with a name and a sample; raises KeyError or ValueError if not."""
    kept = list(answer)
    for series in kept:
        names.plain(series["metric"]["__name__"])
        latest(series)
    return kept


def by_deployment(answer: Iterable[Series]) -> dict[DeploymentId, Fields]:
    """Serve's own series; those of replicas are keyed by replica id. What is counted for a whole
    application is given for a deployment without a name."""
    sorted_out: dict[DeploymentId, Fields] = defaultdict(lambda: defaultdict(dict))
    for series in answer:
        labels = series["metric"]
        field = SERVE_FIELDS[names.plain(labels["__name__"])]
        target = DeploymentId(labels.get("application", ""), labels.get("deployment", ""))
        key = labels["replica"] if field == "ongoing" else _identity(labels)
        sorted_out[target][field][key] = latest(series)
    return sorted_out


def calls_by_actor(answer: Iterable[Series]) -> dict[str, dict[DeploymentId, Samples]]:
    """What each actor called (a proxy, or a replica): arrivals at the deployment called."""
    sorted_out: dict[str, dict[DeploymentId, Samples]] = defaultdict(lambda: defaultdict(dict))
    for series in answer:
        labels = series["metric"]
        if names.plain(labels["__name__"]) == names.ARRIVALS and "actor_id" in labels:
            target = DeploymentId(labels.get("application", ""), labels.get("deployment", ""))
            sorted_out[labels["actor_id"]][target][_identity(labels)] = latest(series)
    return sorted_out


def by_replica(
    answer: Iterable[Series], owners: Mapping[str, DeploymentId]
) -> dict[DeploymentId, Fields]:
    """The engines' series, which name a replica and no deployment; unknown replicas' are left
    out. An engine per replica is the rule; several are summed (gauges) or kept apart."""
    sorted_out: dict[DeploymentId, Fields] = defaultdict(lambda: defaultdict(dict))
    for series in answer:
        labels = series["metric"]
        target = owners.get(labels.get("ReplicaId", ""))
        if target is None:
            continue
        field = ENGINE_FIELDS[names.plain(labels["__name__"])]
        counter = field in ENGINE_COUNTERS
        key = _identity(labels) if counter else labels["ReplicaId"]
        samples, sample = sorted_out[target][field], latest(series)
        if key in samples and field == "waiting":
            sample = Sample(samples[key].value + sample.value, min(samples[key].at_s, sample.at_s))
        elif key in samples:
            sample = max(samples[key], sample, key=lambda s: s.value)
        samples[key] = sample
    return sorted_out


def histograms(
    answer: Iterable[Series], owner: Callable[[Mapping[str, str]], DeploymentId | None]
) -> dict[DeploymentId, dict[float, float]]:
    """Cumulative counts by upper bound, summed over the series that `owner` gives to one
    deployment."""
    counts: dict[DeploymentId, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for series in answer:
        target = owner(series["metric"])
        if target is not None:
            bound = series["metric"]["le"]
            counts[target][inf if bound == "+Inf" else float(bound)] += latest(series).value
    return counts


def gpu_of_replicas(answer: Iterable[Series], replicas: Replicas | None) -> Samples:
    """GPU use of each replica's own process (a share), found by node address and pid; a
    replica on several GPUs counts with its fullest."""
    owners = {(m.node_ip, str(m.pid)): m.id for m in replicas.members} if replicas else {}
    found: Samples = {}
    for series in answer:
        labels = series["metric"]
        if labels["__name__"] != names.GPU_OF_PROCESS:
            continue
        owner = owners.get((labels.get("ip", ""), labels.get("pid", "")))
        if owner is not None:
            sample = latest(series)
            share = Sample(sample.value / 100, sample.at_s)
            found[owner] = max(found.get(owner, share), share, key=lambda s: s.value)
    return found


def gpus(answer: Iterable[Series]) -> tuple[Gpu, ...]:
    """Every GPU that a node or, where Ray says nothing, the DCGM exporter reports."""
    ray: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    dcgm: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for series in answer:
        labels = series["metric"]
        name = labels["__name__"]
        if name.startswith("DCGM_"):
            dcgm[labels.get("Hostname", ""), labels.get("gpu", "")][name] = latest(series).value
        elif name != names.GPU_OF_PROCESS:
            ray[labels.get("ip", ""), labels.get("GpuIndex", "")][name] = latest(series).value
    if ray:
        of_ray = (names.GPU_OF_NODE, names.GPU_MEMORY_USED, names.GPU_MEMORY_FREE)
        return tuple(_gpu(*where, values, *of_ray) for where, values in sorted(ray.items()))
    of_dcgm = (names.DCGM_UTILIZATION, names.DCGM_MEMORY_USED, names.DCGM_MEMORY_FREE)
    return tuple(_gpu(*where, values, *of_dcgm) for where, values in sorted(dcgm.items()))


def _gpu(node: str, gpu: str, values: Mapping[str, float], busy: str, used: str, free: str) -> Gpu:
    whole = values.get(used, 0.0) + values.get(free, 0.0)
    return Gpu(
        node,
        gpu,
        values[busy] / 100 if busy in values else None,
        values[used] / whole if used in values and free in values and whole > 0 else None,
    )


def _identity(labels: Mapping[str, str]) -> str:
    return "\x1f".join(
        f"{name}={labels[name]}" for name in sorted(labels) if name not in NOT_IDENTITY
    )
