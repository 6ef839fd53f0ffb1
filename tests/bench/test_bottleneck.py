"""The likely bottleneck from what was seen, nearest to the client first."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller.adapters.prometheus.client import PrometheusClient, PrometheusOptions
from controller.adapters.serve.view import parse
from controller.bench.bottleneck import Evidence, likely_bottleneck
from controller.bench.evidence import gather
from controller.core.types import DeploymentId
from tests.adapters.fake_server import Answer, serving, vector

EVEN = {"a": 60.0, "b": 62.0, "c": 58.0}
SERVE = Path(__file__).parent.parent / "adapters/recorded/check-serve.json"


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (Evidence(send_lag_p99_s=0.4, proxy_busy_ratio=0.99), "load generator"),
        (
            Evidence(outer_queued={"chat/Ingress": 40.0}, proxy_busy_ratio=0.9),
            "chat/Ingress is full",
        ),
        (Evidence(ongoing={"a": 60.0, "b": 10.0, "c": 11.0}), "one hot replica"),
        (Evidence(ongoing={"a": 60.0}), "unknown"),
        (Evidence(ongoing=EVEN, proxy_busy_ratio=0.97, node_busy_ratio={"h": 0.99}), "proxy"),
        (Evidence(outer_busy_ratio={"chat/Ingress": 0.95}), "CPU of chat/Ingress"),
        (Evidence(node_busy_ratio={"h": 0.97, "w": 0.3}, head="h"), "head CPU"),
        (Evidence(node_busy_ratio={"h": 0.2, "w": 0.95}, head="h"), "CPU of node w"),
        (Evidence(kv_cache_ratio=0.97), "KV cache"),
        (Evidence(ongoing=EVEN, queued=12.0, slots=128.0), "router"),
        (Evidence(ongoing=EVEN, queued=12.0, slots=64.0), "unknown"),
        (Evidence(ongoing=EVEN, queued=0.0, slots=128.0), "unknown"),
        (Evidence(), "unknown"),
    ],
)
def test_the_first_suspect_that_the_evidence_speaks_against(seen: Evidence, name: str) -> None:
    found = likely_bottleneck(seen)
    assert found.name == name
    assert found.reason and found.fix


def series(name: str, labels: dict[str, str], *values: float) -> dict[str, Any]:
    points = [[100.0 + place, str(value)] for place, value in enumerate(values)]
    return {"metric": {"__name__": name, **labels}, "values": points}


def test_evidence_is_the_mean_of_what_ray_showed() -> None:
    answer = json.loads(SERVE.read_text())["applications"]
    view = parse(answer, ())
    llm = DeploymentId("chat", "LLM")
    [replica] = [member.id for member in view.deployments[llm].members]
    here = {"application": "chat", "deployment": "LLM"}
    front = {"application": "chat", "deployment": "Ingress"}
    found = [
        series("ray_serve_replica_processing_queries", {**here, "replica": replica}, 6, 8),
        series("ray_serve_replica_processing_queries", {**here, "replica": "gone"}, 9),
        series("ray_serve_deployment_queued_queries", {**here, "handle": "x"}, 1, 3),
        series("ray_serve_deployment_queued_queries", {**front, "handle": "y"}, 60, 62),
        series("ray_node_cpu_utilization", {"ip": "10.0.0.2", "IsHeadNode": "true"}, 90, 98),
        series("ray_component_cpu_percentage", {"Component": "ray::ProxyActor", "pid": "1"}, 70),
        series(
            "ray_component_cpu_percentage",
            {"Component": "ray::ProxyActor.receive_asgi_messages", "pid": "1"},
            90,
        ),
        series(
            "ray_component_cpu_percentage",
            {"Component": "ray::ServeReplica:chat:Ingress", "pid": "2"},
            40,
            float("nan"),
        ),
        series(
            "ray_component_cpu_percentage",
            {"Component": "ray::ServeReplica:chat:IngressOther", "pid": "3"},
            99,
        ),
        series("ray_vllm_kv_cache_usage_perc", {"ReplicaId": replica}, 0.4, 0.6),
    ]

    def prometheus(_: str, parameters: dict[str, str]) -> Answer:
        query = parameters["query"]
        return vector([s for s in found if f'"{s["metric"]["__name__"]}"' in query])

    with serving(prometheus) as fake:
        client = PrometheusClient(PrometheusOptions(fake.url))
        seen = gather(client, {}, view, llm, 30.0, 0.01)
    assert seen == Evidence(
        ongoing={replica: 7.0},
        queued=2.0,
        outer_queued={"chat/Ingress": 61.0},
        slots=8.0,
        node_busy_ratio={"10.0.0.2": 0.94},
        head="10.0.0.2",
        proxy_busy_ratio=0.8,
        outer_busy_ratio={"chat/Ingress": 0.4},
        kv_cache_ratio=0.5,
        send_lag_p99_s=0.01,
    )
    assert likely_bottleneck(seen).name == "chat/Ingress is full"
