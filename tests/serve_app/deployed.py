"""A deployed application as its clients and its operators see it."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx

from controller.demo.cluster import RayCluster


class Deployed:
    """The application of that name on a cluster, and its deployment `LLM`."""

    def __init__(self, cluster: RayCluster, application: str) -> None:
        self.cluster = cluster
        self.application = application

    def page(self) -> str:
        """Ray's metrics page."""
        return httpx.get(f"http://127.0.0.1:{self.cluster.metrics_port}/metrics", timeout=10).text

    def total(self, name: str, *labels: str) -> float | None:
        """Sum of the series of that name that bear all these labels; None if there is none."""
        values = [
            float(line.rsplit(" ", 1)[1])
            for line in self.page().splitlines()
            if line.startswith(f"{name}{{") and all(label in line for label in labels)
        ]
        return sum(values) if values else None

    def llm(self) -> dict[str, Any]:
        """Serve's account of the deployment with the engines."""
        found = self.cluster.applications()[self.application]["deployments"]["LLM"]
        assert isinstance(found, dict)
        return found

    def running(self) -> list[dict[str, Any]]:
        """The replicas that serve."""
        return [one for one in self.llm()["replicas"] if one["state"] == "RUNNING"]

    def scale(self, replicas: int) -> None:
        """What Leadtime does under an external scaler."""
        path = f"applications/{self.application}/deployments/LLM/scale"
        url = f"{self.cluster.dashboard_url}/api/v1/{path}"
        httpx.post(url, json={"target_num_replicas": replicas}, timeout=10).raise_for_status()


async def stream(
    client: httpx.AsyncClient,
    body: dict[str, Any],
    began: asyncio.Event | None = None,
    path: str = "/v1/chat/completions",
) -> list[str]:
    """The data of every event of a streamed answer; sets `began` at the first."""
    body = body | {"stream": True, "stream_options": {"include_usage": True}}
    async with client.stream("POST", path, json=body) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        events = []
        async for line in response.aiter_lines():
            if began is not None:
                began.set()
            events += [line.removeprefix("data: ")] if line else []
    return events


async def becomes(condition: Callable[[], bool], within_s: float = 10.0) -> bool:
    """Whether the condition comes true in time."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        await asyncio.sleep(0.25)
    return False
