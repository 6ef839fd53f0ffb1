"""The metric names we read, as Ray Serve, vLLM, our served application and DCGM emit them."""

ARRIVALS = "ray_serve_num_router_requests"
COMPLETIONS = "ray_serve_deployment_request_counter"
ERRORS = "ray_serve_num_http_error_requests"
QUEUED = "ray_serve_deployment_queued_queries"
ONGOING = "ray_serve_replica_processing_queries"
WAITING = "ray_vllm_num_requests_waiting"
KV_CACHE = "ray_vllm_kv_cache_usage_perc"
PROMPT_TOKENS = "ray_vllm_prompt_tokens"
OUTPUT_TOKENS = "ray_vllm_generation_tokens"
PREEMPTIONS = "ray_vllm_num_preemptions"
ROUTER_WAIT = "ray_serve_request_router_fulfillment_time_ms_bucket"
ENGINE_TTFT = "ray_vllm_time_to_first_token_seconds_bucket"
STARTS = "ray_serve_replica_startup_latency_ms_bucket"
CLIENT_TTFT = "ray_client_ttft_seconds_bucket"
STAY = "ray_serve_deployment_processing_latency_ms_bucket"
HEARTBEAT = "ray_serve_controller_num_control_loops"
RESOURCES = "ray_resources"

COUNTERS = (ARRIVALS, COMPLETIONS, ERRORS, PROMPT_TOKENS, OUTPUT_TOKENS, PREEMPTIONS)
SERVE = (ARRIVALS, COMPLETIONS, ERRORS, QUEUED, ONGOING)
ENGINE = (WAITING, KV_CACHE, PROMPT_TOKENS, OUTPUT_TOKENS, PREEMPTIONS)

GPU_OF_PROCESS = "ray_component_gpu_percentage"
GPU_OF_NODE = "ray_node_gpus_utilization"
GPU_MEMORY_USED = "ray_node_gram_used"
GPU_MEMORY_FREE = "ray_node_gram_available"
DCGM_UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
DCGM_MEMORY_USED = "DCGM_FI_DEV_FB_USED"
DCGM_MEMORY_FREE = "DCGM_FI_DEV_FB_FREE"
GPU = (
    GPU_OF_PROCESS,
    GPU_OF_NODE,
    GPU_MEMORY_USED,
    GPU_MEMORY_FREE,
    DCGM_UTILIZATION,
    DCGM_MEMORY_USED,
    DCGM_MEMORY_FREE,
)


def spellings(name: str) -> tuple[str, ...]:
    """How versions spell a metric: counters with and without the suffix `_total`."""
    return (f"{name}_total", name) if name in COUNTERS else (name,)


def plain(name: str) -> str:
    """The name in this module of a series' metric."""
    stem = name.removesuffix("_total")
    return stem if stem in COUNTERS else name
