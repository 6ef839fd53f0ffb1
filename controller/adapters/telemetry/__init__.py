"""Our own metrics and log lines; their names are in `names`."""

import contextlib
from collections.abc import Sequence
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from controller.adapters.telemetry.names import (
    ACTIONS,
    ACTIVE,
    CAPACITY,
    CHOICES,
    CHOSEN_AT,
    CHOSEN_MODEL,
    CHOSEN_PRICE,
    CLOCK_SKEW,
    COUNTERS,
    COVERAGE,
    DECISIONS,
    DEMAND,
    FIRST_TOKENS,
    FITS,
    FORECAST,
    FORECAST_TRUSTED,
    GAUGES,
    GPU_HOUR_PRICE,
    GPU_MEMORY,
    GPU_UTILIZATION,
    GUARD,
    HORIZON,
    JOURNAL_ERRORS,
    LATE,
    LATE_FIRST_TOKENS,
    LEAD,
    LEADER,
    LEAST,
    LIMITED,
    MODEL,
    MOST,
    OLDEST_PENDING,
    OLDEST_START,
    PENDING,
    PRICE,
    QUEUED,
    READY,
    REASON,
    REQUESTED,
    SETPOINT,
    SHOWN_QUANTILES,
    SHRINK_ERRORS,
    SIGNAL_AGE,
    SILENT,
    SLO_ATTAINMENT,
    SLO_TTFT,
    SOURCE_ERRORS,
    STARTING,
    TICK,
    TICK_ERRORS,
    TICKED,
    TRIAL_GPU_HOURS,
    TRIAL_LATE,
    TRUSTED,
    UNHONOURED,
    UNTRUSTED,
    WANTED,
)
from controller.core.choosing import Choice
from controller.core.guards import GUARDS
from controller.core.records import record
from controller.core.types import (
    Decision,
    DeploymentId,
    Forecast,
    Load,
    Outcome,
    Plan,
    Reason,
    Replica,
    Replicas,
    Tick,
    Trust,
)

