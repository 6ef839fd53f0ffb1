"""Serving: what users ask for and what they get."""

from dashboards.model import Dashboard, Panel, Proof, Query, Row, Variable
from dashboards.queries import (
    ARRIVALS,
    BY,
    CLIENT_TTFT,
    COMPLETIONS,
    EACH,
    OF_APPLICATION,
    OF_DEPLOYMENT,
    ONGOING,
    OWNER,
    QUEUED,
    ROUTER_WAIT_MS,
    STARTUP_MS,
    deployment_variables,
    engine_gauge,
    engine_quantiles,
    engine_rate,
    gauge,
    of_replica,
    quantiles,
    rate,
)

OF_REPLICA = f'{OF_DEPLOYMENT},replica=~"$replica"'
MODEL_EACH = "{{deployment}} {{model_name}}"
ERRORS = "ray_serve_num_http_error_requests_total"
REQUESTS = "ray_serve_num_http_requests_total"

DEMAND = Row(
    "Demand",
    (
        Panel(
            "Arrivals and completions",
            "Requests per second that reach a router, and that replicas finish. Where arrivals "
            "stay above completions, a queue grows.",
            "reqps",
            (
                Query(rate(ARRIVALS), f"arrivals {EACH}"),
                Query(rate(COMPLETIONS), f"completions {EACH}"),
            ),
            alert="SloBurnFast",
        ),
        Panel(
            "Queued",
            "Requests that wait in Serve's routers for a replica with a free slot.",
            "short",
            (Query(gauge(QUEUED), EACH),),
            alert="ServeQueueWaitHigh",
        ),
        Panel(
            "Queue wait",
            "Time from a router's taking a request to its giving it to a replica. What still waits "
            "is not in it: see Queued.",
            "s",
            quantiles(ROUTER_WAIT_MS, divided_by=1000),
            alert="ServeQueueWaitHigh",
        ),
        Panel(
            "Ongoing by replica",
            "Requests inside each replica, running or waiting in its engine.",
            "short",
            (
                Query(
                    f"sum by (application, deployment, replica) ({ONGOING}{{{OF_REPLICA}}})",
                    "{{deployment}} {{replica}}",
                ),
            ),
            alert="ServeEngineStuck",
        ),
        Panel(
            "Replicas that report",
            "Replicas whose load is known. Serve's own count is on the dashboard Decisions.",
            "short",
            (Query(f"count {BY} ({ONGOING}{{{OF_DEPLOYMENT}}})", EACH),),
            alert="ServeReplicaRestarting",
        ),
        Panel(
            "Cold start",
            "Time from asking Serve for a replica to having it, waiting for a node included.",
            "s",
            quantiles(STARTUP_MS, divided_by=1000),
            alert="ServeColdStartSlow",
        ),
    ),
)
LATENCY = Row(
    "Latency",
    (
        Panel(
            "Time to first token, as clients feel it",
            "From a request's arrival at the ingress to its first token, router wait included. "
            "Failures count as later than every bound.",
            "s",
            quantiles(
                CLIENT_TTFT,
                f'{OF_DEPLOYMENT},model_name=~"$model"',
                "application, deployment, model_name",
                MODEL_EACH,
            ),
            alert="SloBurnFast",
        ),
        Panel(
            "Time to first token, in the engine",
            "From the engine's taking a request to its first token: without Serve's queue.",
            "s",
            engine_quantiles("ray_vllm_time_to_first_token_seconds_bucket"),
            alert="SloBurnSlow",
        ),
        Panel(
            "Inter-token latency",
            "Time between two tokens of an answer.",
            "s",
            engine_quantiles("ray_vllm_inter_token_latency_seconds_bucket"),
            alert="ServeKvCachePressure",
        ),
        Panel(
            "End to end, in the engine",
            "From the engine's taking a request to its last token.",
            "s",
            engine_quantiles("ray_vllm_e2e_request_latency_seconds_bucket"),
            alert="SloBurnSlow",
        ),
        Panel(
            "End to end, at the proxy",
            "From a request's arrival at Serve's proxy to the end of its answer, by application.",
            "s",
            quantiles(
                "ray_serve_http_request_latency_ms_bucket",
                OF_APPLICATION,
                "application",
                "{{application}}",
                1000,
            ),
            alert="ServeIngressOverloaded",
        ),
        Panel(
            "Time in a replica",
            "Time a deployment's code takes for a request, without queueing.",
            "s",
            quantiles("ray_serve_deployment_processing_latency_ms_bucket", divided_by=1000),
            alert="SloBurnSlow",
        ),
    ),
)
ENGINE = Row(
    "Engine",
    (
        Panel(
            "Tokens",
            "Prompt tokens read and tokens generated per second.",
            "short",
            (
                Query(engine_rate("ray_vllm_prompt_tokens_total"), f"prompt {MODEL_EACH}"),
                Query(engine_rate("ray_vllm_generation_tokens_total"), f"generated {MODEL_EACH}"),
            ),
            alert="ServeEngineStuck",
        ),
        Panel(
            "Running and waiting in engines",
            "vLLM's own account. Its gauges vanish while an engine idles.",
            "short",
            tuple(
                Query(
                    f"sum {BY} ("
                    + of_replica(engine_gauge(f"ray_vllm_num_requests_{state}"))
                    + f" * on (replica) group_left (application, deployment) {OWNER})",
                    f"{state} {EACH}",
                )
                for state in ("running", "waiting")
            ),
            alert="ServeEngineStuck",
        ),
        Panel(
            "KV cache in use",
            "Share of each replica's KV cache that holds tokens; near 1 requests are preempted.",
            "percentunit",
            (
                Query(
                    of_replica(engine_gauge("ray_vllm_kv_cache_usage_perc"))
                    + f" * on (replica) group_left (application, deployment) {OWNER}",
                    "{{deployment}} {{replica}}",
                ),
            ),
            alert="ServeKvCachePressure",
            steps={0.9: "red"},
            most=1,
        ),
        Panel(
            "Preemptions",
            "Requests per second that engines put back because their KV cache was full.",
            "reqps",
            (Query(engine_rate("ray_vllm_num_preemptions_total"), MODEL_EACH),),
            alert="ServeKvCachePressure",
            proof=Proof.VLLM,
        ),
        Panel(
            "Prefix cache hits",
            "Share of prompt tokens that were found in the prefix cache.",
            "percentunit",
            (
                Query(
                    engine_rate("ray_vllm_prefix_cache_hits_total")
                    + " / "
                    + engine_rate("ray_vllm_prefix_cache_queries_total"),
                    MODEL_EACH,
                ),
            ),
            most=1,
            proof=Proof.VLLM,
        ),
        Panel(
            "How answers end",
            "Answers per second by vLLM's reason: stop, length, abort.",
            "reqps",
            (
                Query(
                    engine_rate(
                        "ray_vllm_request_success_total",
                        by="application, deployment, finished_reason",
                    ),
                    "{{deployment}} {{finished_reason}}",
                ),
            ),
            alert="ServeErrorRatioHigh",
        ),
        Panel(
            "Prompt length",
            "Tokens a prompt has.",
            "short",
            engine_quantiles("ray_vllm_request_prompt_tokens_bucket"),
            width=12,
        ),
        Panel(
            "Answer length",
            "Tokens an answer has.",
            "short",
            engine_quantiles("ray_vllm_request_generation_tokens_bucket"),
            width=12,
        ),
    ),
)
ERRORS_ROW = Row(
    "Errors",
    (
        Panel(
            "Errors at the proxy",
            "Requests per second that end in an error, by status.",
            "reqps",
            (
                Query(
                    rate(ERRORS, OF_APPLICATION, "application, error_code"),
                    "{{application}} {{error_code}}",
                ),
            ),
            alert="ServeErrorRatioHigh",
        ),
        Panel(
            "Share of errors",
            "Share of finished requests that ended in an error, clients' errors included.",
            "percentunit",
            (
                Query(
                    f"{rate(ERRORS, OF_APPLICATION, 'application')} / "
                    f"{rate(REQUESTS, OF_APPLICATION, 'application')}",
                    "{{application}}",
                ),
            ),
            alert="ServeErrorRatioHigh",
            steps={0.05: "red"},
        ),
        Panel(
            "Errors that clients saw",
            "By the ingress's account, by status; refusals of wrong requests (4xx) included.",
            "reqps",
            (
                Query(
                    rate("ray_client_errors_total", OF_DEPLOYMENT, "application, deployment, code"),
                    "{{deployment}} {{code}}",
                ),
            ),
            alert="ServeErrorRatioHigh",
        ),
    ),
)
DASHBOARD = Dashboard(
    "leadtime-serving",
    "Leadtime / Serving",
    "What users ask for and what they get, by application, deployment, replica and model.",
    (DEMAND, LATENCY, ENGINE, ERRORS_ROW),
    (
        *deployment_variables(ONGOING),
        Variable("replica", "Replica", f"label_values({ONGOING}{{{OF_DEPLOYMENT}}}, replica)"),
        Variable(
            "model",
            "Model",
            "label_values(ray_vllm_time_to_first_token_seconds_count, model_name)",
        ),
    ),
)
