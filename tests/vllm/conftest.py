"""One cluster with one warm real engine, shared by every test of the group.

A test that kills or adds an engine leaves one warm engine behind, as it found it.
"""

import json
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

with warnings.catch_warnings():
    # Ray's own deprecations would fail the suite, in which warnings are errors.
    warnings.simplefilter("ignore")
    import ray.serve  # noqa: F401

from controller.demo.cluster import RayCluster
from controller.demo.processes import ProcessGroup
from tests.serve_app.deployed import Deployed
from tests.serve_app.deployed import becomes as becomes
from tests.serve_app.deployed import stream as stream

CONFIGS = Path(__file__).resolve().parents[2] / "serve_app/configs"
MODEL = "tiny"
START_WITHIN_S = 240.0


def shipped(config: str, **changes: Any) -> dict[str, Any]:
    """The one application of a shipped config, with some of its keys changed."""
    [one] = yaml.safe_load((CONFIGS / config).read_text())["applications"]
    assert isinstance(one, dict)
    return one | changes


def shared_application() -> dict[str, Any]:
    """vllm-cpu.yaml with the tests, in Leadtime's place, as its only scaler."""
    one = shipped("vllm-cpu.yaml", external_scaler_enabled=True)
    for deployment in one["deployments"]:
        if deployment["name"] == "LLM":
            del deployment["autoscaling_config"]
            deployment["num_replicas"] = 1
    return one


class Served(Deployed):
    """The application, the processes it runs in and the first page of metrics."""

    def __init__(self, cluster: RayCluster, group: ProcessGroup) -> None:
        super().__init__(cluster, "chat")
        self.group = group
        self.first_page = ""

    def keep_first_page(self) -> None:
        """Keep the page as it is when the replica serves and nobody has asked it anything."""
        deadline_s = time.monotonic() + 15
        while time.monotonic() < deadline_s and 'deployment="LLM"' not in self.first_page:
            time.sleep(0.5)
            self.first_page = self.page()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    group = ProcessGroup(tmp_path_factory.mktemp("vllm"))
    with RayCluster(group, cpus=8) as cluster:
        cluster.deploy({"applications": [shared_application()]}, within_s=START_WITHIN_S)
        served = Served(cluster, group)
        served.keep_first_page()
        yield served


def engine_of(config: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The engine of a shipped config and the options of the replicas that it needs."""
    one = shipped(config)
    [llm] = [each for each in one["deployments"] if each["name"] == "LLM"]
    return one["args"]["engine"], llm["ray_actor_options"]


def replica_ids(served: Served, application: str, deployment: str) -> set[str]:
    """Ids of a deployment's replicas."""
    found = served.cluster.applications()[application]["deployments"][deployment]
    return {one["replica_id"] for one in found["replicas"]}


@contextmanager
def beside(served: Served, application: dict[str, Any]) -> Iterator[Served]:
    """Another application beside the shared one, whose engine is left alone."""
    ours = replica_ids(served, "chat", "LLM")
    both = {"applications": [shared_application(), application]}
    served.cluster.deploy(both, within_s=START_WITHIN_S)
    try:
        yield served
    finally:
        served.cluster.deploy({"applications": [shared_application()]}, within_s=START_WITHIN_S)
    assert replica_ids(served, "chat", "LLM") == ours, "the shared engine was left alone"


@pytest.fixture
async def client(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.cluster.http_url, timeout=60) as client:
        yield client


def chat(max_tokens: int, **more: Any) -> dict[str, Any]:
    """A body whose answer has exactly so many tokens."""
    messages = [{"role": "user", "content": "hello, what does the queue wait for?"}]
    fixed = {"model": MODEL, "messages": messages, "max_tokens": max_tokens, "ignore_eos": True}
    return fixed | more


def usage(events: list[str]) -> dict[str, int]:
    """The usage that a streamed answer ended with."""
    assert events[-1] == "[DONE]", events[-3:]
    found = json.loads(events[-2])["usage"]
    assert isinstance(found, dict)
    return found
