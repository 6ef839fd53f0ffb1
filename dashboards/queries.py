"""PromQL that several panels share. Every query is narrowed by the dashboard's variables."""

from dashboards.model import Query, Variable

OF_DEPLOYMENT = 'application=~"$application",deployment=~"$deployment"'
OF_APPLICATION = 'application=~"$application"'
BY = "by (application, deployment)"
ON = "on (application, deployment)"
EACH = "{{application}}/{{deployment}}"
RATE = "$__rate_interval"

ARRIVALS = "ray_serve_num_router_requests_total"
COMPLETIONS = "ray_serve_deployment_request_counter_total"
QUEUED = "ray_serve_deployment_queued_queries"
ONGOING = "ray_serve_replica_processing_queries"
ROUTER_WAIT_MS = "ray_serve_request_router_fulfillment_time_ms_bucket"
STARTUP_MS = "ray_serve_replica_startup_latency_ms_bucket"
CLIENT_TTFT = "ray_client_ttft_seconds_bucket"

APPLICATION = Variable("application", "Application", "label_values({metric}, application)")
DEPLOYMENT = Variable(
    "deployment",
    "Deployment",
    'label_values({metric}{{application=~"$application"}}, deployment)',
)

# vLLM's series know only `ReplicaId`, which is Serve's `replica`: Serve says whose it is.
OWNER = (
    "group by (application, deployment, replica) "
    f"(last_over_time({ONGOING}{{{OF_DEPLOYMENT}}}[{RATE}]))"
)


def deployment_variables(metric: str) -> tuple[Variable, ...]:
    """The variables application and deployment, filled from a metric that has both."""
    return tuple(
        Variable(v.name, v.label, v.query.format(metric=metric)) for v in (APPLICATION, DEPLOYMENT)
    )


def rate(name: str, labels: str = OF_DEPLOYMENT, by: str = "application, deployment") -> str:
    """Events per second; `rate` first and `sum` after, as replicas come and go."""
    return f"sum by ({by}) (rate({name}{{{labels}}}[{RATE}]))"


def count(name: str, labels: str = OF_DEPLOYMENT, by: str = "application, deployment") -> str:
    """Events in each interval."""
    return f"sum by ({by}) (increase({name}{{{labels}}}[{RATE}]))"


def gauge(name: str, how: str = "sum", labels: str = OF_DEPLOYMENT) -> str:
    """A gauge by deployment."""
    return f"{how} {BY} ({name}{{{labels}}})"


def quantile(
    share: float, buckets: str, labels: str = OF_DEPLOYMENT, by: str = "application, deployment"
) -> str:
    """A quantile from buckets: Ray's `_sum` is not exact, its buckets are."""
    return f"histogram_quantile({share}, {rate(buckets, labels, f'{by}, le')})"


def quantiles(
    buckets: str,
    labels: str = OF_DEPLOYMENT,
    by: str = "application, deployment",
    each: str = EACH,
    divided_by: int = 1,
) -> tuple[Query, ...]:
    """The median, the 95th and the 99th percentile."""
    unit = f" / {divided_by}" if divided_by != 1 else ""
    return tuple(
        Query(quantile(share, buckets, labels, by) + unit, f"p{100 * share:g} {each}")
        for share in (0.5, 0.95, 0.99)
    )


def of_replica(expr: str) -> str:
    """An expression by `ReplicaId`, with Serve's label `replica`."""
    return f'label_replace({expr}, "replica", "$1", "ReplicaId", "(.+)")'


def owned(expr: str, how: str, by: str) -> str:
    """An expression by `ReplicaId`, added up over the replicas of each deployment."""
    joined = f"{of_replica(expr)} * on (replica) group_left (application, deployment) {OWNER}"
    return f"{how} by ({by}) ({joined})"


def engine_gauge(name: str) -> str:
    """A gauge of the engines, by `ReplicaId`."""
    return f'max by (ReplicaId) ({name}{{model_name=~"$model"}})'


def engine_rate(name: str, more: str = "", by: str = "application, deployment, model_name") -> str:
    """Events per second of the engines."""
    kept = {label.strip() for label in by.split(",")} - {"application", "deployment"}
    inner = ", ".join(["ReplicaId", *sorted(kept - {"ReplicaId"})])
    matched = f'{name}{{model_name=~"$model"{more}}}'
    return owned(f"sum by ({inner}) (rate({matched}[{RATE}]))", "sum", by)


def engine_quantiles(buckets: str) -> tuple[Query, ...]:
    """Percentiles of an engine's histogram, by deployment and model."""
    by = "application, deployment, model_name, le"
    each = "{{deployment}} {{model_name}}"
    return tuple(
        Query(
            f"histogram_quantile({share}, {engine_rate(buckets, by=by)})",
            f"p{100 * share:g} {each}",
        )
        for share in (0.5, 0.95, 0.99)
    )
