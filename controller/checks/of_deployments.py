"""Rules on one deployment each: what its config and its traffic say against production."""

from collections.abc import Callable

from controller.adapters.prometheus.lateness import measurable
from controller.adapters.serve.view import UNLIMITED_ONGOING, Actuation
from controller.checks.findings import Severity, Subject

Problem = tuple[Severity, str, str]
DeploymentRule = Callable[[Subject], Problem | None]

LONG_START_S = 30.0
SLOW_GIVE_BACK_S = 120.0
FAILED = frozenset({"DEPLOY_FAILED", "UNHEALTHY"})


def failed_deployment(subject: Subject) -> Problem | None:
    """A deployment or application that Serve itself calls failed."""
    deployment = subject.deployment
    state = next((s for s in (deployment.application_status, deployment.status) if s in FAILED), "")
    if not state:
        return None
    said = deployment.message.strip().splitlines()
    reason = f"Serve says {state}" + (f": {said[-1][:200]}" if said else "")
    return "error", reason, "mend it before anything scales it; see `serve status`"


def not_scalable(subject: Subject) -> Problem | None:
    """A deployment of the settings that nothing may scale."""
    if not subject.listed or subject.actuation is not None:
        return None
    fix = "give it an autoscaling_config or set external_scaler_enabled, or do not list it"
    return "error", "neither Serve nor an external scaler may scale it", fix


def fixed_replicas(subject: Subject) -> Problem | None:
    """`num_replicas` on the path: overload here hides the demand behind it."""
    if subject.actuation is not None or subject.scaling or subject.deployment.external:
        return None
    count = subject.deployment.requested
    reason = (
        f"num_replicas is fixed at {count}: nobody scales it, and when it is full the load behind "
        "it waits here"
    )
    fix = "give it an autoscaling_config under deployments:, or be sure that it carries every peak"
    return "warning", reason, fix


def initial_replicas_set(subject: Subject) -> Problem | None:
    """`initial_replicas`: every change of the config sets the target back to it."""
    initial = subject.scaling.get("initial_replicas")
    if initial is None:
        return None
    reason = f"initial_replicas is {initial}: every change of the config sets the target back to it"
    return "error", reason, "remove initial_replicas from its autoscaling_config"


def scaled_in_code_too(subject: Subject) -> Problem | None:
    """Serve's autoscaling beside an external scaler: both write the target."""
    if not (subject.deployment.external and subject.scaling):
        return None
    reason = (
        "external_scaler_enabled is true and autoscaling is declared in code or args: Serve undoes "
        "what the external scaler sets"
    )
    fix = "set num_replicas: 1 and autoscaling_config: null for it under deployments:"
    return "error", reason, fix


def refused_actuation(subject: Subject) -> Problem | None:
    """Anything else for which the way of scaling must not be used."""
    named = initial_replicas_set(subject) or scaled_in_code_too(subject)
    if subject.actuation is None or named is not None:
        return None
    refusal = subject.deployment.refusal(subject.actuation)
    if refusal is None:
        return None
    return "error", f"cannot be scaled by {subject.actuation}", refusal


def unlimited_target(subject: Subject) -> Problem | None:
    """The default target of `ray.serve.llm`: Serve's own autoscaler never grows."""
    target = subject.scaling.get("target_ongoing_requests", 0)
    if target < UNLIMITED_ONGOING:
        return None
    reason = (
        f"target_ongoing_requests is {target:g}, the default of ray.serve.llm: Serve's own "
        "autoscaler never grows, so nothing does if this daemon dies"
    )
    fix = "set target_ongoing_requests to about 70 % of the engine's max_num_seqs"
    return "error", reason, fix


def target_at_the_limit(subject: Subject) -> Problem | None:
    """A target that running requests cannot exceed: growth begins with a queue."""
    target = subject.scaling.get("target_ongoing_requests", 0)
    limit = subject.deployment.config.get("max_ongoing_requests") or 0
    if not limit <= target < UNLIMITED_ONGOING:
        return None
    reason = (
        f"target_ongoing_requests ({target:g}) is not below max_ongoing_requests ({limit:g}): a "
        "full replica is on target, so Serve grows only once requests wait"
    )
    fix = f"set target_ongoing_requests to about {max(0.7 * limit, 1):.3g}, or raise the limit"
    return "error", reason, fix


def unlimited_ongoing(subject: Subject) -> Problem | None:
    """No limit of requests at once: slots are unknown, and queues form inside engines."""
    limit = subject.deployment.config.get("max_ongoing_requests") or 0
    if limit < UNLIMITED_ONGOING or subject.slots or subject.actuation is None:
        return None
    reason = f"max_ongoing_requests is {limit:g}: how many requests a replica runs is not known"
    fix = "set slots (ours) or max_ongoing_requests (Serve's) to the engine's max_num_seqs"
    return "warning", reason, fix


def cold_from_zero(subject: Subject) -> Problem | None:
    """`min_replicas: 0` with a start that the first user waits out."""
    if subject.actuation is None or _least(subject) > 0:
        return None
    start_s = subject.start_s if subject.start_s is not None else subject.lead_prior_s
    if start_s <= subject.ttft_s:
        return None
    source = "seen" if subject.start_s is not None else "lead_prior_s, none seen yet"
    reason = (
        f"min_replicas is 0 and a start takes {start_s:.0f} s ({source}): a first user waits it"
    )
    severity: Severity = "error" if start_s >= LONG_START_S else "warning"
    return severity, reason, "set min_replicas to 1 or more"


def single_replica(subject: Subject) -> Problem | None:
    """One replica: its crash is an outage as long as a cold start."""
    if _least(subject) != 1:
        return None
    reason = "may run on one replica: if that dies, nothing answers for a whole cold start"
    which = "min_replicas" if subject.actuation else "num_replicas"
    return "warning", reason, f"in production set {which} to 2 or more"


