"""What Serve's REST answers mean: applications, deployments, replicas, free resources.

What each way of scaling may do without restarting replicas was found by running Ray Serve
2.60; a refusal says what stands in the way and what to change.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from types import MappingProxyType
from typing import Any

from controller.adapters.serve.gangs import Bundles
from controller.core.budget import room
from controller.core.types import DeploymentId, Replica, Replicas, ReplicaState

UNLIMITED_ONGOING = 1_000_000
MOST_ROOM = 1_000
MOST_REPLICAS = 1_000_000
UNITS = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
RESOURCE_LINE = re.compile(
    r"(\S+)/(\S+) (\S+)(?: \((\S+) used of (\S+) reserved in placement groups\))?"
)
SCALING_NUMBERS = (
    "initial_replicas",
    "target_ongoing_requests",
    "upscale_delay_s",
    "downscale_delay_s",
    "upscaling_factor",
    "downscaling_factor",
)
GONE = frozenset({"DELETING"})


POLICY_CLASS = "LeadtimePolicy"


class Actuation(StrEnum):
    """How replicas are set: a floor that our policy inside Serve reads, `min_replicas` under
    Serve's own autoscaler, or the target."""

    POLICY = "policy"
    FLOOR = "floor"
    EXTERNAL = "external"


@dataclass(frozen=True)
class Deployment:
    """One deployment as Serve reports it, with the application it belongs to."""

    target: DeploymentId
    requested: int
    status: str
    message: str
    config: Mapping[str, Any]
    submitted: Mapping[str, Any] | None
    members: tuple[Replica, ...]
    bundles: Bundles
    declarative: bool
    external: bool
    application_status: str
    deployed_s: float
    actors: frozenset[str] = frozenset()
    calls: tuple[DeploymentId, ...] = ()
    application_policy: bool = False

    @property
    def autoscaling(self) -> Mapping[str, Any] | None:
        """The effective autoscaling config; None when Serve does not scale it."""
        return self.config.get("autoscaling_config")

    @property
    def actuation(self) -> Actuation | None:
        """The way that fits: `external` where enabled, `policy` where ours is configured, else
        `floor` where Serve autoscales."""
        if self.external:
            return Actuation.EXTERNAL
        if self._has_our_policy:
            return Actuation.POLICY
        return Actuation.FLOOR if self.autoscaling else None

    def refusal(self, actuation: Actuation) -> str | None:
        """Why this way must not be used on this deployment; None if it may."""
        refusals = {
            Actuation.EXTERNAL: self._external_refusal,
            Actuation.POLICY: self._policy_refusal,
            Actuation.FLOOR: self._floor_refusal,
        }
        return refusals[actuation]()

    def hindrances(self, actuation: Actuation) -> list[str]:
        """What lets this way work, but late or not fully; nothing if all is well."""
        scaling = self.autoscaling
        if actuation is not Actuation.POLICY or scaling is None:
            return []
        delays = [
            f"{name} is {scaling[name]:g}, by which Serve holds our floor back; set it to 0 and "
            f"give {scaling[name]:g} to policy_kwargs"
            for name in ("upscale_delay_s", "downscale_delay_s")
            if scaling.get(name)
        ]
        factors = [
            f"{name} is set, by which Serve changes our floor; move it to policy_kwargs"
            for name in ("upscaling_factor", "downscaling_factor")
            if scaling.get(name) not in (None, 1.0)
        ]
        return delays + factors

    @property
    def _has_our_policy(self) -> bool:
        function = ((self.autoscaling or {}).get("policy") or {}).get("policy_function")
        return str(function).rpartition(":")[2].rpartition(".")[2] == POLICY_CLASS

    def _policy_refusal(self) -> str | None:
        if self.external:
            return "external_scaler_enabled is true; use actuation: external"
        if not self._has_our_policy:
            return (
                f"its autoscaling_config has no policy of class {POLICY_CLASS}; adding it replaces "
                "every replica of the application once"
            )
        if self.application_policy:
            return "the application's autoscaling_policy goes before the deployment's; remove it"
        return None

    def setpoint(self, actuation: Actuation, published: int | None = None) -> int:
        """The number that this way of scaling writes, as it stands now; `published` is the floor
        that our policy may read."""
        if actuation is Actuation.POLICY and published is not None:
            return published
        if actuation is not Actuation.EXTERNAL and self.autoscaling:
            return int(self.autoscaling["min_replicas"])
        return self.requested

    def _external_refusal(self) -> str | None:
        if not self.external:
            return "external_scaler_enabled is not true in the application's config"
        if self.autoscaling:
            return (
                "autoscaling is declared in code, so Serve would fight the external scaler; set "
                "num_replicas: 1 and autoscaling_config: null for it under deployments:"
            )
        return None

    def _floor_refusal(self) -> str | None:
        checks = (
            (self.external, "external_scaler_enabled is true; use actuation: external"),
            (
                not self.declarative,
                "the application was deployed from Python; deploy it by a config file",
            ),
            (self.application_status == "DEPLOY_FAILED", "the application's last deploy failed"),
            (
                not (self.submitted or {}).get("autoscaling_config"),
                "its autoscaling_config is not in the config file's deployments:, so the first "
                "change would replace every replica; add the effective one there once",
            ),
            (
                ((self.submitted or {}).get("autoscaling_config") or {}).get("initial_replicas")
                is not None,
                "initial_replicas is set, which every change of the config resets the target to; "
                "remove it",
            ),
        )
        return next((why for wrong, why in checks if wrong), None)


