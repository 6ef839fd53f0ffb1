"""What keeps more replicas from carrying more: named from what was seen under full load."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

HOT = 1.5
BUSY_NODE = 0.85
BUSY_PROCESS = 0.85
FULL_KV_CACHE = 0.9
FULL_SLOTS = 0.85
WAITING = 1.0
LATE_SENDER_S = 0.1


@dataclass(frozen=True, slots=True)
class Evidence:
    """Means over the measured seconds of the fullest run with the most replicas.

    `ongoing` requests by replica; `queued` requests in front of the deployment, `outer_queued`
    in front of each deployment on the way to it; `slots` of a replica, None if unknown;
    `node_busy_ratio` by node, `head` which of them is the head; `proxy_busy_ratio` and
    `outer_busy_ratio` in cores of the busiest proxy and of the busiest replica of each outer
    deployment; `kv_cache_ratio` of the fullest replica.
    """

    ongoing: Mapping[str, float] = field(default_factory=dict)
    queued: float = 0.0
    outer_queued: Mapping[str, float] = field(default_factory=dict)
    slots: float | None = None
    node_busy_ratio: Mapping[str, float] = field(default_factory=dict)
    head: str = ""
    proxy_busy_ratio: float | None = None
    outer_busy_ratio: Mapping[str, float] = field(default_factory=dict)
    kv_cache_ratio: float | None = None
    send_lag_p99_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Suspect:
    """The likely bottleneck: its name, what speaks for it, and what to try."""

    name: str
    reason: str
    fix: str


def load_generator(seen: Evidence) -> Suspect | None:
    """The load itself came late."""
    if seen.send_lag_p99_s < LATE_SENDER_S:
        return None
    reason = f"the load generator sent 1 % of requests more than {seen.send_lag_p99_s:.2f} s late"
    return Suspect("load generator", reason, "run it on another machine than the cluster")


def full_outer_stage(seen: Evidence) -> Suspect | None:
    """Requests wait in front of a deployment on the way."""
    name = max(seen.outer_queued, key=lambda stage: seen.outer_queued[stage], default=None)
    if name is None or seen.outer_queued[name] < WAITING:
        return None
    reason = f"{seen.outer_queued[name]:.0f} requests wait in front of {name}"
    return Suspect(f"{name} is full", reason, "raise its max_ongoing_requests or its replicas")


def hot_replica(seen: Evidence) -> Suspect | None:
    """One replica has much more to do than the others."""
    if len(seen.ongoing) < 2:
        return None
    mean = sum(seen.ongoing.values()) / len(seen.ongoing)
    hottest = max(seen.ongoing, key=lambda replica: seen.ongoing[replica])
    if mean <= 0 or seen.ongoing[hottest] < HOT * mean:
        return None
    reason = f"{hottest} runs {seen.ongoing[hottest]:.1f} requests, the mean is {mean:.1f}"
    fix = "look for sticky routing, a slow node, or one long stream; compare replica by replica"
    return Suspect("one hot replica", reason, fix)


def busy_proxy(seen: Evidence) -> Suspect | None:
    """A proxy, which is one thread, has its core."""
    if (seen.proxy_busy_ratio or 0.0) < BUSY_PROCESS:
        return None
    reason = f"the busiest proxy uses {seen.proxy_busy_ratio:.0%} of a core"
    fix = "proxy_location: EveryNode behind a load balancer, or RAY_SERVE_ENABLE_HA_PROXY=1"
    return Suspect("proxy", reason, fix)


def busy_outer_stage(seen: Evidence) -> Suspect | None:
    """A replica of a deployment on the way, which is one thread, has its core."""
    name = max(seen.outer_busy_ratio, key=lambda stage: seen.outer_busy_ratio[stage], default=None)
    if name is None or seen.outer_busy_ratio[name] < BUSY_PROCESS:
        return None
    reason = f"a replica of {name} uses {seen.outer_busy_ratio[name]:.0%} of a core"
    return Suspect(f"CPU of {name}", reason, "give it more replicas, or less to do per token")


def busy_node(seen: Evidence) -> Suspect | None:
    """A node has no CPU left."""
    name = max(seen.node_busy_ratio, key=lambda node: seen.node_busy_ratio[node], default=None)
    if name is None or seen.node_busy_ratio[name] < BUSY_NODE:
        return None
    which = "head CPU" if name == seen.head else f"CPU of node {name}"
    reason = f"{name} is {seen.node_busy_ratio[name]:.0%} busy"
    return Suspect(which, reason, "keep replicas off the head (num_cpus: 0 there), or add cores")


def full_kv_cache(seen: Evidence) -> Suspect | None:
    """An engine has no room for more tokens."""
    if (seen.kv_cache_ratio or 0.0) < FULL_KV_CACHE:
        return None
    reason = f"a KV cache is {seen.kv_cache_ratio:.0%} full"
    return Suspect("KV cache", reason, "more GPU memory, shorter contexts, or fewer max_num_seqs")


def slow_router(seen: Evidence) -> Suspect | None:
    """Requests wait although replicas have free slots."""
    if not seen.slots or not seen.ongoing or seen.queued < WAITING:
        return None
    used = sum(seen.ongoing.values()) / (seen.slots * len(seen.ongoing))
    if used >= FULL_SLOTS:
        return None
    reason = f"{seen.queued:.0f} requests wait while {1 - used:.0%} of the slots are free"
    fix = "lower max_backoff_s in request_router_config, or add ingress replicas"
    return Suspect("router", reason, fix)


SUSPECTS: tuple[Callable[[Evidence], Suspect | None], ...] = (
    load_generator,
    full_outer_stage,
    hot_replica,
    busy_proxy,
    busy_outer_stage,
    busy_node,
    full_kv_cache,
    slow_router,
)


def likely_bottleneck(seen: Evidence) -> Suspect:
    """The first suspect that the evidence speaks against, nearest to the client first."""
    for suspect in SUSPECTS:
        found = suspect(seen)
        if found is not None:
            return found
    fix = "watch GPU use, network and storage while the bench runs"
    return Suspect("unknown", "no metric stands out", fix)
