"""The words that flow: readings in, an observation judged, a forecast, a plan, a decision.

Every time is in seconds since the epoch and every duration in seconds, taken from the
samples or passed in; nothing here reads a clock.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from controller.core.choosing import Choice


class DeploymentId(NamedTuple):
    """Serve's name for a deployment: two deployments of one name live in two applications."""

    application: str
    deployment: str

    def __str__(self) -> str:
        return f"{self.application}/{self.deployment}"


class Reason(StrEnum):
    """Why the wanted number of replicas is what it is; the same word everywhere."""

    STEADY = "steady"  # the need equals what was wanted before
    FORECAST = "forecast"  # the load expected one lead ahead needs another number
    FORECAST_DISTRUSTED = "forecast_distrusted"  # a surge: last-value quantiles where higher
    BACKLOG = "backlog"  # more is waiting than the forecast explains
    EVENT = "event"  # a known event is coming or running
    HOLD = "hold"  # a replica that may be wanted again within one lead is kept
    BOOST = "boost"  # an alert's reaction asks for more than the plan
    FROZEN = "frozen"  # an alert's reaction or an operator forbids change
    PINNED = "pinned"  # an alert's reaction or an operator states the number
    BOUNDS = "bounds"  # the user's minimum or maximum decided
    WARMING_UP = "warming_up"  # too little seen yet to know what a replica carries
    BLIND = "blind"  # a signal the decision needs is missing
    STALE = "stale"  # a signal the decision needs is too old
    NON_FINITE = "non_finite"  # a signal the decision needs is no number
    PARTIAL = "partial"  # sources are silent or at odds: growing is allowed, shrinking is not
    PRESSURE = "pressure"  # GPU or KV cache is full below the learned limit: no shrink
    BUDGET = "budget"  # other deployments have the GPUs that all of them share
    UNSCHEDULABLE = "unschedulable"  # the cluster has no room for more
    STUCK = "stuck"  # replicas that were asked for never became ready; tried again later
    DRAINING = "draining"  # a shrink waits for a moment in which few requests run
    CONFLICT = "conflict"  # someone else writes the replicas too
    NOT_HONOURED = "not_honoured"  # Serve does not do what it was asked to
    SERVE_UNREACHABLE = "serve_unreachable"  # Serve's API does not answer


class Trust(StrEnum):
    """What a signal is worth. Only PRESENT and ZERO may reach arithmetic."""

    PRESENT = "present"
    ZERO = "zero"
    MISSING = "missing"
    STALE = "stale"  # too old, or from the future
    FROZEN = "frozen"  # a counter stands still although requests come
    NON_FINITE = "non_finite"
    CONTRADICTORY = "contradictory"  # other signals show that it cannot be true


@dataclass(frozen=True, slots=True)
class Sample:
    """A number and the time at which it was sampled."""

    value: float
    at_s: float


class ReplicaState(StrEnum):
    """Serve's replica states, in Serve's words."""

    STARTING = "STARTING"
    UPDATING = "UPDATING"
    RECOVERING = "RECOVERING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    PENDING_MIGRATION = "PENDING_MIGRATION"


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica in Serve's account; `placed` once a node has room for it."""

    id: str
    state: ReplicaState
    start_s: float
    placed: bool = True
    node_ip: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Replicas:
    """Serve's account of a deployment.

    `requested` is Serve's target; `setpoint` the number that our way of scaling writes (the
    target itself, or `min_replicas`); `room` how many more the free resources hold, None when
    the cluster can grow; `deployed_s` when its application was last deployed. `callers` are the
    deployments through which requests come here, each with the actors of its replicas. `drain_s`
    is how long a replica that is told to stop lets its requests run, `gpus` what one holds.
    """

    requested: int
    setpoint: int
    members: tuple[Replica, ...] = ()
    room: int | None = None
    max_ongoing_requests: float | None = None
    deployed_s: float = 0.0
    callers: Mapping[DeploymentId, frozenset[str]] = field(default_factory=dict)
    drain_s: float | None = None
    gpus: float = 0.0

    @property
    def ready(self) -> int:
        """Replicas that take requests."""
        return sum([member.state in SERVING for member in self.members])

    @property
    def starting(self) -> tuple[Replica, ...]:
        """Replicas asked for and not yet ready."""
        return tuple(m for m in self.members if m.state is ReplicaState.STARTING)

    @property
    def stopping(self) -> int:
        """Replicas that drain."""
        return sum(member.state is ReplicaState.STOPPING for member in self.members)