@dataclass(frozen=True)
class View:
    """Serve's answer at one moment: deployments, and the free resources of each node."""

    deployments: Mapping[DeploymentId, Deployment]
    configs: Mapping[str, Mapping[str, Any]]
    target_capacity: float | None
    free: Sequence[Mapping[str, float]] = field(default_factory=tuple)

    def replicas(
        self,
        target: DeploymentId,
        actuation: Actuation,
        elastic: bool,
        published: int | None = None,
    ) -> Replicas:
        """What the planner needs to know of a deployment; KeyError when it is not there."""
        deployment = self.deployments[target]
        ongoing = deployment.config.get("max_ongoing_requests")
        free = None if elastic else room(self.free, deployment.bundles, MOST_ROOM)
        return Replicas(
            requested=deployment.requested,
            setpoint=deployment.setpoint(actuation, published),
            members=deployment.members,
            room=free,
            max_ongoing_requests=None if not ongoing or ongoing > UNLIMITED_ONGOING else ongoing,
            deployed_s=deployment.deployed_s,
            callers={caller: self.deployments[caller].actors for caller in self.callers(target)},
            gpus=sum(bundle.get("GPU", 0.0) for bundle in deployment.bundles),
            drain_s=deployment.config.get("graceful_shutdown_timeout_s"),
        )

    def callers(self, target: DeploymentId) -> tuple[DeploymentId, ...]:
        """Every deployment through which requests reach this one, the nearest first."""
        found: dict[DeploymentId, None] = {}
        behind = [target]
        while behind:
            called = behind.pop(0)
            nearer = [t for t, d in self.deployments.items() if called in d.calls and t != target]
            behind += [caller for caller in nearer if caller not in found]
            found.update(dict.fromkeys(nearer))
        return tuple(found)


def parse(
    answer: Any,
    free: Sequence[Mapping[str, float]],
    gangs: Mapping[DeploymentId, Bundles] = MappingProxyType({}),
) -> View:
    """A view from the answer of GET /api/serve/applications/, and the placement groups as Ray
    lists them.

    Raises KeyError, TypeError, ValueError or AttributeError on an answer of another form.
    """
    applications = answer["applications"]
    deployments = {}
    for name, application in applications.items():
        for deployment in application["deployments"].values():
            target = DeploymentId(name, deployment["name"])
            deployments[target] = _deployment(target, application, deployment, gangs.get(target))
    configs = {
        name: application["deployed_app_config"]
        for name, application in applications.items()
        if application["deployed_app_config"] and application["status"] not in GONE
    }
    return View(deployments, configs, answer.get("target_capacity"), free)


def free_resources(answer: Any) -> list[dict[str, float]]:
    """Free amounts of each node from the answer of GET /nodes?view=summary; raises as `parse`.

    Each node is a text such as "0.2/8.0 CPU\\n0B/22.95GiB memory", used before total. Ray leaves
    what a placement group holds and does not use out of "used" and adds it to the line: "3.0/4.0
    GPU (0.0 used of 1.0 reserved in placement groups)" has nothing free.
    """
    return [
        {name: free for name, free, _ in map(_resource, text.splitlines())}
        for text in answer["data"]["nodeLogicalResources"].values()
    ]


