"""The KubeRay manifests agree with the shipped configs, with each other and with Ray's schema."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from serve_app.app import placement
from serve_app.settings import parse_args

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "serve_app/kubernetes"
CONFIGS = ROOT / "serve_app/configs"


def documents(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """A manifest's objects by kind and name."""
    found = yaml.safe_load_all((MANIFESTS / name).read_text())
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


SERVICE = documents("rayservice.yaml")["RayService", "llm"]["spec"]
CLUSTER = SERVICE["rayClusterConfig"]
SERVE = yaml.safe_load(SERVICE["serveConfigV2"])
GROUPS = {group["groupName"]: group for group in CLUSTER["workerGroupSpecs"]}


def container(group: dict[str, Any]) -> dict[str, Any]:
    [one] = group["template"]["spec"]["containers"]
    assert isinstance(one, dict)
    return one


def limits(group: dict[str, Any]) -> dict[str, float]:
    """What Ray sees of a pod: it reads the limits."""
    found = container(group)["resources"]["limits"]
    return {"GPU": float(found.get("nvidia.com/gpu", 0)), "CPU": float(found["cpu"])}


PODS = {"head": CLUSTER["headGroupSpec"], **GROUPS}
each_pod = pytest.mark.parametrize("name", PODS)


def test_serve_takes_its_config() -> None:
    ServeDeploySchema.model_validate(SERVE)


@pytest.mark.parametrize(
    ("application", "config"), [(0, "vllm-gpu.yaml"), (1, "vllm-gpu-tp4.yaml")]
)
def test_its_applications_are_those_of_the_configs(application: int, config: str) -> None:
    [shipped] = yaml.safe_load((CONFIGS / config).read_text())["applications"]
    deployed = SERVE["applications"][application]
    own = {"name": deployed["name"], "route_prefix": deployed["route_prefix"]}
    assert deployed == shipped | own


def test_ray_is_the_version_that_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [pinned] = project["optional-dependencies"]["serve"]
    assert pinned.endswith(f"=={CLUSTER['rayVersion']}")
    assert f"ray-llm:{CLUSTER['rayVersion']}" in (MANIFESTS / "Dockerfile").read_text()


@pytest.mark.parametrize("application", SERVE["applications"], ids=lambda one: one["name"])
def test_a_replica_fits_a_pod_and_the_group_its_maximum(application: dict[str, Any]) -> None:
    settings = parse_args(application["args"])
    needs = placement(settings)["ray_actor_options"]
    [llm] = [one for one in application["deployments"] if one["name"] == "LLM"]
    group = GROUPS[f"gpu-{settings.gpus}"]
    assert limits(group)["GPU"] == needs["num_gpus"]
    assert limits(group)["CPU"] >= needs["num_cpus"]
    assert group["minReplicas"] >= llm["autoscaling_config"]["min_replicas"]
    assert group["maxReplicas"] >= llm["autoscaling_config"]["max_replicas"]
    grace_s = group["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > llm["graceful_shutdown_timeout_s"]


def test_the_head_only_leads_and_the_ingresses_have_a_place() -> None:
    assert CLUSTER["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    ingresses = sum(
        one["num_replicas"] * one["ray_actor_options"]["num_cpus"]
        for application in SERVE["applications"]
        for one in application["deployments"]
        if one["name"] == "Ingress"
    )
    assert GROUPS["cpu"]["minReplicas"] * limits(GROUPS["cpu"])["CPU"] >= ingresses


@each_pod
def test_every_pod_is_probed_and_measured(name: str) -> None:
    one = container(PODS[name])
    assert one["readinessProbe"]["httpGet"]["port"]
    assert one["livenessProbe"]["httpGet"]["port"]
    assert "metrics" in {port["name"] for port in one["ports"]}
    assert {"name": "RAY_metrics_report_interval_ms", "value": "5000"} in one["env"]


def test_monitors_scrape_ports_that_the_pods_have() -> None:
    monitors = documents("pod-monitors.yaml")
    for kind, pods in (("head", [PODS["head"]]), ("worker", list(GROUPS.values()))):
        [monitor] = [
            one["spec"]
            for one in monitors.values()
            if one["spec"]["selector"]["matchLabels"] == {"ray.io/node-type": kind}
        ]
        scraped = {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]}
        for pod in pods:
            assert scraped <= {port["name"] for port in container(pod)["ports"]}


def test_the_heads_memory_is_the_redis_beside_it() -> None:
    redis = documents("redis.yaml")
    service = redis["Service", "ray-redis"]
    options = CLUSTER["gcsFaultToleranceOptions"]
    port = service["spec"]["ports"][0]["port"]
    assert options["redisAddress"] == f"{service['metadata']['name']}:{port}"
    server = redis["StatefulSet", "ray-redis"]["spec"]["template"]["spec"]["containers"][0]
    assert options["redisPassword"]["valueFrom"] == server["env"][0]["valueFrom"]
    assert "--appendonly yes" in server["args"][0]


def test_no_secret_stands_in_a_file() -> None:
    for path in MANIFESTS.iterdir():
        assert "kind: Secret" not in path.read_text()
    assert CLUSTER["authOptions"] == {"mode": "token"}
