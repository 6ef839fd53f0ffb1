"""Reasons and guards in words, the same on the page, in `explain` and in events."""

from collections.abc import Mapping

from controller.core.choosing import Verdict
from controller.core.types import Reason

REASONS: Mapping[Reason, str] = {
    Reason.STEADY: "The load needs as many replicas as before.",
    Reason.FORECAST: "The load expected one lead time ahead needs another number.",
    Reason.FORECAST_DISTRUSTED: "The forecast has been off lately, so the latest load counts "
    "where it is higher.",
    Reason.BACKLOG: "More requests wait than the forecast explains.",
    Reason.EVENT: "A known event is coming or running.",
    Reason.HOLD: "A replica needed within the last lead time is kept: it may be wanted again.",
    Reason.BOOST: "An alert's reaction asks for more than the plan.",
    Reason.FROZEN: "An operator or an alert's reaction forbids change.",
    Reason.PINNED: "An operator or an alert's reaction states the number.",
    Reason.BOUNDS: "The configured minimum or maximum decides.",
    Reason.WARMING_UP: "Too little has been seen yet to know what a replica carries: no change.",
    Reason.BLIND: "A signal that the decision needs is missing: nothing is changed.",
    Reason.STALE: "A signal that the decision needs is too old: nothing is changed.",
    Reason.NON_FINITE: "A signal that the decision needs is no number: nothing is changed.",
    Reason.PARTIAL: "Some sources are silent: growing is allowed, shrinking is not.",
    Reason.PRESSURE: "GPUs or KV caches are full: nothing is taken away.",
    Reason.BUDGET: "Other deployments have the GPUs that all of them share.",
    Reason.STUCK: "Replicas that were asked for never became ready: tried again later.",
    Reason.DRAINING: "A shrink waits for a moment in which few requests run.",
    Reason.NOT_HONOURED: "Serve does not do what it was asked to: asked again, ever more rarely.",
    Reason.UNSCHEDULABLE: "The cluster has no room for more replicas.",
    Reason.CONFLICT: "Someone else writes the replicas too: we stopped writing.",
    Reason.SERVE_UNREACHABLE: "Ray Serve does not answer: nothing is changed.",
}
VERDICTS: Mapping[Verdict, str] = {
    Verdict.UNTRIED: "the default, until the past has been replayed",
    Verdict.CHEAPEST: "the fewest GPU-hours at the SLO in a replay of the past",
    Verdict.FEWEST_LATE: "the fewest late requests in a replay of the past, as none kept the SLO",
    Verdict.KEPT: "kept: no other saved more than 1 % in a replay of the past",
    Verdict.FAILED: "kept: the last replay of the past failed",
}
GUARDS: Mapping[str, str] = {
    "kept_for_one_lead": "a replica needed within the last lead time is kept",
    "boosted_on_request": "what an alert's reaction asks for on top is there",
    "never_shrunk_in_doubt": "nothing is taken away while a source is silent",
    "never_shrunk_under_pressure": "nothing is taken away while GPUs or KV caches are full",
    "unchanged_on_request": "nothing changes while an operator or an alert forbids it",
    "pinned_on_request": "the number that an operator or an alert states is taken",
    "shrunk_when_quiet": "a shrink waits for a moment in which few requests run",
    "within_gpu_budget": "no more GPUs than the shared budget grants",
    "within_reach": "no more than starts that came to an end can bring",
    "within_free_resources": "no more than the cluster has room for",
    "within_bounds": "within the configured minimum and maximum",
}


def in_words(reason: str) -> str:
    """A reason in words; itself where it is of another version."""
    try:
        return REASONS[Reason(reason)]
    except (KeyError, ValueError):
        return reason


def verdict_in_words(verdict: str) -> str:
    """A verdict in words; itself where it is of another version."""
    try:
        return VERDICTS[Verdict(verdict)]
    except ValueError:
        return verdict