def total_resources(answer: Any) -> dict[str, dict[str, float]]:
    """Amounts in all by node id, free or not, from the same answer; raises as `parse`."""
    return {
        node: {name: total for name, _, total in map(_resource, text.splitlines())}
        for node, text in answer["data"]["nodeLogicalResources"].items()
    }


def _resource(line: str) -> tuple[str, float, float]:
    """Name, free amount and total of a line."""
    found = RESOURCE_LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"no resource line: {line!r}")
    used, total, name, reserved_used, reserved = found.groups("0")
    idle = _amount(reserved) - _amount(reserved_used)
    return name, _amount(total) - _amount(used) - idle, _amount(total)


def _amount(text: str) -> float:
    number = text.rstrip("BKMGTi")
    return float(number) * UNITS.get(text[len(number) :], 1.0)


def _deployment(
    target: DeploymentId, application: Any, deployment: Any, gang: Bundles | None
) -> Deployment:
    config = application["deployed_app_config"]
    entries = (config or {}).get("deployments") or []
    submitted = next((e for e in entries if e["name"] == target.deployment), None)
    _mapping((submitted or {}).get("autoscaling_config"))
    requested = int(deployment["target_num_replicas"])
    if not 0 <= requested <= MOST_REPLICAS:
        raise ValueError(f"target_num_replicas of {target} is {requested}")
    str(target).encode()  # A name that no text can hold would break whoever writes it down.
    return Deployment(
        target=target,
        requested=requested,
        status=deployment["status"],
        message=deployment["message"],
        config=_effective(deployment["deployment_config"]),
        submitted=submitted,
        members=tuple(_replica(member) for member in deployment["replicas"]),
        bundles=_bundles(submitted, gang, deployment),
        declarative=config is not None,
        external=bool(application["external_scaler_enabled"]),
        application_status=application["status"],
        deployed_s=float(application["last_deployed_time_s"]),
        actors=frozenset(m["actor_id"] for m in deployment["replicas"] if m.get("actor_id")),
        calls=_calls(target, application),
        application_policy=bool((config or {}).get("autoscaling_policy")),
    )


def _effective(config: Any) -> Mapping[str, Any]:
    """A config in force; raises where what is read of it later is not as Serve gives it."""
    for name in ("max_ongoing_requests", "graceful_shutdown_timeout_s"):
        _number(config.get(name))
    scaling = _mapping(config.get("autoscaling_config"))
    if scaling:
        _mapping(scaling.get("policy"))
        for bound in ("min_replicas", "max_replicas"):
            if not 0 <= int(scaling[bound]) <= MOST_REPLICAS:
                raise ValueError(f"{bound} is {scaling[bound]}")
        for name in SCALING_NUMBERS:
            _number(scaling.get(name))
    return {**config, "autoscaling_config": scaling}


def _mapping(value: Any) -> Mapping[str, Any] | None:
    """The same; None if there is none."""
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{value!r:.100} is no mapping")
    return value


def _number(value: Any) -> None:
    if value is not None and not (isinstance(value, int | float) and 0 <= value < inf):
        raise ValueError(f"{value!r:.100} is no number")


def _calls(target: DeploymentId, application: Any) -> tuple[DeploymentId, ...]:
    """The deployments that one calls; none while Serve has not drawn its topology."""
    nodes = (application.get("deployment_topology") or {}).get("nodes") or {}
    called = (nodes.get(target.deployment) or {}).get("outbound_deployments") or ()
    return tuple(DeploymentId(one["app_name"], one["name"]) for one in called)


def _bundles(submitted: Mapping[str, Any] | None, gang: Bundles | None, deployment: Any) -> Bundles:
    """What one replica needs: the config's groups, else those that Ray made, else the actor."""
    bundles = (submitted or {}).get("placement_group_bundles")
    needs = bundles or gang or [deployment["required_resources"] or {}]
    return tuple({name: float(amount) for name, amount in need.items()} for need in needs)


def _replica(member: Any) -> Replica:
    return Replica(
        id=member["replica_id"],
        state=ReplicaState(member["state"]),
        start_s=float(member["start_time_s"]),
        placed=member.get("pid") is not None,
        node_ip=member.get("node_ip") or "",
        pid=member.get("pid") or 0,
    )