def cut_streams(subject: Subject) -> Problem | None:
    """A shutdown timeout that long streams outlast: scaling down kills them."""
    timeout_s = float(subject.deployment.config.get("graceful_shutdown_timeout_s") or 0.0)
    if subject.stay_p99_s is None or timeout_s >= subject.stay_p99_s[1]:
        return None
    below_s, above_s = subject.stay_p99_s
    sure = timeout_s <= below_s
    reason = (
        f"graceful_shutdown_timeout_s is {timeout_s:g} and 99 % of requests stay {below_s:g} to "
        f"{above_s:g} s: scaling down {'ends' if sure else 'may end'} streams with an error"
    )
    fix = f"set graceful_shutdown_timeout_s to {above_s:g} or more"
    return "error" if sure else "warning", reason, fix


def default_health_checks(subject: Subject) -> Problem | None:
    """Health checks left at Serve's defaults: a dead engine is found after most of a minute."""
    config = subject.deployment.config
    period_s, timeout_s = config.get("health_check_period_s"), config.get("health_check_timeout_s")
    if (period_s, timeout_s) != (10.0, 30.0) or subject.submitted.get("health_check_period_s"):
        return None
    reason = (
        "health_check_period_s and health_check_timeout_s are not set (Serve's 10 and 30 s): an "
        "engine that hangs is noticed after 40 s or more"
    )
    fix = "set both for it under deployments:, such as 5 and 15"
    return "warning", reason, fix


def slow_give_back(subject: Subject) -> Problem | None:
    """Serve's own delay before it follows a lower floor."""
    delay_s = float(subject.scaling.get("downscale_delay_s") or 0.0)
    if subject.actuation is not Actuation.FLOOR or delay_s <= SLOW_GIVE_BACK_S:
        return None
    reason = (
        f"downscale_delay_s is {delay_s:g}: replicas that Leadtime gives back run {delay_s:g} s "
        "longer"
    )
    return "warning", reason, "set downscale_delay_s to 30: Leadtime decides when to shrink"


def other_ways(subject: Subject) -> Problem | None:
    """Which other ways of scaling the deployment allows, and what the rest need."""
    if subject.actuation is None:
        return None
    refusals = {
        way: subject.deployment.refusal(way) for way in Actuation if way is not subject.actuation
    }
    allowed = [way for way, refusal in refusals.items() if refusal is None]
    needs = [f"{way}: {refusal}" for way, refusal in refusals.items() if refusal is not None]
    could = f"could also be scaled by {' or '.join(allowed)}; " if allowed else ""
    return "info", f"{could}{'; '.join(needs)}".removesuffix("; "), ""


def floor_held_back(subject: Subject) -> Problem | None:
    """What in Serve's config delays or changes the floor that our policy reads."""
    if subject.actuation is None:
        return None
    problems = subject.deployment.hindrances(subject.actuation)
    if not problems:
        return None
    return (
        "warning",
        "; ".join(problems),
        "and deploy again: only a change of policy replaces replicas",
    )


def kept_by_external(subject: Subject) -> Problem | None:
    """What `external` means when the daemon dies."""
    if subject.actuation is not Actuation.EXTERNAL:
        return None
    reason = (
        "external keeps the last target if this daemon dies; policy and floor fall back to Serve"
    )
    return "warning", reason, "prefer policy, or floor, where Serve autoscales"


def maximum_above_serve_s(subject: Subject) -> Problem | None:
    """Our maximum beyond Serve's own."""
    most = subject.scaling.get("max_replicas")
    if subject.actuation in (None, Actuation.EXTERNAL) or most is None:
        return None
    if subject.max_replicas <= most:
        return None
    reason = f"max_replicas {subject.max_replicas} is above Serve's own {most}"
    return "warning", reason, "raise Serve's or lower ours"


def without_signals(subject: Subject) -> Problem | None:
    """Series that the planner needs and that are not there."""
    if subject.readings is None or subject.actuation is None:
        return None
    names = ("arrivals", "ongoing")
    missing = [name for name in names if not getattr(subject.readings, name)]
    if not missing:
        return "info", "arrivals and ongoing requests are there", ""
    fix = "does Prometheus scrape every Ray node, and did a request ever come?"
    return "warning", f"no series for {', '.join(missing)}", fix


def unmeasured_slo(subject: Subject) -> Problem | None:
    """Whether the buckets have a bound at the SLO; what is between two is counted as late."""
    if subject.actuation is None or subject.readings is None:
        return None
    if subject.late_bounds is None:
        reason = "no histogram of first-token times yet: attainment is not measured"
        return "warning", reason, "export one as prometheus.client_ttft, or vLLM's through Ray"
    metric, edges = subject.late_bounds
    below, above = measurable(list(edges), subject.ttft_s)
    if subject.ttft_s in (below, above):
        return None
    near = " or ".join(f"{edge:g} s" for edge in (below, above) if edge is not None)
    reason = f"{metric} cannot tell {subject.ttft_s:g} s; the nearest it can are {near}"
    return "warning", reason, "take one of those as ttft_s, or add the bound to the histogram"


def can_be_scaled(subject: Subject) -> Problem | None:
    """The way that is used."""
    if subject.actuation is None or subject.deployment.refusal(subject.actuation) is not None:
        return None
    return "info", f"can be scaled by {subject.actuation}", ""


def _least(subject: Subject) -> int:
    """The fewest replicas it may be down to: Serve's floor or ours, whichever is lower, as ours
    replaces Serve's only while we scale; what is there where nobody scales it."""
    if subject.actuation is None:
        return subject.deployment.requested
    return min(int(subject.scaling.get("min_replicas", subject.min_replicas)), subject.min_replicas)
