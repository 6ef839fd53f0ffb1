"""The Ray cluster."""

from tests.alerts.cases.case import DCGM, GPU, NODE, Case

GCS = 'ray_gcs_placement_group_count{State="Pending"}'
GCS_COUNTER = 'ray_gcs_storage_operation_count_total{Operation="Put"}'
DASHBOARD = "ray_dashboard_event_loop_lag_seconds"
CASES = (
    Case(
        "RayMetricsAbsent",
        "no node",
        {"up": "1x20"},
        "10m",
        ({}, "No Ray node has been scraped for 5m (absent: 1)"),
    ),
    Case("RayMetricsAbsent", "one node", {f"ray_node_cpu_count{{{NODE}}}": "2x20"}, "10m"),
    Case(
        "RayGcsDown",
        "its gauges end, its counters stay",
        {GCS_COUNTER: "5x20", GCS: "0x5 _x20"},
        "12m",
        ({}, "Ray's GCS has said nothing for 2m; 1 of its counters are still on the page"),
    ),
    Case("RayGcsDown", "it reports", {GCS_COUNTER: "5x20", GCS: "0x20"}, "12m"),
    Case("RayGcsDown", "nothing reports: that is another alert", {"up": "0x20"}, "12m"),
    Case(
        "RayDashboardDown",
        "its series end",
        {f"ray_node_cpu_count{{{NODE}}}": "2x20", DASHBOARD: "0.1x5 _x20"},
        "12m",
        ({}, "Ray's dashboard has said nothing for 2m while 1 nodes report"),
    ),
    Case(
        "RayDashboardDown",
        "it was never scraped",
        {f"ray_node_cpu_count{{{NODE}}}": "2x20"},
        "12m",
    ),
    Case(
        "RayHeadCpuSaturated",
        "busy",
        {f"ray_node_cpu_utilization{{{NODE}}}": "97x40"},
        "30m",
        ({"ip": "10.0.0.1"}, "Head node 10.0.0.1: CPU 97 % busy over 10m"),
    ),
    Case(
        "RayHeadCpuSaturated",
        "a worker is busy",
        {'ray_node_cpu_utilization{ip="10.0.0.2",IsHeadNode="false"}': "97x40"},
        "30m",
    ),
    Case(
        "RayGpuMemoryFull",
        "by Ray's account",
        {f"ray_node_gram_used{{{GPU}}}": "80500x40", f"ray_node_gram_available{{{GPU}}}": "500x40"},
        "30m",
        (
            {"node": "10.0.0.3", "gpu": "0"},
            "GPU 0 of 10.0.0.3: 99.38% of its memory is used",
        ),
    ),
    Case(
        "RayGpuMemoryFull",
        "by DCGM's account",
        {f"DCGM_FI_DEV_FB_USED{{{DCGM}}}": "80500x40", f"DCGM_FI_DEV_FB_FREE{{{DCGM}}}": "500x40"},
        "30m",
        (
            {"node": "node-3", "gpu": "0"},
            "GPU 0 of node-3: 99.38% of its memory is used",
        ),
    ),
    Case(
        "RayGpuMemoryFull",
        "what vLLM reserves",
        {
            f"ray_node_gram_used{{{GPU}}}": "72900x40",
            f"ray_node_gram_available{{{GPU}}}": "8100x40",
        },
        "30m",
    ),
)
