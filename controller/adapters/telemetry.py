"""Our own metrics and logs, named once."""

import contextlib
import logging
import sys
from collections.abc import Mapping
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from controller.core.records import record
from controller.core.types import Decision, DeploymentId, Forecast, Outcome, Reason, Tick, Trust

OF_DEPLOYMENT = ("application", "deployment")
SHOWN_QUANTILES = (0.5, 0.9, 0.95, 0.99)

WANTED = "leadtime_wanted_replicas"
REQUESTED = "leadtime_requested_replicas"
READY = "leadtime_ready_replicas"
SETPOINT = "leadtime_setpoint_replicas"
DEMAND = "leadtime_demand_rps"
QUEUED = "leadtime_queued_requests"
LATE = "leadtime_late_ratio"
FORECAST = "leadtime_forecast_rps"
COVERAGE = "leadtime_forecast_coverage_ratio"
LEAD = "leadtime_lead_seconds"
CAPACITY = "leadtime_capacity_rps"
PRICE = "leadtime_price_gpu_seconds"
REASON = "leadtime_reason"
TRUSTED = "leadtime_signal_trusted"
SIGNAL_AGE = "leadtime_signal_age_seconds"
SILENT = "leadtime_signal_silent_replicas"
UNTRUSTED = "leadtime_signals_untrusted_total"
DECISIONS = "leadtime_decisions_total"
ACTIONS = "leadtime_actions_total"
SHRINK_ERRORS = "leadtime_errors_while_shrinking_total"
TICK = "leadtime_tick_seconds"
TICK_ERRORS = "leadtime_tick_errors_total"
SOURCE_ERRORS = "leadtime_source_errors_total"
FITS = "leadtime_fits_total"
GPU_UTILIZATION = "leadtime_gpu_utilization_ratio"
GPU_MEMORY = "leadtime_gpu_memory_ratio"
ACTIVE = "leadtime_active"

GAUGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    WANTED: ("Replicas wanted after every guard.", OF_DEPLOYMENT),
    REQUESTED: ("Serve's target number of replicas.", OF_DEPLOYMENT),
    READY: ("Replicas that take requests.", OF_DEPLOYMENT),
    SETPOINT: ("The number our way of scaling writes, as Serve has it.", OF_DEPLOYMENT),
    DEMAND: ("Arrivals per second since the last observation.", OF_DEPLOYMENT),
    QUEUED: ("Requests that wait for a slot.", OF_DEPLOYMENT),
    LATE: ("Share of recent first tokens later than the SLO (upper bound).", OF_DEPLOYMENT),
    FORECAST: (
        "Peak demand forecast, by horizon (near, ahead) and quantile.",
        (*OF_DEPLOYMENT, "horizon", "quantile"),
    ),
    COVERAGE: (
        "Share of outcomes at or below a quantile over the last season.",
        (*OF_DEPLOYMENT, "horizon", "quantile"),
    ),
    LEAD: ("Learned time from asking for a replica to having it.", OF_DEPLOYMENT),
    CAPACITY: ("Learned requests per second of a replica with every slot taken.", OF_DEPLOYMENT),
    PRICE: ("GPU-seconds that one late request may cost.", OF_DEPLOYMENT),
    REASON: ("1 for the reason in force, 0 for the others.", (*OF_DEPLOYMENT, "reason")),
    TRUSTED: ("1 if an input may be used.", (*OF_DEPLOYMENT, "signal")),
    SIGNAL_AGE: ("Age of an input.", (*OF_DEPLOYMENT, "signal")),
    SILENT: ("Serving replicas that do not report what runs on them.", OF_DEPLOYMENT),
    GPU_UTILIZATION: ("Share of a GPU's compute in use.", ("node", "gpu")),
    GPU_MEMORY: ("Share of a GPU's memory in use.", ("node", "gpu")),
    ACTIVE: ("1 if decisions are carried out, 0 in shadow mode.", ()),
}
COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    DECISIONS: ("Decisions by reason.", (*OF_DEPLOYMENT, "reason")),
    ACTIONS: ("Scale actions by what became of them.", (*OF_DEPLOYMENT, "outcome")),
    UNTRUSTED: (
        "Inputs that were there and not used: stale, frozen, non_finite, contradictory.",
        (*OF_DEPLOYMENT, "signal", "trust"),
    ),
    SHRINK_ERRORS: (
        "HTTP requests to the application that failed while replicas of it drained.",
        OF_DEPLOYMENT,
    ),
    TICK_ERRORS: ("Ticks that failed unexpectedly.", ()),
    SOURCE_ERRORS: ("Answers that could not be used, by source.", ("source",)),
    FITS: ("Forecast fits by result.", (*OF_DEPLOYMENT, "result")),
}


