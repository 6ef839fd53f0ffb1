"""A deployment is held at a number of replicas, and put back whatever happened."""

import asyncio
import copy
import json
import threading
from typing import Any

import httpx
import pytest

from controller.adapters.serve.api import ServeApi, ServeError
from controller.bench.replicas import HeldReplicas, NotReady, address
from controller.core.types import DeploymentId
from tests.adapters.fake_server import Answer, Fake, serving
from tests.adapters.test_serve import APPLICATIONS

AUTO, EXTERNAL = DeploymentId("gang", "Model"), DeploymentId("ext", "Model")


def ok(body: Any) -> Answer:
    return 200, "application/json", json.dumps(body).encode()


class Dashboard:
    """Serve that does at once what it is told, or, `stuck`, never."""

    def __init__(self, stuck: bool = False) -> None:
        self.state = copy.deepcopy(APPLICATIONS)
        self.stuck = stuck
        self.written = threading.Event()
        self.fake: Fake | None = None

    def answer(self, path: str, _: dict[str, str]) -> Answer:
        assert self.fake is not None
        asked = self.fake.asked[-1]
        if asked["method"] == "PUT":
            for config in json.loads(asked["body"])["applications"]:
                self._put(config)
            self.written.set()
            return 200, "text/plain", b""
        if asked["method"] == "POST":
            name = path.split("/")[4]
            self._have(name, json.loads(asked["body"])["target_num_replicas"])
            return ok({"message": "ok"})
        return ok(self.state)

    def _put(self, config: dict[str, Any]) -> None:
        self.state["applications"][config["name"]]["deployed_app_config"] = config
        for entry in config.get("deployments", []):
            scaling = entry.get("autoscaling_config")
            if scaling and scaling["min_replicas"] == scaling["max_replicas"]:
                self._have(config["name"], scaling["min_replicas"])

    def _have(self, application: str, count: int) -> None:
        deployment = self.state["applications"][application]["deployments"]["Model"]
        deployment["target_num_replicas"] = count
        member = deployment["replicas"][0]
        if not self.stuck:
            deployment["replicas"] = [
                {**member, "replica_id": f"r{place}", "state": "RUNNING"} for place in range(count)
            ]

    def scaling(self, target: DeploymentId) -> Any:
        config = self.state["applications"][target.application]["deployed_app_config"]
        [entry] = [e for e in config["deployments"] if e["name"] == target.deployment]
        return entry.get("autoscaling_config")


@pytest.mark.parametrize("target", [AUTO, EXTERNAL], ids=["floor", "external"])
async def test_held_at_a_number_and_put_back(target: DeploymentId) -> None:
    dashboard = Dashboard()
    with serving(dashboard.answer) as fake:
        dashboard.fake = fake
        api = ServeApi(httpx.AsyncClient(base_url=fake.url))
        before = copy.deepcopy(dashboard.scaling(target))
        count_before = dashboard.state["applications"][target.application]["deployments"]["Model"][
            "target_num_replicas"
        ]
        async with HeldReplicas(api, target) as held:
            for count in (2, 3):
                view = await held.set(count, 5.0)
                assert len(view.deployments[target].members) == count
            if target == AUTO:
                assert dashboard.scaling(target)["max_replicas"] == 3
        assert dashboard.scaling(target) == before
        if target == EXTERNAL:
            deployment = dashboard.state["applications"]["ext"]["deployments"]["Model"]
            assert deployment["target_num_replicas"] == count_before


async def test_put_back_after_a_failure_which_says_what_serve_said() -> None:
    dashboard = Dashboard(stuck=True)
    with serving(dashboard.answer) as fake:
        dashboard.fake = fake
        api = ServeApi(httpx.AsyncClient(base_url=fake.url))
        before = copy.deepcopy(dashboard.scaling(AUTO))
        with pytest.raises(NotReady, match=r"gang/Model did not settle at 4 replicas"):
            async with HeldReplicas(api, AUTO) as held:
                await held.set(4, 0.3)
        assert dashboard.scaling(AUTO) == before


async def test_put_back_when_it_is_interrupted() -> None:
    dashboard = Dashboard(stuck=True)
    with serving(dashboard.answer) as fake:
        dashboard.fake = fake
        api = ServeApi(httpx.AsyncClient(base_url=fake.url))
        before = copy.deepcopy(dashboard.scaling(AUTO))

        async def measure() -> None:
            async with HeldReplicas(api, AUTO) as held:
                await held.set(4, 60.0)

        measuring = asyncio.create_task(measure())
        assert await asyncio.to_thread(dashboard.written.wait, 10)
        assert dashboard.scaling(AUTO) != before
        measuring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await measuring
        assert dashboard.scaling(AUTO) == before


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (DeploymentId("init", "Model"), "initial_replicas is set"),
        (DeploymentId("auto", "Ingress"), "neither autoscaled nor open"),
        (DeploymentId("auto", "Nobody"), "is not deployed"),
    ],
)
async def test_what_cannot_be_held_is_refused_before_anything_is_written(
    target: DeploymentId, said: str
) -> None:
    dashboard = Dashboard()
    with serving(dashboard.answer) as fake:
        dashboard.fake = fake
        api = ServeApi(httpx.AsyncClient(base_url=fake.url))
        with pytest.raises(ServeError, match=said):
            async with HeldReplicas(api, target):
                pass
        assert {asked["method"] for asked in fake.asked} == {"GET"}


async def test_serve_tells_where_clients_go() -> None:
    dashboard = Dashboard()
    dashboard.state["http_options"] |= {"host": "0.0.0.0", "port": 8000}
    with serving(dashboard.answer) as fake:
        dashboard.fake = fake
        api = ServeApi(httpx.AsyncClient(base_url=fake.url))
        assert await address(api, "ray-head", "ext") == "http://ray-head:8000/ext"
        with pytest.raises(ServeError, match="nowhere"):
            await address(api, "ray-head", "nowhere")
