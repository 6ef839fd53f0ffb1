"""Holds a deployment at a number of replicas for as long as a run needs it."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from controller.adapters.serve.api import APPLICATIONS, ServeApi, ServeError, Unreachable
from controller.adapters.serve.view import Actuation, Deployment, View
from controller.core.types import DeploymentId, ReplicaState

POLL_S = 0.5


class NotReady(RuntimeError):
    """The replicas asked for did not come; the message says what Serve said."""


class HeldReplicas:
    """`async with HeldReplicas(...) as held: await held.set(3)`; what was there before is there
    again at the end, whatever happened."""

    def __init__(self, api: ServeApi, target: DeploymentId) -> None:
        self._api = api
        self._target = target
        self._before: Deployment | None = None

    async def __aenter__(self) -> "HeldReplicas":
        view = await self._api.view(resources=False)
        self._before = _scalable(view, self._target)
        return self

    async def __aexit__(self, *_: object) -> None:
        before = self._before
        if before is None:
            return
        if before.actuation is Actuation.EXTERNAL:
            await self._api.scale(self._target, before.requested)
        else:
            view = await self._api.view(resources=False)
            scaling = (before.submitted or {})["autoscaling_config"]
            config = _with_bounds(view.configs[self._target.application], self._target, scaling)
            await self._api.put(view, self._target.application, config)

    async def set(self, count: int, within_s: float) -> View:
        """Have exactly `count` replicas RUNNING; raises NotReady, or ServeError."""
        view = await self._api.view(resources=False)
        deployment = _scalable(view, self._target)
        if deployment.actuation is Actuation.EXTERNAL:
            await self._api.scale(self._target, count)
        else:
            scaling = (deployment.submitted or {})["autoscaling_config"]
            # Equal bounds: Serve's own autoscaler has nothing to decide while we measure.
            held = {**scaling, "min_replicas": count, "max_replicas": count}
            config = _with_bounds(view.configs[self._target.application], self._target, held)
            await self._api.put(view, self._target.application, config)
        try:
            async with asyncio.timeout(within_s):
                return await self._settled(count)
        except TimeoutError:
            raise NotReady(await self._why(count, within_s)) from None

    async def _settled(self, count: int) -> View:
        while True:
            with suppress(Unreachable):
                view = await self._api.view(resources=False)
                found = view.deployments.get(self._target)
                if found is not None and found.requested == count:
                    states = [member.state for member in found.members]
                    if states == [ReplicaState.RUNNING] * count:
                        return view
            await asyncio.sleep(POLL_S)

    async def _why(self, count: int, within_s: float) -> str:
        view = await self._api.view(resources=False)
        found = view.deployments.get(self._target)
        said = found.message.strip() if found is not None else "it is not deployed"
        states = [member.state.value for member in found.members] if found is not None else []
        return (
            f"{self._target} did not settle at {count} replicas within {within_s:.0f} s: "
            f"{', '.join(states) or 'no replica'}; {said or 'Serve gives no reason'}"
        )


async def address(api: ServeApi, serve_host: str, application: str) -> str:
    """The URL at which clients reach an application. Raises ServeError."""
    answer = await api.get(APPLICATIONS)
    try:
        options = answer["http_options"]
        prefix = answer["applications"][application]["route_prefix"] or ""
        host, port = options["host"], options["port"]
    except (KeyError, TypeError) as error:
        raise ServeError(f"Serve does not say where {application} listens: {error!r}") from error
    if host in ("0.0.0.0", "::", ""):
        host = serve_host
    return f"http://{host}:{port}{prefix.rstrip('/')}"


def _scalable(view: View, target: DeploymentId) -> Deployment:
    found = view.deployments.get(target)
    if found is None:
        raise ServeError(f"{target} is not deployed")
    if found.actuation is None:
        raise ServeError(f"{target} is neither autoscaled nor open to an external scaler")
    refusal = found.refusal(found.actuation)
    if refusal is not None:
        raise ServeError(f"{target} cannot be held at a number of replicas: {refusal}")
    return found


def _with_bounds(
    config: Mapping[str, Any], target: DeploymentId, scaling: Mapping[str, Any]
) -> dict[str, Any]:
    """An application's config with one deployment's autoscaling replaced."""
    deployments = [
        {**entry, "autoscaling_config": dict(scaling)}
        if entry["name"] == target.deployment
        else entry
        for entry in config["deployments"]
    ]
    return {**config, "deployments": deployments}
