"""A daemon reduced to what leads and writes: the real lease, fence and actuator, quick ticks.

It has Serve's target at its own number at every tick, so that Serve can tell who wrote.
"""

import asyncio
import sys
import time
from pathlib import Path

import httpx

from controller.adapters.lease import JournalLease
from controller.adapters.serve.actuator import ServeActuator
from controller.adapters.serve.api import ServeApi, ServeError
from controller.adapters.serve.view import Actuation
from controller.core.types import DeploymentId, ScaleDeployment
from controller.leading import FencedActuator, Leadership

TICK_S = 0.2
TARGET = DeploymentId("chat", "LLM")


class Quiet:
    """Hears of leadership and says it on standard output."""

    def __init__(self) -> None:
        self.led = False

    def leads(self, leader: bool) -> None:
        if leader != self.led:
            print("leads" if leader else "standby", flush=True)
        self.led = leader

    def failed_source(self, source: str, error: str) -> None:
        print(f"{source}: {error}", flush=True)


async def main(journal: str, url: str, replicas: int, lease_s: float, holder: str) -> None:
    """Tick until killed."""
    lease = JournalLease(Path(journal), url, time.monotonic, lease_s, holder or None)
    client = httpx.AsyncClient(base_url=url, timeout=1.0, trust_env=False)
    api = ServeApi(client, fence=lease.left_s)
    actuator = FencedActuator(ServeActuator(api, lambda _: Actuation.EXTERNAL), lease)
    reached = False
    leadership = Leadership(lease, lambda _: None, lambda: reached, Quiet(), TICK_S, time.monotonic)
    leadership.begin()
    keeping = asyncio.create_task(leadership.keep(asyncio.Event()))
    while not keeping.done():
        try:
            view = await api.view(resources=False)
            reached = True
        except ServeError:
            reached = False
        leadership.at_tick({})
        if reached and view.deployments[TARGET].requested != replicas:
            await actuator.apply(ScaleDeployment(TARGET, replicas))
        await asyncio.sleep(TICK_S)


if __name__ == "__main__":
    _, journal, url, replicas, lease_s, holder = sys.argv
    asyncio.run(main(journal, url, int(replicas), float(lease_s), holder))