SERVING = frozenset(
    {
        ReplicaState.RUNNING,
        ReplicaState.UPDATING,
        ReplicaState.RECOVERING,
        ReplicaState.PENDING_MIGRATION,
    }
)


@dataclass(frozen=True, slots=True)
class Stage:
    """A deployment through which requests reach another: what arrived at it, what waits in
    front of it, and what it called on the way there, by the deployment called. Counters and
    gauges as in `Readings`."""

    arrivals: Mapping[str, Sample]
    queued: Mapping[str, Sample]
    calls: Mapping[DeploymentId, Mapping[str, Sample]]


@dataclass(frozen=True, slots=True)
class Readings:
    """What the outside said of one deployment at one tick, unjudged.

    Counters are cumulative and gauges momentary, one sample a series, keyed by whatever tells
    the series apart; those of replicas are keyed by replica id. None = the source could not
    be asked; an empty mapping = it answered that there is no such series. `stages` are the
    deployments in front of this one.
    """

    at_s: float
    arrivals: Mapping[str, Sample] | None = None
    completions: Mapping[str, Sample] | None = None
    prompt_tokens: Mapping[str, Sample] | None = None
    output_tokens: Mapping[str, Sample] | None = None
    queued: Mapping[str, Sample] | None = None
    ongoing: Mapping[str, Sample] | None = None
    errors: Mapping[str, Sample] | None = None
    waiting: Mapping[str, Sample] | None = None
    kv_cache_ratio: Mapping[str, Sample] | None = None
    preemptions: Mapping[str, Sample] | None = None
    gpu_ratio: Mapping[str, Sample] | None = None
    first_tokens_rps: Mapping[str, Sample] | None = None
    late_ratio: Mapping[str, Sample] | None = None
    replicas: Replicas | None = None
    stages: Mapping[DeploymentId, Stage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Demand:
    """What arrived in [start_s, end_s); `complete` is False when a known source was silent."""

    start_s: float
    end_s: float
    arrivals: float
    complete: bool = True

    @property
    def rate_rps(self) -> float:
        """Arrivals per second over the interval."""
        return self.arrivals / (self.end_s - self.start_s)


@dataclass(frozen=True, slots=True)
class Load:
    """What the deployment holds, and what it got done since the previous observation.

    `queued` waits for a slot, in Serve's router or in an engine; `ongoing` runs, each request
    beside `company` others on its replica, on average. The counts cover `interval_s` seconds.
    `errors` are HTTP requests to the application that failed.
    `late_ratio` is the share of recent first tokens that came later than the SLO, pessimistic
    where buckets only bound it. None = not measured.
    """

    queued: float
    ongoing: float
    company: float = 0.0
    interval_s: float = 0.0
    completions: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    errors: float | None = None
    first_tokens_rps: float | None = None
    late_ratio: float | None = None
    kv_cache_ratio: float | None = None
    preemptions: float | None = None
    gpu_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """One judged input: its value if it may be used, its age, and why not if it may not.
    `silent` counts the serving replicas that should report and do not."""

    trust: Trust
    age_s: float = 0.0
    value: float = float("nan")
    silent: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """The judged view of one deployment. `demand` is None when blind; `replicas` is None when
    Serve does not answer. `age_s` is how old the newest counted arrival is."""

    at_s: float
    age_s: float
    demand: Demand | None
    load: Load | None
    replicas: Replicas | None
    signals: Mapping[str, Signal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Demand expected in the window that opens `horizon_s` after `at_s`: its quantiles in
    requests per second at `probabilities`, the model that made it, and the shares of outcomes
    of the last season that lay below the 90, 95 and 99 % quantile. `otherwise` is what it was
    before a known event raised it; None where none did. `trusted` is False in a surge, when
    the last value's quantiles stand in for the model's lower ones."""

    at_s: float
    horizon_s: float
    probabilities: tuple[float, ...]
    quantiles: tuple[float, ...]
    model: str
    coverage: Mapping[float, float] = field(default_factory=dict)
    trusted: bool = True
    otherwise: "Forecast | None" = None

    def at(self, probability: float) -> float:
        """The quantile at `probability`, linear between those held."""
        above = bisect_left(self.probabilities, probability)
        if above in (0, len(self.probabilities)):
            return self.quantiles[0 if above == 0 else -1]
        low, high = self.quantiles[above - 1 : above + 1]
        left, right = self.probabilities[above - 1 : above + 1]
        return low + (probability - left) / (right - left) * (high - low)


CAPACITY_GUARDS = frozenset(
    {"within_gpu_budget", "within_free_resources", "within_reach", "within_bounds"}
)


class Step(NamedTuple):
    """A guard that changed the number: its name, before, after."""

    guard: str
    before: int
    after: int


class Timer(NamedTuple):
    """What keeps a number from changing: the guard, until when at the latest (None: until its
    cause is gone), and what it waits for."""

    guard: str
    until_s: float | None
    what: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How many replicas are wanted, the reason in force and the guards that changed it."""

    wanted: int
    reason: Reason
    trail: tuple[Step, ...] = ()

    def changed_by(self, guard: str) -> bool:
        """Whether this guard changed the number."""
        return any(step.guard == guard for step in self.trail)

    @property
    def claimed(self) -> int:
        """What was wanted before anything that there is too little of limited it."""
        limits = (step.before for step in self.trail if step.guard in CAPACITY_GUARDS)
        return next(limits, self.wanted)

    @property
    def limited_by(self) -> str | None:
        """ "capacity" where more replicas are worth having than there may be; None if not."""
        cut = any(step.guard in CAPACITY_GUARDS and step.after < step.before for step in self.trail)
        return "capacity" if cut else None


@dataclass(frozen=True, slots=True)
class ScaleDeployment:
    """Have `replicas` replicas of a deployment; a steady plan makes no such action."""

    target: DeploymentId
    replicas: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave the deployment as it is."""

    target: DeploymentId


Action = ScaleDeployment | Hold


@dataclass(frozen=True, slots=True)
class Learned:
    """What the planner believes of a deployment: the lead it plans with, the requests per
    second that a full replica gets done, how many fill it, the work of a mean request alone,
    and the price of a violation in GPU-seconds; `choice` is the model and price in force where
    they are chosen by their cost."""

    lead_s: float
    capacity_rps: float | None
    slots: float
    work_s: float | None
    price_gpu_s: float
    choice: Choice | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """One tick of one deployment: one row, one log line, one set of metrics. `unforced` is what
    would be wanted without an override; `timers` what keeps the number from changing."""

    target: DeploymentId
    observation: Observation
    near: Forecast | None
    ahead: Forecast | None
    learned: Learned
    plan: Plan
    action: Action
    unforced: int | None = None
    timers: tuple[Timer, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an action; `reason` is set when the world, not the plan, decided."""

    action: Action
    applied: bool
    detail: str
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """One round over every deployment: decisions with what became of them, the learned state
    by deployment (plain JSON), and what could not be read."""

    at_s: float
    decisions: tuple[tuple[Decision, Outcome], ...]
    learned: Mapping[DeploymentId, Mapping[str, Any]]
    failures: tuple[str, ...] = ()
