"""The served models: waiting, stuck, full, failing, restarting, slow to start."""

from alerts.model import Alert

BY = "by (application, deployment)"
ON = "on (application, deployment)"
GCS = ("RayGcsDown", "RayMetricsAbsent")
TARGET = "{{ $labels.application }}/{{ $labels.deployment }}"


def of_replica(expr: str) -> str:
    """vLLM's series know only `ReplicaId`, which is Serve's `replica`."""
    return f'label_replace({expr}, "replica", "$1", "ReplicaId", "(.+)")'


OWNER = (
    "group by (application, deployment, replica) "
    "(last_over_time(ray_serve_replica_processing_queries[5m]))"
)

ALERTS = (
    Alert(
        "ServeQueueWaitHigh",
        "serving",
        "ticket",
        "histogram_quantile(0.95, sum by (application, deployment, le) "
        "(rate(ray_serve_request_router_fulfillment_time_ms_bucket[10m]))) / 1000 "
        f"> {ON} max {BY} (leadtime_slo_ttft_seconds)",
        "5m",
        f"{TARGET}: 5 % of requests waited {{{{ $value | humanizeDuration }}}} or more for a "
        "replica, over <10m>",
        "Requests wait longer in Serve's router than the SLO allows for the first token.",
        follows_from=("SloBurnFast", "SloBurnHigh"),
    ),
    Alert(
        "ServeEngineStuck",
        "serving",
        "page",
        "min by (application, deployment, replica) "
        "(min_over_time(ray_serve_replica_processing_queries[10m])) > 0 and on (replica) "
        + of_replica("sum by (ReplicaId) (rate(ray_vllm_generation_tokens_total[10m])) == 0"),
        "2m",
        f"{TARGET}: replica {{{{ $labels.replica }}}} holds {{{{ $value }}}} requests or more and "
        "has made no token in <10m>",
        "The engine takes requests and finishes none; Serve believes the replica to be healthy.",
        by=("application", "deployment", "replica"),
        follows_from=GCS,
    ),
    Alert(
        "ServeKvCachePressure",
        "serving",
        "ticket",
        f"avg {BY} ("
        + of_replica("max by (ReplicaId) (avg_over_time(ray_vllm_kv_cache_usage_perc[10m]))")
        + f" * on (replica) group_left (application, deployment) {OWNER}) > 0.9",
        "10m",
        f"{TARGET}: the KV caches are {{{{ $value | humanizePercentage }}}} full over <10m>",
        "Engines preempt requests when the cache is full, and start them again.",
    ),
    Alert(
        "ServeErrorRatioHigh",
        "serving",
        "page",
        "sum by (application) "
        '(rate(ray_serve_num_http_error_requests_total{error_code=~"5.."}[5m])) '
        "/ sum by (application) (rate(ray_serve_num_http_requests_total[5m])) > 0.05",
        "2m",
        "{{ $labels.application }}: {{ $value | humanizePercentage }} of requests end in a server "
        "error, over <5m>",
        "Clients get errors of the 500s.",
        by=("application",),
        follows_from=GCS,
    ),
    Alert(
        "ServeApplicationFailed",
        "serving",
        "page",
        "max by (application) (last_over_time(ray_serve_application_status[2m])) <= 2",
        "1m",
        "{{ $labels.application }}: Serve gives status {{ $value }} (1 DEPLOY_FAILED, 2 UNHEALTHY)",
        "A config was accepted that cannot be carried out, or the application is unhealthy. "
        "Replicas may still serve; nothing scales them.",
        by=("application",),
        follows_from=GCS,
    ),
    Alert(
        "ServeReplicaUnhealthy",
        "serving",
        "page",
        f"max {BY} (last_over_time(ray_serve_deployment_status[2m])) <= 2",
        "2m",
        f"{TARGET}: Serve gives status {{{{ $value }}}} (1 DEPLOY_FAILED, 2 UNHEALTHY)",
        "Replicas fail their health checks or cannot be started.",
        follows_from=(*GCS, "ServeApplicationFailed"),
    ),
    Alert(
        "ServeReplicaRestarting",
        "serving",
        "page",
        f"count {BY} (ray_serve_deployment_replica_starts_total unless on (application, "
        "deployment, replica) ray_serve_deployment_replica_starts_total offset 30m) "
        f"> {ON} 2 * max {BY} (max_over_time(ray_serve_autoscaling_target_replicas[30m])) + 1",
        "1m",
        f"{TARGET}: {{{{ $value }}}} replicas started in <30m>, more than scaling explains",
        "Replicas die soon after their start and are started again.",
        follows_from=GCS,
    ),
    Alert(
        "ServeIngressOverloaded",
        "serving",
        "page",
        f"sum {BY} (avg_over_time(ray_serve_deployment_queued_queries[5m])) > 20 "
        f"unless {ON} last_over_time(leadtime_wanted_replicas[1h])",
        "2m",
        f'{TARGET}: {{{{ printf "%.0f" $value }}}} requests wait for a deployment that Leadtime '
        "does not scale, over <5m>",
        "What waits at the ingress does not reach the models: their load looks lower than it is.",
        follows_from=("ServeEngineStuck",),
    ),
    Alert(
        "ServeColdStartSlow",
        "serving",
        "ticket",
        f"max {BY} (leadtime_oldest_start_seconds) > {ON} 2 * max {BY} (leadtime_lead_seconds)",
        "1m",
        f"{TARGET}: a replica has been starting for {{{{ $value | humanizeDuration }}}}, more than "
        "twice the lead time learned",
        "Capacity will be late: the forecast looks one learned lead time ahead.",
        follows_from=GCS,
    ),
)
