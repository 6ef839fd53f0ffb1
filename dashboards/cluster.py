"""Cluster: what there is, what it is used for, what it costs."""

from controller.adapters.telemetry import names
from dashboards.model import Dashboard, Panel, Proof, Query, Row
from dashboards.queries import EACH, OF_APPLICATION, OF_DEPLOYMENT, RATE, deployment_variables

GPU_EACH = "{{node}} GPU {{gpu}}"
TOKENS = (
    f"(sum(rate(ray_vllm_prompt_tokens_total[{RATE}])) "
    f"+ sum(rate(ray_vllm_generation_tokens_total[{RATE}])))"
)
GPUS_USED = 'sum(ray_resources{Name="GPU",State="USED"})'
STATUS = {
    1: ("DEPLOY_FAILED", "red"),
    2: ("UNHEALTHY", "red"),
    3: ("UPDATING", "blue"),
    4: ("UPSCALING", "blue"),
    5: ("DOWNSCALING", "blue"),
    6: ("HEALTHY", "green"),
}
APPLICATION_STATUS = {
    1: ("DEPLOY_FAILED", "red"),
    2: ("UNHEALTHY", "red"),
    3: ("NOT_STARTED", "orange"),
    4: ("DELETING", "orange"),
    5: ("DEPLOYING", "blue"),
    6: ("RUNNING", "green"),
}
PROXY_STATUS = {
    1: ("STARTING", "blue"),
    2: ("HEALTHY", "green"),
    3: ("UNHEALTHY", "red"),
    4: ("DRAINING", "orange"),
    5: ("DRAINED", "orange"),
}


def of_gpu(ray: str, dcgm: str) -> str:
    """By node and GPU: Ray's account, else the DCGM exporter's."""
    named = f'label_replace({ray}, "node", "$1", "ip", "(.+)")'
    named = f'label_replace({named}, "gpu", "$1", "GpuIndex", "(.+)")'
    other = f'label_replace({dcgm}, "node", "$1", "Hostname", "(.+)")'
    return f"max by (node, gpu) ({named}) or max by (node, gpu) ({other})"


WATTS = of_gpu("ray_node_gpu_power_milliwatts / 1000", "DCGM_FI_DEV_POWER_USAGE")

