"""The ordered limits between what we expect and what we dare; bounds come last.

Each guard is named for its promise and takes a number of replicas to one that keeps it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from controller.core.overrides import Override, boosted, held, pinned
from controller.core.types import Plan, Reason, Replicas, Step

SETTLES_S = 15.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What the guards go by at one tick.

    `held` is the largest need of the last lead, `before` what was wanted at the last tick;
    `in_doubt` whether some source is silent, `pressed` whether GPUs or KV caches are full;
    `overrides` are those in force, and `unforced`, set when blind, what was last wanted without
    any: a boost counts from there, so that it does not grow with every tick. `attainable` is the
    most replicas worth asking for while starts do not end, None = no limit; `busy` whether
    requests would be cut off by a shrink now; `granted` the share of a budget of GPUs, None =
    there is no budget. `at_s` is now; left out, no start is a recent one.
    """

    minimum: int
    maximum: int
    held: int
    before: int
    in_doubt: bool
    pressed: bool
    replicas: Replicas | None
    overrides: tuple[Override, ...] = ()
    unforced: int | None = None
    attainable: int | None = None
    busy: bool = False
    granted: int | None = None
    at_s: float = inf


Guard = Callable[[int, Limits], int]


def kept_for_one_lead(wanted: int, limits: Limits) -> int:
    """A replica needed within the last lead is kept: starting it again would cost as much."""
    return max(wanted, limits.held)


def boosted_on_request(wanted: int, limits: Limits) -> int:
    """What an alert's reaction asks for on top is there."""
    base = wanted if limits.unforced is None else limits.unforced
    return max(wanted, boosted(limits.overrides, base))


def never_shrunk_in_doubt(wanted: int, limits: Limits) -> int:
    """Nothing is taken away while some source is silent."""
    return max(wanted, limits.before) if limits.in_doubt else wanted


def never_shrunk_under_pressure(wanted: int, limits: Limits) -> int:
    """Nothing is taken away while GPUs or KV caches are full."""
    return max(wanted, limits.before) if limits.pressed else wanted


def shrunk_when_quiet(wanted: int, limits: Limits) -> int:
    """Where a shrink would cut requests off it waits for a quiet moment, but not for ever."""
    return max(wanted, limits.before) if limits.busy else wanted


def unchanged_on_request(wanted: int, limits: Limits) -> int:
    """Nothing changes while an alert's reaction or an operator forbids it."""
    return limits.before if held(limits.overrides) else wanted


def pinned_on_request(wanted: int, limits: Limits) -> int:
    """The number that an operator or an alert's reaction states is taken."""
    number = pinned(limits.overrides)
    return wanted if number is None else number


def within_gpu_budget(wanted: int, limits: Limits) -> int:
    """No more than the deployment's share of the GPUs that all of them may hold."""
    return wanted if limits.granted is None else min(wanted, limits.granted)


def within_free_resources(wanted: int, limits: Limits) -> int:
    """No more is asked for than the cluster has room for; what runs is not taken away, and a
    list without replicas where some are requested is no account of what runs. A recent start
    holds its resources before Serve says where, and may be placed before they count as taken:
    it stays, and no more are added on its account."""
    replicas = limits.replicas
    if replicas is None or replicas.room is None:
        return wanted
    if not replicas.members and replicas.requested > 0:
        return min(wanted, max(limits.before, limits.minimum))
    recent = [m for m in replicas.starting if limits.at_s - m.start_s < SETTLES_S]
    settled = sum(m.placed for m in replicas.members) - sum(m.placed for m in recent)
    settled -= replicas.stopping
    kept = min(limits.before, settled + len(recent))
    return min(wanted, max(settled + replicas.room, kept, limits.minimum))


def within_reach(wanted: int, limits: Limits) -> int:
    """While replicas do not become ready however long one waits, no more are asked for than
    do; so Serve cancels the others."""
    if limits.attainable is None:
        return wanted
    return min(wanted, max(limits.attainable, limits.minimum))


def within_bounds(wanted: int, limits: Limits) -> int:
    """Never outside the user's bounds."""
    return min(max(wanted, limits.minimum), limits.maximum)


GUARDS: tuple[tuple[Guard, Reason], ...] = (
    (kept_for_one_lead, Reason.HOLD),
    (boosted_on_request, Reason.BOOST),
    (never_shrunk_in_doubt, Reason.PARTIAL),
    (never_shrunk_under_pressure, Reason.PRESSURE),
    (shrunk_when_quiet, Reason.DRAINING),
    (unchanged_on_request, Reason.FROZEN),
    (pinned_on_request, Reason.PINNED),
    (within_gpu_budget, Reason.BUDGET),
    (within_free_resources, Reason.UNSCHEDULABLE),
    (within_reach, Reason.STUCK),
    (within_bounds, Reason.BOUNDS),
)
_ON_REQUEST = frozenset({boosted_on_request, unchanged_on_request, pinned_on_request})
_LAST = frozenset({within_gpu_budget, within_free_resources, within_reach, within_bounds})
WARMING_GUARDS = tuple(entry for entry in GUARDS if entry[0] in _ON_REQUEST | _LAST)
BLIND_GUARDS = tuple(entry for entry in GUARDS if entry[0] in _ON_REQUEST | {within_bounds})


def guarded(
    wanted: int, reason: Reason, limits: Limits, guards: tuple[tuple[Guard, Reason], ...] = GUARDS
) -> Plan:
    """Pass a number through the guards; the last one to change it gives the reason."""
    trail = []
    for guard, why in guards:
        after = guard(wanted, limits)
        if after != wanted:
            trail.append(Step(guard.__name__, wanted, after))
            wanted, reason = after, why
    return Plan(wanted, reason, tuple(trail))
