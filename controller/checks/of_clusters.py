"""Rules on the whole: the answers themselves, Ray's nodes, how fresh the signals are."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from controller.checks.findings import Inspection, Severity, Subject
from controller.core.budget import room

Located = tuple[Severity, str, str, str]
ClusterRule = Callable[[Inspection], Iterator[Located]]

OLD_S = 20.0
"""Seconds from an arrival to the decision that counts it, above which a rise is seen late."""
SLACK = 1.5


def unanswered(seen: Inspection) -> Iterator[Located]:
    """A question that got no answer, or one that cannot be used."""
    for where, reason, fix in seen.failures:
        yield "error", where, reason, fix


def serve_answers(seen: Inspection) -> Iterator[Located]:
    """Which Ray answers."""
    if seen.version is not None:
        yield "info", f"serve.url {seen.serve_url}", f"Ray {seen.version} answers", ""


def prometheus_answers(seen: Inspection) -> Iterator[Located]:
    """Whether the selected series may be added up."""
    where = f"prometheus.url {seen.prometheus_url}"
    if seen.ambiguities == ():
        yield "info", where, "answers, and one cluster matches", ""
    for problem in seen.ambiguities or ():
        yield "error", where, problem, "prometheus.selector"


def nothing_to_scale(seen: Inspection) -> Iterator[Located]:
    """No deployment that could be scaled."""
    if seen.version is None or seen.scaled or seen.missing:
        return
    fix = "deploy one with autoscaling_config or external_scaler_enabled"
    yield "error", f"serve.url {seen.serve_url}", "no deployment that could be scaled", fix


def not_deployed(seen: Inspection) -> Iterator[Located]:
    """A deployment of the settings that Serve does not have."""
    for target in seen.missing:
        fix = "check application and deployment under deployments:"
        yield "error", str(target), "is not deployed", fix


def autoscaling_in_args(seen: Inspection) -> Iterator[Located]:
    """Autoscaling in an application's `args`: changing it there replaces every replica."""
    for application, arguments in seen.arguments.items():
        for path in _paths(arguments, "args"):
            listed = [
                bool(subject.submitted.get("autoscaling_config"))
                for subject in seen.subjects
                if subject.deployment.target.application == application and subject.scaling
            ]
            reason = (
                f"autoscaling stands in {path}: the first change of the floor would rebuild the "
                "application and replace every replica"
            )
            fix = "write the effective autoscaling_config under deployments: as well, once"
            yield "warning" if listed and all(listed) else "error", application, reason, fix


def gang_without_node(seen: Inspection) -> Iterator[Located]:
    """Replicas of several GPUs that no node, or not even the whole cluster, holds."""
    if not seen.nodes:
        return
    for subject in seen.subjects:
        problem = _misfit(subject, seen)
        if problem is not None:
            yield problem


def mixed_ray_versions(seen: Inspection) -> Iterator[Located]:
    """Nodes that run another Ray than the head: replicas fail there in ways nobody foresees."""
    found: dict[str, list[str]] = {}
    for node, version in sorted((seen.versions or {}).items()):
        found.setdefault(version, []).append(node)
    if seen.version is not None and found:
        found.setdefault(seen.version, [])
    if len(found) > 1:
        told = "; ".join(f"{v} on {', '.join(at) or 'the head'}" for v, at in sorted(found.items()))
        fix = "build every node group from one image, and redeploy"
        yield "error", f"serve.url {seen.serve_url}", f"Ray's versions differ: {told}", fix


def open_dashboard(seen: Inspection) -> Iterator[Located]:
    """Ray's dashboard without a token where others than this machine reach it."""
    for url in seen.open_urls:
        if _is_loopback(urlsplit(url).hostname or ""):
            continue
        reason = (
            f"Ray's dashboard answers without a token at {url}: whoever reaches it can run code "
            "on the cluster and delete applications"
        )
        fix = "set RAY_AUTH_MODE=token on every node and serve.token_file here"
        yield "error", f"serve.url {seen.serve_url}", reason, fix


def late_signals(seen: Inspection) -> Iterator[Located]:
    """Ray's report interval, the scrape interval and the time that rates are taken over, in
    all: how long ago a rise may have begun that nobody sees yet."""
    if seen.cadence is None:
        return
    scraped_s, reported_s = seen.cadence.scraped_s, seen.cadence.reported_s
    window_s = max(seen.tick_s, scraped_s)
    age_s = reported_s + scraped_s + window_s
    where = f"prometheus.url {seen.prometheus_url}"
    told = (
        f"signals are up to {age_s:.0f} s old (Ray reports every {reported_s:.3g} s at most, "
        f"scrapes every {scraped_s:.3g} s, rates over {window_s:.3g} s)"
    )
    if age_s <= OLD_S:
        yield "info", where, told, ""
        return
    shorter = [
        f"{setting} 5 s"
        for setting, seconds in (
            ("RAY_metrics_report_interval_ms on every Ray node", reported_s),
            ("scrape_interval in Prometheus and prometheus.scrape_s here", scraped_s),
            ("tick_s here", seen.tick_s),
        )
        if seconds > 5
    ]
    yield "warning", where, told, "make them shorter: " + ", ".join(shorter)


def wrong_scrape_interval(seen: Inspection) -> Iterator[Located]:
    """`prometheus.scrape_s` is not what Prometheus does: samples are called stale, or late
    ones fresh."""
    if seen.cadence is None:
        return
    scraped_s = seen.cadence.scraped_s
    if seen.scrape_s / SLACK <= scraped_s <= seen.scrape_s * SLACK:
        return
    where = f"prometheus.url {seen.prometheus_url}"
    reason = (
        f"Ray is scraped every {scraped_s:.3g} s and prometheus.scrape_s says {seen.scrape_s:g}"
    )
    severity: Severity = "error" if scraped_s > seen.scrape_s else "warning"
    yield severity, where, reason, f"set prometheus.scrape_s to {scraped_s:.3g}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _paths(value: Any, path: str) -> Iterator[str]:
    """Where `autoscaling_config` stands in nested arguments."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "autoscaling_config" and inner:
                yield f"{path}.{key}"
            else:
                yield from _paths(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _paths(inner, f"{path}.{place}")


def _misfit(subject: Subject, seen: Inspection) -> Located | None:
    nodes = list((seen.nodes or {}).values())
    gang = [dict(bundle) for bundle in subject.gang]
    if any(room([node], gang, 1) for node in nodes):
        return None
    needs = _bundles(gang)
    if seen.elastic:
        reason = f"one replica needs {needs}, which no node of now holds: each waits for a new node"
        return "warning", subject.where, reason, "see that a node group offers such nodes"
    if subject.strategy != "STRICT_PACK" and room(nodes, gang, 1):
        if len(gang) == 1:
            return None
        reason = f"one replica needs {needs}, which no single node holds: it spans nodes"
        fix = "take nodes with more GPUs, or a smaller tensor_parallel_size"
        return "warning", subject.where, reason, fix
    reason = f"one replica needs {needs}, which no node holds: it never starts"
    return "error", subject.where, reason, "add such nodes, or ask for less a replica"


def _bundles(gang: Sequence[Mapping[str, float]]) -> str:
    """Bundles as text, equal ones counted."""
    told = ["{" + ", ".join(f"{k}: {v:g}" for k, v in sorted(b.items())) + "}" for b in gang]
    return ", ".join(f"{told.count(one)} x {one}" for one in dict.fromkeys(told))
