"""vLLM's own metrics through Ray: same names, labels, buckets and units, so one PromQL serves both.

vLLM replaces ':' by '_' for Ray, Ray puts `ray_` before and `_total` behind counters; on the
page they read `ray_vllm_num_requests_running{model_name,engine,ReplicaId,...}`.
Like vLLM's, a counter that never counted is absent, and gauges vanish while the engine idles.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ray.util import metrics

from serve_app.engine_stats import FinishedRequest, Step

# Bounds as recorded from vLLM 0.29 (test_engine_metrics.py compares them with the real page).
TTFT_BOUNDS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_BOUNDS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_BOUNDS_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
    240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
STEP_TOKEN_BOUNDS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)

LABELS = ("model_name", "engine", "ReplicaId")


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric as handed to Ray; `bounds` only for histograms."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    description: str
    labels: tuple[str, ...] = LABELS
    bounds: tuple[float, ...] = ()


def token_bounds(max_model_len: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50, ... up to the model's context, as vLLM cuts request lengths."""
    steps = (mantissa * 10**power for power in range(10) for mantissa in (1, 2, 5))
    return tuple(float(step) for step in steps if step <= max_model_len)


def metric_specs(max_model_len: int) -> dict[str, MetricSpec]:
    """Every metric of the stand-in by its short name (what follows `vllm_`)."""
    lengths = token_bounds(max_model_len)
    specs = [
        MetricSpec("num_requests_running", "gauge", "Requests in model execution batches."),
        MetricSpec("num_requests_waiting", "gauge", "Requests waiting to be processed."),
        MetricSpec("kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage."),
        MetricSpec("prompt_tokens", "counter", "Prefill tokens processed."),
        MetricSpec("generation_tokens", "counter", "Generation tokens processed."),
        MetricSpec("prefix_cache_queries", "counter", "Prefix cache queries, in tokens."),
        MetricSpec("num_preemptions", "counter", "Preemptions of the engine."),
        MetricSpec(
            "request_success",
            "counter",
            "Successfully processed requests.",
            (*LABELS, "finished_reason"),
        ),
        _seconds("time_to_first_token_seconds", TTFT_BOUNDS_S),
        _seconds("inter_token_latency_seconds", TOKEN_BOUNDS_S),
        _seconds("request_time_per_output_token_seconds", TOKEN_BOUNDS_S),
        _seconds("e2e_request_latency_seconds", REQUEST_BOUNDS_S),
        _seconds("request_queue_time_seconds", REQUEST_BOUNDS_S),
        _seconds("request_prefill_time_seconds", REQUEST_BOUNDS_S),
        _seconds("request_decode_time_seconds", REQUEST_BOUNDS_S),
        _seconds("request_inference_time_seconds", REQUEST_BOUNDS_S),
        _tokens("request_prompt_tokens", lengths),
        _tokens("request_generation_tokens", lengths),
        _tokens("iteration_tokens_total", STEP_TOKEN_BOUNDS),
    ]
    return {spec.name: spec for spec in specs}


class EngineMetrics:
    """A StatLogger that exports each step through Ray."""

    def __init__(self, model: str, max_model_len: int, replica_id: str) -> None:
        tags = {"model_name": model, "engine": "0", "ReplicaId": replica_id}
        self._metrics = {
            name: _registered(spec, tags) for name, spec in metric_specs(max_model_len).items()
        }
        self._gauges = {
            name: self._metrics[name].set
            for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        }

    def __call__(self, step: Step) -> None:
        self._gauges["num_requests_running"](step.running)
        self._gauges["num_requests_waiting"](step.waiting)
        self._gauges["kv_cache_usage_perc"](step.kv_cache_ratio)
        self._count("prompt_tokens", step.prompt_tokens)
        self._count("prefix_cache_queries", step.prompt_tokens)
        self._count("generation_tokens", step.generation_tokens)
        if tokens := step.prompt_tokens + step.generation_tokens:
            self._metrics["iteration_tokens_total"].observe(tokens)
        for ttft_s in step.ttft_s:
            self._metrics["time_to_first_token_seconds"].observe(ttft_s)
        for inter_token_s in step.inter_token_s:
            self._metrics["inter_token_latency_seconds"].observe(inter_token_s)
        for request in step.finished:
            self._finish(request)

    def _count(self, name: str, amount: int) -> None:
        if amount:  # vLLM skips zeros as well: a counter appears with its first count
            self._metrics[name].inc(amount)

    def _finish(self, request: FinishedRequest) -> None:
        self._metrics["request_success"].inc(1, {"finished_reason": request.reason})
        for name, measure in _OF_A_FINISHED_REQUEST.items():
            self._metrics[name].observe(measure(request))


_OF_A_FINISHED_REQUEST: dict[str, Callable[[FinishedRequest], float]] = {
    "e2e_request_latency_seconds": lambda request: request.e2e_s,
    "request_queue_time_seconds": lambda request: request.queue_s,
    "request_prefill_time_seconds": lambda request: request.prefill_s,
    "request_decode_time_seconds": lambda request: request.decode_s,
    "request_inference_time_seconds": lambda request: request.inference_s,
    "request_time_per_output_token_seconds": lambda request: request.time_per_output_token_s,
    "request_prompt_tokens": lambda request: request.prompt_tokens,
    "request_generation_tokens": lambda request: request.generation_tokens,
}


def _seconds(name: str, bounds: tuple[float, ...]) -> MetricSpec:
    words = name.removesuffix("_seconds").replace("_", " ")
    return MetricSpec(name, "histogram", f"Histogram of {words} in seconds.", bounds=bounds)


def _tokens(name: str, bounds: tuple[float, ...]) -> MetricSpec:
    words = name.removesuffix("_total").replace("_", " ")
    return MetricSpec(name, "histogram", f"Histogram of {words}.", bounds=bounds)


def _registered(spec: MetricSpec, tags: dict[str, str]) -> metrics.Metric:
    name = f"vllm_{spec.name}"
    if spec.kind == "histogram":
        metric = metrics.Histogram(name, spec.description, list(spec.bounds), spec.labels)
    else:
        kind = metrics.Gauge if spec.kind == "gauge" else metrics.Counter
        metric = kind(name, spec.description, spec.labels)
    return metric.set_default_tags(tags)
