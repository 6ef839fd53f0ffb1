"""Carries decisions out in Serve, each deployment by the way chosen for it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from controller.adapters.serve.api import ServeApi, ServeError, Unreachable
from controller.adapters.serve.view import Actuation, Deployment, View
from controller.core.types import Action, DeploymentId, Hold, Outcome, Reason, ScaleDeployment


class ServeActuator:
    """Carries actions out; each deployment by the way chosen for it."""

    def __init__(
        self,
        api: ServeApi,
        actuations: Callable[[DeploymentId], Actuation],
        publish: Callable[[DeploymentId, int], None] | None = None,
    ) -> None:
        self._api = api
        self._actuations = actuations
        self._publish = publish

    async def apply(self, action: Action) -> Outcome:
        """Write what the action asks for, if that is safe and not so already."""
        if isinstance(action, Hold):
            return Outcome(action, applied=False, detail="")
        writes = {
            Actuation.POLICY: self._offer_floor,
            Actuation.FLOOR: self._raise_floor,
            Actuation.EXTERNAL: self._set_target,
        }
        return await _attempt(action, writes[self._actuations(action.target)])

    async def _offer_floor(self, action: ScaleDeployment) -> str:
        """Nothing is written to Serve: its policy comes and reads, if Serve's API answers or
        not."""
        if self._publish is None:
            raise ServeError("nothing serves floors here")
        self._publish(action.target, action.replicas)
        return f"floor {action.replicas}"

    async def _set_target(self, action: ScaleDeployment) -> str:
        view = await self._api.view(resources=False)
        _allowed(view, action, Actuation.EXTERNAL)
        await self._api.scale(action.target, action.replicas)
        return f"target {action.replicas}"

    async def _raise_floor(self, action: ScaleDeployment) -> str:
        view = await self._api.view(resources=False)
        deployment = _allowed(view, action, Actuation.FLOOR)
        if view.target_capacity is not None:
            raise ServeError("target_capacity is set: a rollout is under way")
        autoscaling = deployment.autoscaling or {}
        if action.replicas > autoscaling["max_replicas"]:
            raise ServeError(
                f"max_replicas is {autoscaling['max_replicas']} in Serve's config, "
                f"{action.replicas} wanted; raise it there or lower max_replicas here"
            )
        config = with_floor(
            view.configs[action.target.application], action.target.deployment, action.replicas
        )
        await self._api.put(view, action.target.application, config)
        return f"min_replicas {action.replicas}"


class ShadowActuator:
    """Writes nothing; says what would have been written."""

    async def apply(self, action: Action) -> Outcome:
        """An outcome that was not applied."""
        if isinstance(action, Hold):
            return Outcome(action, applied=False, detail="")
        return Outcome(action, applied=False, detail=f"shadow: would set {action.replicas}")


def with_floor(config: Mapping[str, Any], deployment: str, floor: int) -> dict[str, Any]:
    """An application's config with `min_replicas` of one deployment changed, nothing else."""
    deployments = [
        {**entry, "autoscaling_config": {**entry["autoscaling_config"], "min_replicas": floor}}
        if entry["name"] == deployment
        else entry
        for entry in config["deployments"]
    ]
    return {**config, "deployments": deployments}


def _allowed(view: View, action: ScaleDeployment, actuation: Actuation) -> Deployment:
    deployment = view.deployments.get(action.target)
    if deployment is None:
        raise ServeError(f"{action.target} is not deployed")
    refusal = deployment.refusal(actuation)
    if refusal is not None:
        raise ServeError(f"actuation {actuation} refused: {refusal}")
    return deployment


async def _attempt(
    action: ScaleDeployment, write: Callable[[ScaleDeployment], Awaitable[str]]
) -> Outcome:
    try:
        return Outcome(action, applied=True, detail=await write(action))
    except Unreachable as error:
        return Outcome(action, False, str(error), Reason.SERVE_UNREACHABLE)
    except ServeError as error:
        return Outcome(action, False, str(error))