GPUS = Row(
    "GPUs",
    (
        Panel(
            "GPUs by use",
            "GPUs that Ray has given out and that are free, in Ray's own count.",
            "short",
            (
                Query(
                    'sum by (State) (ray_resources{Name="GPU"})',
                    "{{State}}",
                ),
            ),
            alert="LeadtimeUnschedulable",
            stacked=True,
        ),
        Panel(
            "Waiting for room",
            "Replicas for which no node has room yet.",
            "short",
            (Query(f"sum({names.PENDING}{{{OF_DEPLOYMENT}}})", "replicas"),),
            alert="LeadtimePendingTooLong",
        ),
        Panel(
            "Placement groups that wait",
            "Placement groups that Ray has not placed, and those that no node could ever hold.",
            "short",
            (
                Query(
                    'sum by (State) (ray_gcs_placement_group_count{State=~"Pending|Infeasible"})',
                    "placement groups {{State}}",
                ),
            ),
            alert="LeadtimePendingTooLong",
            proof=Proof.RECORDED,
        ),
        Panel(
            "Price of 1,000 tokens",
            "GPUs given out times the price of a GPU-hour (`gpu_hour_price` in the settings), by "
            "tokens read and generated; in your currency.",
            "short",
            (
                Query(
                    f"max({names.GPU_HOUR_PRICE}) * {GPUS_USED} / 3600 / {TOKENS} * 1000",
                    "all models",
                ),
            ),
            kind="stat",
        ),
        Panel(
            "GPU utilisation",
            "Share of time in which a kernel ran; full at low throughput is usual for LLMs.",
            "percent",
            (Query(of_gpu("ray_node_gpus_utilization", "DCGM_FI_DEV_GPU_UTIL"), GPU_EACH),),
            most=100,
            proof=Proof.GPU,
        ),
        Panel(
            "GPU memory in use",
            "vLLM reserves its share at the start, whatever the load.",
            "percentunit",
            (
                Query(
                    of_gpu(
                        "ray_node_gram_used / (ray_node_gram_used + ray_node_gram_available)",
                        "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)",
                    ),
                    GPU_EACH,
                ),
            ),
            alert="RayGpuMemoryFull",
            steps={0.98: "red"},
            most=1,
            proof=Proof.GPU,
        ),
        Panel(
            "GPU power",
            "Power drawn by each GPU.",
            "watt",
            (Query(WATTS, GPU_EACH),),
            proof=Proof.GPU,
        ),
        Panel(
            "Memory by process",
            "GPU memory of each process of Ray: what else is on the GPU?",
            "decmbytes",
            (
                Query(
                    "sum by (ip, GpuIndex, Component) (ray_component_gpu_memory_mb)",
                    "{{ip}} GPU {{GpuIndex}} {{Component}}",
                ),
            ),
            alert="RayGpuMemoryFull",
            proof=Proof.GPU,
        ),
        Panel(
            "Utilisation by process",
            "Share of each GPU's time by process.",
            "percent",
            (
                Query(
                    "sum by (ip, GpuIndex, Component) (ray_component_gpu_percentage)",
                    "{{ip}} GPU {{GpuIndex}} {{Component}}",
                ),
            ),
            proof=Proof.GPU,
        ),
        Panel(
            "Energy of 1,000 tokens",
            "Power of all GPUs by tokens read and generated.",
            "watth",
            (Query(f"sum({WATTS}) / 3600 / {TOKENS} * 1000", "all models"),),
            kind="stat",
            proof=Proof.GPU,
        ),
    ),
)
NODES = Row(
    "Nodes",
    (
        Panel(
            "Node CPU",
            "Busy share of each node's CPU. The head's matters most: controller, proxy and routers "
            "live there.",
            "percent",
            (
                Query(
                    "max by (ip, RayNodeType) (ray_node_cpu_utilization)", "{{RayNodeType}} {{ip}}"
                ),
            ),
            alert="RayHeadCpuSaturated",
            steps={90: "red"},
            most=100,
        ),
        Panel(
            "Node memory",
            "Share of each node's memory in use.",
            "percentunit",
            (
                Query(
                    "max by (ip, RayNodeType) (ray_node_mem_used / ray_node_mem_total)",
                    "{{RayNodeType}} {{ip}}",
                ),
            ),
            alert="RayGcsDown",
            steps={0.9: "orange"},
            most=1,
        ),
        Panel(
            "Nodes alive",
            "Nodes alive in Ray's account, and nodes the node autoscaler waits for.",
            "short",
            (
                Query("sum(ray_cluster_active_nodes)", "active"),
                Query("sum(autoscaler_pending_nodes)", "pending"),
            ),
            alert="RayGcsDown",
        ),
        Panel(
            "Logical CPUs by use",
            "CPUs that Ray has given out and that are free: numbers for its scheduler, not load.",
            "short",
            (Query('sum by (State) (ray_resources{Name="CPU"})', "{{State}}"),),
            alert="LeadtimeUnschedulable",
            stacked=True,
        ),
        Panel(
            "Object store",
            "Memory of Ray's object store.",
            "bytes",
            (
                Query("sum(ray_object_store_used_memory)", "used"),
                Query("sum(ray_object_store_available_memory)", "free"),
            ),
            stacked=True,
        ),
        Panel(
            "Busiest processes",
            "CPU of Ray's own parts and of the replicas, in percent of one core.",
            "percent",
            (Query("topk(5, sum by (Component) (ray_component_cpu_percentage))", "{{Component}}"),),
            alert="RayHeadCpuSaturated",
        ),
    ),
)
RAY = Row(
    "Ray and Serve",
    (
        Panel(
            "Actors",
            "Actors by state.",
            "short",
            (Query("sum by (State) (ray_actors)", "{{State}}"),),
        ),
        Panel(
            "Tasks",
            "Tasks that are not finished, by state.",
            "short",
            (
                Query(
                    'sum by (State) (ray_tasks{State!~"FINISHED|FAILED"})',
                    "{{State}}",
                ),
            ),
        ),
        Panel(
            "Serve's control loop",
            "Time of one round of Serve's controller. Scaling and health checks wait for it.",
            "s",
            (Query("max(ray_serve_controller_control_loop_duration_s)", "round"),),
            alert="RayHeadCpuSaturated",
        ),
        Panel(
            "Deployments",
            "Status in Serve's account.",
            "short",
            (
                Query(
                    "max by (application, deployment) "
                    f"(ray_serve_deployment_status{{{OF_DEPLOYMENT}}})",
                    EACH,
                ),
            ),
            kind="states",
            alert="ServeReplicaUnhealthy",
            mappings=STATUS,
        ),
        Panel(
            "Applications",
            "Status in Serve's account.",
            "short",
            (
                Query(
                    f"max by (application) (ray_serve_application_status{{{OF_APPLICATION}}})",
                    "{{application}}",
                ),
            ),
            kind="states",
            alert="ServeApplicationFailed",
            mappings=APPLICATION_STATUS,
        ),
        Panel(
            "Proxies",
            "Status of the HTTP proxy on each node.",
            "short",
            (Query("max by (node_ip_address) (ray_serve_proxy_status)", "{{node_ip_address}}"),),
            kind="states",
            alert="ServeIngressOverloaded",
            mappings=PROXY_STATUS,
        ),
        Panel(
            "Open requests in proxies",
            "Requests inside Serve's HTTP proxies, queued and running, of all applications.",
            "short",
            (
                Query(
                    "sum by (node_ip_address) (ray_serve_num_ongoing_http_requests)",
                    "{{node_ip_address}}",
                ),
            ),
            alert="ServeIngressOverloaded",
            width=12,
        ),
        Panel(
            "Dashboard's lag",
            "How late the event loop of Ray's dashboard runs: Leadtime acts through it.",
            "s",
            (Query("max(ray_dashboard_event_loop_lag_seconds)", "lag"),),
            alert="RayDashboardDown",
            width=12,
        ),
    ),
)
DASHBOARD = Dashboard(
    "leadtime-cluster",
    "Leadtime / Cluster",
    "GPUs, nodes, Ray and Serve below the models, and what a token costs.",
    (GPUS, NODES, RAY),
    deployment_variables(names.WANTED),
)
