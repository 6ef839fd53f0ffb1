"""How many more replicas the free resources hold, node by node; who gets a budget of GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor

from controller.core.types import DeploymentId, Replicas

Resources = Mapping[str, float]

TOLERANCE = 1e-6


def room(free: Sequence[Resources], bundles: Sequence[Resources], most: int) -> int:
    """Replicas that fit into the nodes' free resources, up to `most`; each needs all its
    `bundles`, every bundle on one node. Bundles go largest first onto the first node that
    takes them.

    Worked: nodes with 3 and 1 free GPUs hold three replicas of one bundle {GPU: 1}, and only
    one of the gang {GPU: 2} (`test_room`).
    """
    wanted = [{name: amount for name, amount in bundle.items() if amount > 0} for bundle in bundles]
    wanted = sorted((b for b in wanted if b), key=lambda b: -max(b.values()))
    if not wanted:
        return most
    left = [dict(node) for node in free]
    count = 0
    while count < most and _place(left, wanted):
        count += 1
    return count


def _place(left: list[dict[str, float]], bundles: Sequence[Resources]) -> bool:
    """Take one replica's bundles out of `left`; False, and nothing taken, if they do not fit."""
    taken: list[tuple[dict[str, float], Resources]] = []
    for bundle in bundles:
        node = next((node for node in left if _fits(node, bundle)), None)
        if node is None:
            for used, back in taken:
                _add(used, back, 1.0)
            return False
        _add(node, bundle, -1.0)
        taken.append((node, bundle))
    return True


def _fits(node: Resources, bundle: Resources) -> bool:
    return all(node.get(name, 0.0) + TOLERANCE >= amount for name, amount in bundle.items())


def _add(node: dict[str, float], bundle: Resources, sign: float) -> None:
    for name, amount in bundle.items():
        node[name] = node.get(name, 0.0) + sign * amount


@dataclass(frozen=True, slots=True)
class Claim:
    """What a deployment wants of a shared budget: `wanted` replicas of `gpus` GPUs each, at least
    `minimum`; `requested` it has asked for and `draining` still hold theirs."""

    wanted: int
    requested: int
    draining: int
    minimum: int
    gpus: float
    priority: int = 0


def shares(claims: Mapping[DeploymentId, Claim], budget_gpus: float) -> dict[DeploymentId, int]:
    """The most replicas that each may ask for now, so that no more than `budget_gpus` are ever
    held: minimums first, then wants, each by priority; what is freed is given on only once it
    is free.

    Worked: of 8 GPUs low priority holds 8 and high priority wants 4. Low may keep 4, high gets
    none yet; two drained later, high may ask for 2 (`test_high_priority_gets_its_share`).
    """
    order = sorted(claims, key=lambda target: (-claims[target].priority, target))
    entitled = dict.fromkeys(claims, 0)
    left = budget_gpus
    for stage in ("minimum", "wanted"):
        for target in order:
            claim = claims[target]
            more = max(0, getattr(claim, stage) - entitled[target])
            more = min(more, _whole(left, claim.gpus, more))
            entitled[target] += more
            left -= more * claim.gpus
    free = budget_gpus - sum((c.requested + c.draining) * c.gpus for c in claims.values())
    granted = {}
    for target in order:
        claim, most = claims[target], entitled[target]
        if most > claim.requested:
            most = claim.requested + _whole(free, claim.gpus, most - claim.requested)
            free -= (most - claim.requested) * claim.gpus
        granted[target] = most
    return granted


def _whole(gpus: float, each: float, most: int) -> int:
    """How many replicas, up to `most`, fit into so many GPUs."""
    return most if each <= 0 else min(most, max(0, floor(gpus / each + TOLERANCE)))


class Budget:
    """Shares a fixed number of GPUs among the deployments of a cluster, tick by tick."""

    def __init__(self, gpus: float, priorities: Mapping[DeploymentId, int]) -> None:
        self._gpus = gpus
        self._priorities = priorities

    def allot(
        self, wanted: Mapping[DeploymentId, tuple[int, int]], known: Mapping[DeploymentId, Replicas]
    ) -> dict[DeploymentId, int]:
        """The most each deployment may ask for; `wanted` is (wanted, minimum) of each."""
        claims = {
            target: Claim(
                wanted=wanted[target][0] if target in wanted else replicas.requested,
                requested=replicas.requested,
                draining=replicas.stopping,
                minimum=wanted[target][1] if target in wanted else 0,
                gpus=replicas.gpus,
                priority=self._priorities.get(target, 0),
            )
            for target, replicas in known.items()
        }
        return shares(claims, self._gpus)
