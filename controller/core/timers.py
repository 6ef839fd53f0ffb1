"""What keeps a number from changing, and for how long: part of the answer to "why not yet"."""

from collections.abc import Iterable
from typing import NamedTuple

from controller.core.overrides import Override
from controller.core.types import Plan, Timer


class Needs(NamedTuple):
    """The needs of the last lead, as (time, replicas), and that lead."""

    seen: Iterable[tuple[float, int]]
    lead_s: float


def timers(
    plan: Plan, overrides: Iterable[Override], needs: Needs, paused_until_s: float
) -> tuple[Timer, ...]:
    """What blocks, in the guards' order, with the `overrides` in force. `paused_until_s` is when
    writing goes on after a conflict; in the past where there is none."""
    found = []
    changed = {step.guard: step for step in plan.trail}
    kept = changed.get("kept_for_one_lead")
    if kept is not None:
        last_s = max(at_s for at_s, count in needs.seen if count >= kept.after)
        what = f"{kept.after} were needed within the last lead"
        found.append(Timer("kept_for_one_lead", last_s + needs.lead_s, what))
    for guard, what in (
        ("never_shrunk_in_doubt", "until every signal is there again"),
        ("never_shrunk_under_pressure", "until GPUs and KV caches have room"),
        ("within_free_resources", "until the cluster has room"),
    ):
        if guard in changed:
            found.append(Timer(guard, None, what))
    found += [
        Timer(f"override {override.effect.value}", override.until_s, override.why)
        for override in overrides
    ]
    if plan.reason == "conflict":
        found.append(Timer("conflict", paused_until_s, "someone else writes the replicas too"))
    return tuple(found)
