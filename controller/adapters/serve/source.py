"""Which deployments are ours, how each is scaled, and what Serve says of them now."""

from collections.abc import Callable, Mapping

from controller.adapters.serve.api import ServeApi, ServeError
from controller.adapters.serve.view import Actuation, Deployment, View
from controller.core.types import DeploymentId, Replicas

Chosen = Mapping[DeploymentId, Actuation | None]
Published = Callable[[DeploymentId], int | None]


def nothing_published(_: DeploymentId) -> None:
    """No floor is published."""


class ServeSource:
    """Reads the replicas of the chosen deployments, or of every one that can be scaled.

    `chosen` maps a deployment to its way of scaling, None for the one that fits it; empty =
    every deployment that Serve autoscales or leaves to an external scaler. `published` tells
    the floor that our policy inside Serve may read.
    """

    def __init__(
        self, api: ServeApi, chosen: Chosen, elastic: bool, published: Published = nothing_published
    ) -> None:
        self._api = api
        self._chosen = chosen
        self._elastic = elastic
        self._published = published
        self._actuations: dict[DeploymentId, Actuation] = {}

    def actuation(self, target: DeploymentId) -> Actuation:
        """The way a deployment is scaled, as last seen."""
        return self._actuations.get(target, Actuation.FLOOR)

    async def read(self) -> dict[DeploymentId, Replicas | None]:
        """Replicas by deployment; None for one that is ours and not there now (an application
        that is being rebuilt lists none). Raises ServeError."""
        view = await self._api.view(resources=not self._elastic)
        found: dict[DeploymentId, Replicas | None] = dict.fromkeys(self._ours(view))
        for target in found:
            if target in view.deployments:
                found[target] = self._replicas(view, view.deployments[target])
        return found

    def _ours(self, view: View) -> list[DeploymentId]:
        if self._chosen:
            return list(self._chosen)
        scalable = {t for t, d in view.deployments.items() if d.actuation is not None}
        return sorted(scalable | self._actuations.keys())

    def _replicas(self, view: View, deployment: Deployment) -> Replicas:
        target = deployment.target
        actuation = self._chosen.get(target) or deployment.actuation
        if actuation is None:
            raise ServeError(
                f"{target} is neither autoscaled by Serve nor open to an external scaler; give it "
                "an autoscaling_config or set external_scaler_enabled, or take it out of "
                "deployments"
            )
        self._actuations[target] = actuation
        return view.replicas(target, actuation, self._elastic, self._published(target))