class Telemetry:
    """The daemon's metrics in a registry of their own, and one log line a decision."""

    def __init__(self, active: bool) -> None:
        self.registry = CollectorRegistry()
        self.log = structlog.get_logger("leadtime")
        self._gauges = {
            name: Gauge(name, about, labels, registry=self.registry)
            for name, (about, labels) in GAUGES.items()
        }
        self._counters = {
            name: Counter(name.removesuffix("_total"), about, labels, registry=self.registry)
            for name, (about, labels) in COUNTERS.items()
        }
        self._tick = Histogram(TICK, "Time a tick takes.", registry=self.registry)
        self._gauges[ACTIVE].set(active)
        self._said: dict[DeploymentId, tuple[Any, ...]] = {}

    def page(self) -> bytes:
        """The metrics in Prometheus's text format."""
        return generate_latest(self.registry)

    def ticked(self, seconds: float) -> None:
        """Note how long a tick took."""
        self._tick.observe(seconds)

    def failed_tick(self, error: BaseException) -> None:
        """Note a tick that failed in a way nobody expected."""
        self._counters[TICK_ERRORS].inc()
        self.log.error("tick failed", error=repr(error), exc_info=error)

    def failed_source(self, source: str, error: str) -> None:
        """Note an answer that could not be used."""
        self._counters[SOURCE_ERRORS].labels(source).inc()
        self.log.warning("no usable answer", source=source, error=error)

    def fitted(self, target: DeploymentId, result: str, detail: str = "") -> None:
        """Note a forecast fit."""
        self._counters[FITS].labels(*target, result).inc()
        self.log.info("fit", deployment=str(target), result=result, detail=detail)

    def gpu(self, node: str, gpu: str, utilization: float | None, memory: float | None) -> None:
        """Show one GPU; what is not known is not shown."""
        if utilization is not None:
            self._gauges[GPU_UTILIZATION].labels(node, gpu).set(utilization)
        if memory is not None:
            self._gauges[GPU_MEMORY].labels(node, gpu).set(memory)

    def record(self, tick: Tick) -> None:
        """Show one tick's decisions in metrics, and in the log."""
        for decision, outcome in tick.decisions:
            self._show(decision)
            self._count(decision, outcome)
            self._say(decision, outcome)

    def _show(self, decision: Decision) -> None:
        target, observation, learned = decision.target, decision.observation, decision.learned
        replicas, demand, load = observation.replicas, observation.demand, observation.load
        self._set(WANTED, target, decision.plan.wanted)
        self._set(REQUESTED, target, None if replicas is None else replicas.requested)
        self._set(READY, target, None if replicas is None else replicas.ready)
        self._set(SETPOINT, target, None if replicas is None else replicas.setpoint)
        if demand is not None:
            self._set(DEMAND, target, demand.rate_rps)
        self._set(QUEUED, target, None if load is None else load.queued)
        self._set(LATE, target, None if load is None else load.late_ratio)
        self._set(LEAD, target, learned.lead_s)
        self._set(CAPACITY, target, learned.capacity_rps)
        self._set(PRICE, target, learned.price_gpu_s)
        for reason in Reason:
            self._gauges[REASON].labels(*target, reason.value).set(reason is decision.plan.reason)
        for name, signal in observation.signals.items():
            trusted = signal.trust in (Trust.PRESENT, Trust.ZERO)
            self._gauges[TRUSTED].labels(*target, name).set(trusted)
            self._gauges[SIGNAL_AGE].labels(*target, name).set(signal.age_s)
            if not trusted and signal.trust is not Trust.MISSING:
                self._counters[UNTRUSTED].labels(*target, name, signal.trust.value).inc()
        failed = self._counters[SHRINK_ERRORS].labels(*target)
        if load is not None and replicas is not None and replicas.stopping:
            failed.inc(load.errors or 0.0)
        self._set(SILENT, target, observation.signals["ongoing"].silent)
        self._show_forecast(target, "near", decision.near)
        self._show_forecast(target, "ahead", decision.ahead)

    def _show_forecast(self, target: DeploymentId, horizon: str, made: Forecast | None) -> None:
        if made is None:
            return
        for quantile in SHOWN_QUANTILES:
            gauge = self._gauges[FORECAST].labels(*target, horizon, f"{quantile:g}")
            gauge.set(made.at(quantile))
        for quantile, share in made.coverage.items():
            self._gauges[COVERAGE].labels(*target, horizon, f"{quantile:g}").set(share)

    def _set(self, name: str, target: DeploymentId, value: float | None) -> None:
        """A value that is not known is not shown: an absent series is not zero."""
        if value is None:
            with contextlib.suppress(KeyError):
                self._gauges[name].remove(*target)
        else:
            self._gauges[name].labels(*target).set(value)

    def _count(self, decision: Decision, outcome: Outcome) -> None:
        self._counters[DECISIONS].labels(*decision.target, decision.plan.reason.value).inc()
        if outcome.detail:
            result = "applied" if outcome.applied else "not_applied"
            self._counters[ACTIONS].labels(*decision.target, result).inc()

    def _say(self, decision: Decision, outcome: Outcome) -> None:
        """One line a decision: at info when something differs from the tick before."""
        said = record(decision, outcome)
        news = (said["wanted"], said["reason"], said["action"], said["applied"], outcome.detail)
        say = self.log.debug if self._said.get(decision.target) == news else self.log.info
        self._said[decision.target] = news
        say(
            "decision",
            deployment=str(decision.target),
            wanted=said["wanted"],
            requested=said["requested"],
            ready=said["ready"],
            reason=said["reason"],
            trail=[f"{guard}: {before} -> {after}" for guard, before, after in said["trail"]],
            applied=said["applied"],
            detail=said["detail"],
            demand_rps=said["inputs"]["demand_rps"],
            age_s=said["inputs"]["age_s"],
        )


def set_up_logs(style: str, level: str) -> None:
    """Log to standard error, as lines for people (`console`) or as JSON, one object a line."""
    render: Any = structlog.processors.JSONRenderer()
    if style == "console":
        render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
