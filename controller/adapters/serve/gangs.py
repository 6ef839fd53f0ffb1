"""What one replica of a deployment takes as a whole: its placement group, as Ray placed it.

The only place where groups made in code show (`ray.serve.llm`, our own `gpus`): Serve's
`required_resources` is the actor's part alone.
"""

from collections.abc import Mapping
from typing import Any

from controller.core.types import DeploymentId

Bundles = tuple[Mapping[str, float], ...]

PATH = "/api/v0/placement_groups?detail=1&limit=10000"
PREFIX = "SERVE_REPLICA::"


def gangs(answer: Any) -> dict[DeploymentId, Bundles]:
    """Bundles of a replica by deployment, of those that have a group, from the answer of `PATH`.

    A group that waits counts like one that is placed; where they differ, as while a deployment
    is replaced, one that waits wins, as it is the newer. Raises KeyError, TypeError,
    ValueError or AttributeError on an answer of another form.
    """
    found: dict[DeploymentId, Bundles] = {}
    groups = [g for g in answer["data"]["result"]["result"] if g["state"] != "REMOVED"]
    for group in sorted(groups, key=lambda group: group["state"] == "PENDING"):
        name = group["name"] or ""
        if name.startswith(PREFIX):
            application, deployment, _ = name.removeprefix(PREFIX).split("#", 2)
            bundles = tuple(_needs(bundle["unit_resources"]) for bundle in group["bundles"])
            found[DeploymentId(application, deployment)] = bundles
    return found


def _needs(resources: Any) -> Mapping[str, float]:
    return {name: float(amount) for name, amount in resources.items()}
