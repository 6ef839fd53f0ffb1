"""The served models."""

from collections.abc import Mapping

from tests.alerts.cases.case import BOTH, LEAD, LLM, OURS, REPLICA, ROUTER_WAIT, SLO, STARTS, Case


def waits(per_bucket: Mapping[str, int]) -> dict[str, str]:
    """Router waits a minute, cumulative by bucket in ms."""
    labels = f'{LLM},handle_source="PROXY"'
    found = {
        f'{ROUTER_WAIT}{{{labels},le="{le}"}}': f"0+{count}x60" for le, count in per_bucket.items()
    }
    return {**found, SLO: "2x60"}


def engine(tokens: str, processing: str = "3x30") -> dict[str, str]:
    return {
        f"ray_serve_replica_processing_queries{{{REPLICA}}}": processing,
        'ray_vllm_generation_tokens_total{ReplicaId="r1",model_name="m",WorkerId="w"}': tokens,
    }


def cache(value: float) -> dict[str, str]:
    return {
        f"ray_serve_replica_processing_queries{{{REPLICA}}}": "3x60",
        'ray_vllm_kv_cache_usage_perc{ReplicaId="r1",model_name="m"}': f"{value}x60",
    }


def errors(per_minute: int, code: str) -> dict[str, str]:
    app = 'application="chat",method="POST",route="/"'
    return {
        f'ray_serve_num_http_requests_total{{{app},status_code="200"}}': "0+100x60",
        f'ray_serve_num_http_error_requests_total{{{app},error_code="{code}"}}': (
            f"0+{per_minute}x60"
        ),
    }


def started(count: int) -> dict[str, str]:
    """So many replicas that came within the last minutes, with a target of two."""
    return {
        **{f'{STARTS}{{{LLM},replica="old{n}"}}': "1x90" for n in range(2)},
        **{f'{STARTS}{{{LLM},replica="new{n}"}}': "_x50 1x40" for n in range(count)},
        f"ray_serve_autoscaling_target_replicas{{{LLM}}}": "2x90",
    }


CASES = (
    Case(
        "ServeQueueWaitHigh",
        "one in ten waits five seconds",
        waits({"1000.0": 90, "2000.0": 90, "5000.0": 100, "+Inf": 100}),
        "20m",
        (BOTH, "chat/LLM: 5 % of requests waited 3.5s or more for a replica, over 10m"),
    ),
    Case(
        "ServeQueueWaitHigh",
        "one in fifty does",
        waits({"1000.0": 98, "2000.0": 98, "5000.0": 100, "+Inf": 100}),
        "20m",
    ),
    Case(
        "ServeEngineStuck",
        "three requests inside and no token",
        engine("500x30"),
        "20m",
        (
            {**BOTH, "replica": "r1"},
            "chat/LLM: replica r1 holds 3 requests or more and has made no token in 10m",
        ),
    ),
    Case("ServeEngineStuck", "a long request makes tokens", engine("500+60x30"), "20m"),
    Case("ServeEngineStuck", "nothing is asked of it", engine("500x30", "0x30"), "20m"),
    Case(
        "ServeEngineStuck",
        "it had nothing to do a while ago",
        engine("500x30", "3x14 0 3x15"),
        "20m",
    ),
    Case(
        "ServeKvCachePressure",
        "nearly full",
        cache(0.95),
        "40m",
        (BOTH, "chat/LLM: the KV caches are 95% full over 10m"),
    ),
    Case("ServeKvCachePressure", "well used", cache(0.8), "40m"),
    Case(
        "ServeErrorRatioHigh",
        "one in ten fails",
        errors(10, "500"),
        "20m",
        (
            {"application": "chat"},
            "chat: 10% of requests end in a server error, over 5m",
        ),
    ),
    Case("ServeErrorRatioHigh", "clients err", errors(50, "404"), "20m"),
    Case("ServeErrorRatioHigh", "one in a hundred fails", errors(1, "500"), "20m"),
    Case(
        "ServeApplicationFailed",
        "the config could not be carried out",
        {'ray_serve_application_status{application="chat"}': "6x10 1x10"},
        "15m",
        (
            {"application": "chat"},
            "chat: Serve gives status 1 (1 DEPLOY_FAILED, 2 UNHEALTHY)",
        ),
    ),
    Case(
        "ServeApplicationFailed",
        "it is being deployed",
        {'ray_serve_application_status{application="chat"}': "5x20"},
        "15m",
    ),
    Case(
        "ServeReplicaUnhealthy",
        "health checks fail",
        {f"ray_serve_deployment_status{{{LLM}}}": "6x10 2x10"},
        "15m",
        (BOTH, "chat/LLM: Serve gives status 2 (1 DEPLOY_FAILED, 2 UNHEALTHY)"),
    ),
    Case(
        "ServeReplicaUnhealthy",
        "unhealthy for a minute",
        {f"ray_serve_deployment_status{{{LLM}}}": "6x10 2 6x10"},
        "12m",
    ),
    Case(
        "ServeReplicaRestarting",
        "eight starts for two replicas",
        started(8),
        "65m",
        (BOTH, "chat/LLM: 8 replicas started in 30m, more than scaling explains"),
    ),
    Case("ServeReplicaRestarting", "three starts for two replicas", started(3), "65m"),
    Case(
        "ServeIngressOverloaded",
        "a hundred wait at the ingress",
        {'ray_serve_deployment_queued_queries{application="chat",deployment="Ingress"}': "100x30"},
        "10m",
        (
            {"application": "chat", "deployment": "Ingress"},
            "chat/Ingress: 100 requests wait for a deployment that Leadtime does not scale, "
            "over 5m",
        ),
    ),
    Case(
        "ServeIngressOverloaded",
        "they wait for a deployment that Leadtime scales",
        {
            f"ray_serve_deployment_queued_queries{{{LLM}}}": "100x30",
            f"leadtime_wanted_replicas{{{LLM},{OURS}}}": "3x30",
        },
        "10m",
    ),
    Case(
        "ServeColdStartSlow",
        "five minutes, a lead of two",
        {f"leadtime_oldest_start_seconds{{{LLM},{OURS}}}": "0+60x10", LEAD: "120x10"},
        "6m",
        (
            BOTH,
            "chat/LLM: a replica has been starting for 6m 0s, more than twice the lead time "
            "learned",
        ),
    ),
    Case(
        "ServeColdStartSlow",
        "as long as usual",
        {f"leadtime_oldest_start_seconds{{{LLM},{OURS}}}": "0+60x3 _x10", LEAD: "120x10"},
        "6m",
    ),
)