GUARD_NAMES = tuple(guard.__name__ for guard, _ in GUARDS)


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
        self._active = active
        self._gauges[ACTIVE].set(active)
        self._gauges[LEADER].set(1)
        self._hidden = {CLOCK_SKEW, TICKED, GPU_HOUR_PRICE}
        for name in self._hidden:
            self.registry.unregister(self._gauges[name])
        self._said: dict[DeploymentId, tuple[Any, ...]] = {}
        self._asked: dict[DeploymentId, tuple[int, float]] = {}
        self._models: dict[tuple[DeploymentId, str], str] = {}
        self._chosen: dict[DeploymentId, Choice] = {}
        self._ticked_s: float | None = None

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

    def failed_journal(self, error: str) -> None:
        """Note a tick that the journal could not keep."""
        self._counters[JOURNAL_ERRORS].inc()
        self.log.error("journal failed", error=error)

    def leads(self, leader: bool) -> None:
        """Show whether this daemon is the one that decides."""
        self._gauges[LEADER].set(leader)

    def clock_skew(self, ahead_s: float | None) -> None:
        """Show by how much our clock is ahead of Prometheus's; None while not known."""
        self._show_plain(CLOCK_SKEW, ahead_s)

    def gpu_hour_price(self, price: float) -> None:
        """Show what a GPU-hour costs."""
        self._show_plain(GPU_HOUR_PRICE, price)

    def promised(
        self, target: DeploymentId, ttft_s: float, attainment: float, least: int, most: int
    ) -> None:
        """Show what is promised for a deployment, and its bounds."""
        self._set(SLO_TTFT, target, ttft_s)
        self._set(SLO_ATTAINMENT, target, attainment)
        self._set(LEAST, target, least)
        self._set(MOST, target, most)

    def fitted(self, target: DeploymentId, result: str, detail: str = "") -> None:
        """Note a forecast fit."""
        self._counters[FITS].labels(*target, result).inc()
        self.log.info("fit", deployment=str(target), result=result, detail=detail)

    def chose(self, target: DeploymentId, choice: Choice) -> None:
        """Note a replay of the past, and what came of it."""
        self._counters[CHOICES].labels(*target, choice.verdict.value).inc()
        say = self.log.warning if choice.problem else self.log.info
        tried = [
            f"{t.candidate}: {t.gpu_hours:.1f} GPU-h, {t.violation_ratio:.2%} late"
            for t in choice.trials
        ]
        say(
            "chosen by cost",
            deployment=str(target),
            in_force=str(choice.candidate),
            verdict=choice.verdict.value,
            trials=tried,
            problem=choice.problem,
        )

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
            if decision.observation.load is not None:
                self._count_first_tokens(decision.target, tick.at_s, decision.observation.load)
        self._show_plain(TICKED, tick.at_s)
        self._ticked_s = tick.at_s

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
        self._show_choice(target, learned.choice)
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
        self._show_plan(target, decision.plan)
        self._show_starts(target, observation.at_s, replicas)
        self._show_honoured(target, observation.at_s, decision.plan, replicas)

    def _show_choice(self, target: DeploymentId, choice: Choice | None) -> None:
        """What was tried before and is not now goes from the page."""
        before = self._chosen.get(target)
        if before == choice:
            return
        if before is not None:
            self._hide_choice(target, before)
        self._set(CHOSEN_PRICE, target, None if choice is None else choice.candidate.price_ratio)
        self._set(CHOSEN_AT, target, None if choice is None else choice.chosen_s)
        if choice is None:
            self._chosen.pop(target, None)
            return
        self._gauges[CHOSEN_MODEL].labels(*target, choice.candidate.model.value).set(1)
        for (model, ratio), gpu_hours, late_ratio in choice.trials:
            labels = (*target, model.value, f"{ratio:g}")
            self._gauges[TRIAL_GPU_HOURS].labels(*labels).set(gpu_hours)
            self._gauges[TRIAL_LATE].labels(*labels).set(late_ratio)
        self._chosen[target] = choice

    def _hide_choice(self, target: DeploymentId, choice: Choice) -> None:
        self._gauges[CHOSEN_MODEL].remove(*target, choice.candidate.model.value)
        for (model, ratio), _, _ in choice.trials:
            for name in (TRIAL_GPU_HOURS, TRIAL_LATE):
                self._gauges[name].remove(*target, model.value, f"{ratio:g}")

    def _show_plan(self, target: DeploymentId, plan: Plan) -> None:
        changed = {step.guard: step.after - step.before for step in plan.trail}
        for guard in GUARD_NAMES:
            self._gauges[GUARD].labels(*target, guard).set(changed.get(guard, 0))
        self._set(LIMITED, target, plan.limited_by is not None)

    def _show_starts(self, target: DeploymentId, at_s: float, replicas: Replicas | None) -> None:
        starting = replicas.starting if replicas is not None else ()
        placed = [member for member in starting if member.placed]
        pending = [member for member in starting if not member.placed]
        self._set(STARTING, target, None if replicas is None else len(placed))
        self._set(PENDING, target, None if replicas is None else len(pending))
        self._set(OLDEST_START, target, _oldest_s(placed, at_s))
        self._set(OLDEST_PENDING, target, _oldest_s(pending, at_s))

    def _show_honoured(
        self, target: DeploymentId, at_s: float, plan: Plan, replicas: Replicas | None
    ) -> None:
        """How long Serve has not had the number that was wanted at the tick before."""
        if not self._active or replicas is None or plan.reason is Reason.CONFLICT:
            self._asked.pop(target, None)
            self._set(UNHONOURED, target, None)
            return
        asked, since_s = self._asked.get(target, (replicas.setpoint, at_s))
        if replicas.setpoint == asked:
            since_s = at_s
        self._asked[target] = (plan.wanted, since_s)
        self._set(UNHONOURED, target, at_s - since_s)

    def _count_first_tokens(self, target: DeploymentId, at_s: float, load: Load) -> None:
        if self._ticked_s is None or load.first_tokens_rps is None or load.late_ratio is None:
            return
        seen = load.first_tokens_rps * max(at_s - self._ticked_s, 0.0)
        self._counters[FIRST_TOKENS].labels(*target).inc(seen)
        self._counters[LATE_FIRST_TOKENS].labels(*target).inc(seen * load.late_ratio)

    def _show_forecast(self, target: DeploymentId, horizon: str, made: Forecast | None) -> None:
        """What is not forecast now is not shown: the last forecast would pass for a fresh one."""
        if made is None:
            self._hide_forecast(target, horizon)
            return
        self._gauges[HORIZON].labels(*target, horizon).set(made.horizon_s)
        self._gauges[FORECAST_TRUSTED].labels(*target, horizon).set(made.trusted)
        self._show_model(target, horizon, made.model)
        for quantile in SHOWN_QUANTILES:
            gauge = self._gauges[FORECAST].labels(*target, horizon, f"{quantile:g}")
            gauge.set(made.at(quantile))
        for quantile, share in made.coverage.items():
            self._gauges[COVERAGE].labels(*target, horizon, f"{quantile:g}").set(share)

    def _show_model(self, target: DeploymentId, horizon: str, model: str) -> None:
        before = self._models.get((target, horizon))
        if before != model:
            if before is not None:
                self._gauges[MODEL].remove(*target, horizon, before)
            self._models[target, horizon] = model
        self._gauges[MODEL].labels(*target, horizon, model).set(1)

    def _hide_forecast(self, target: DeploymentId, horizon: str) -> None:
        model = self._models.pop((target, horizon), None)
        if model is None:
            return
        self._gauges[MODEL].remove(*target, horizon, model)
        self._gauges[HORIZON].remove(*target, horizon)
        self._gauges[FORECAST_TRUSTED].remove(*target, horizon)
        for quantile in SHOWN_QUANTILES:
            self._gauges[FORECAST].remove(*target, horizon, f"{quantile:g}")

    def _show_plain(self, name: str, value: float | None) -> None:
        """A gauge without labels that is on the page only while its value is known."""
        if value is None and name not in self._hidden:
            self.registry.unregister(self._gauges[name])
            self._hidden.add(name)
        elif value is not None:
            self._gauges[name].set(value)
            if name in self._hidden:
                self.registry.register(self._gauges[name])
                self._hidden.discard(name)

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


def _oldest_s(members: Sequence[Replica], at_s: float) -> float | None:
    return max((at_s - member.start_s for member in members), default=None)
