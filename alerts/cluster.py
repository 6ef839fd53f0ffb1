"""The Ray cluster below: the head node, the GCS, the dashboard, GPU memory."""

from alerts.model import Alert

NODES = "count(last_over_time(ray_node_cpu_count[2m]))"
DASHBOARD = "ray_dashboard_event_loop_lag_seconds"
RAY_MEMORY = "ray_node_gram_used / (ray_node_gram_used + ray_node_gram_available)"
DCGM_MEMORY = "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)"

ALERTS = (
    Alert(
        "RayMetricsAbsent",
        "cluster",
        "page",
        "absent_over_time(ray_node_cpu_count[5m])",
        "1m",
        "No Ray node has been scraped for <5m> (absent: {{ $value }})",
        "Ray is down, or Prometheus does not find its targets.",
        by=(),
    ),
    Alert(
        "RayGcsDown",
        "cluster",
        "page",
        # Its gauges end with it, its counters stay on the page of the node's agent.
        "count(last_over_time(ray_gcs_storage_operation_count_total[2m])) "
        "unless group(last_over_time(ray_gcs_placement_group_count[2m]))",
        "1m",
        "Ray's GCS has said nothing for <2m>; {{ $value }} of its counters are still on the page",
        "Without its GCS the cluster serves for about a minute, then its nodes leave.",
        by=(),
    ),
    Alert(
        "RayDashboardDown",
        "cluster",
        "page",
        f"{NODES} unless group(last_over_time({DASHBOARD}[2m])) "
        f"and group(last_over_time({DASHBOARD}[1d]))",
        "1m",
        "Ray's dashboard has said nothing for <2m> while {{ $value }} nodes report",
        "Models serve on, but nobody can scale or deploy over REST; nothing restarts it.",
        by=(),
        follows_from=("RayGcsDown",),
    ),
    Alert(
        "RayHeadCpuSaturated",
        "cluster",
        "page",
        'avg by (ip) (avg_over_time(ray_node_cpu_utilization{IsHeadNode="true"}[10m])) > 90',
        "5m",
        'Head node {{ $labels.ip }}: CPU {{ printf "%.0f" $value }} % busy over <10m>',
        "Serve's controller, proxy and routers live there: requests wait and scaling is late.",
        by=("ip",),
    ),
    Alert(
        "RayGpuMemoryFull",
        "cluster",
        "ticket",
        "max by (node, gpu) ("
        f'label_replace(label_replace({RAY_MEMORY}, "node", "$1", "ip", "(.+)"), '
        '"gpu", "$1", "GpuIndex", "(.+)") or '
        f'label_replace({DCGM_MEMORY}, "node", "$1", "Hostname", "(.+)")) > 0.98',
        "10m",
        "GPU {{ $labels.gpu }} of {{ $labels.node }}: {{ $value | humanizePercentage }} of its "
        "memory is used",
        "The next allocation may fail and take the replica down.",
        by=("node", "gpu"),
    ),
)
