"""How many more replicas the cluster's free resources hold, node by node."""

from collections.abc import Mapping, Sequence

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
