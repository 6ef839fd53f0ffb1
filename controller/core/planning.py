"""One deployment's planner: learn, forecast, size, guard. The same object live and in replay."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from controller.core.asking import Asking
from controller.core.capacity import Capacity, CapacityLaw
from controller.core.choosing import Candidate, Choice, Choosing, Trial
from controller.core.draining import Drain
from controller.core.events import KnownEvent, KnownEvents
from controller.core.forecasting.fitting import FitJob, Fitted
from controller.core.forecasting.forecaster import Forecaster
from controller.core.guards import (
    BLIND_GUARDS,
    GUARDS,
    WARMING_GUARDS,
    Guard,
    Limits,
    guarded,
)
from controller.core.leadtime import LeadTime
from controller.core.overrides import Override, in_force
from controller.core.price import Excuse, Price
from controller.core.rehearsal import Rehearsal
from controller.core.signals import Freshness, SignalReader, blindness, doubtful
from controller.core.stated import PlannerSettings as PlannerSettings
from controller.core.supply import Supply
from controller.core.timers import Needs, timers
from controller.core.types import (
    Decision,
    DeploymentId,
    Forecast,
    Learned,
    Load,
    Observation,
    Plan,
    Readings,
    Reason,
    Replicas,
)
from controller.core.weighing import Scales
from controller.core.windows import Values

LEAD_QUANTILE = 0.5
SLOWEST = 2.0
UNKNOWN_SLOTS = 256.0
OVERLOOK = 2  # times the maximum, so that a maximum that is too low is noticed
FULL_GPU = 0.95
FULL_KV_CACHE = 0.9


class Planner:
    """Turns readings into decisions, one tick at a time."""

    def __init__(self, target: DeploymentId, settings: PlannerSettings) -> None:
        self.target = target
        self.settings = settings
        periods = settings.periods
        self.lead = LeadTime(settings.lead_prior_s, give_up_s=settings.start_timeout_s)
        self.forecaster = Forecaster(
            periods, (settings.tick_s, settings.lead_prior_s), settings.lead_prior_s
        )
        self._known = KnownEvents(periods)
        self._reader = SignalReader(Freshness.of_scrape(settings.scrape_s))
        self._capacity = Capacity(periods.window_s, periods.season_s)
        self._price = Price(settings.attainment, periods.season_s)
        self._supply = Supply(settings.start_timeout_s)
        self._asking = Asking(target, settings.writes)
        self._choosing = Choosing(periods.season_s)
        self._plan_made: Plan | None = None
        self._granted: int | None = None
        self._drain = Drain()
        self._needs: deque[tuple[float, int]] = deque()
        self._wanted: int | None = None
        self._unforced: int | None = None
        self._overrides: tuple[Override, ...] = ()
        self._observed_slots: float | None = None
        self._gap_s = periods.bin_s
        self._pressed_since_s: float | None = None
        self._excuse = Excuse()
        self._ticked_s: float | None = None

    def tick(self, readings: Readings) -> Decision:
        """Decide on one tick's readings."""
        observation = self._reader.observe(readings)
        self._learn(observation)
        blind = blindness(observation)
        near = ahead = None
        if blind is None:
            near = self.forecaster.forecast(observation.at_s, 0.0)
            ahead = self.forecaster.forecast(observation.at_s, self.lead_s + self.settings.tick_s)
        if self._known.events and near is not None and ahead is not None:
            near, ahead = self._known.apply(near, ahead)
        plan = self._plan(observation, near, ahead, blind)
        self._drain.waits(observation.at_s, plan.changed_by("shrunk_when_quiet"))
        plan = self._asking.answered(plan, observation)
        self._plan_made, self._wanted = plan, plan.wanted
        self._ticked_s = observation.at_s
        action = self._asking.action(plan, observation)
        needs = Needs(self._needs, self.lead_s)
        overrides = in_force(self._overrides, observation.at_s)
        waits = timers(plan, overrides, needs, self._asking.paused_until_s)
        learned, unforced = self.learned(), self._unforced
        return Decision(
            self.target, observation, near, ahead, learned, plan, action, unforced, waits
        )

    @property
    def lead_s(self) -> float:
        """The lead planned with."""
        return self.lead.quantile(LEAD_QUANTILE)

    def learned(self) -> Learned:
        """What is believed now."""
        slots, lead_s = self._slots, self.lead_s
        law = self._capacity.law(slots)
        return Learned(
            lead_s=lead_s,
            capacity_rps=None if law is None else law.capacity_rps,
            slots=slots if law is None else law.slots,
            work_s=None if law is None else law.work_s,
            price_gpu_s=0.0 if law is None else self._price.gpu_s(lead_s, law.capacity_rps),
            choice=self._choosing.choice if self.settings.chooses else None,
        )

    def learn_past(self, window_s: float, *windows: Values) -> None:
        """Learn the capacity from past windows, as `Capacity.learn_past` says."""
        self._capacity.learn_past(window_s, *windows)

    def learn_starts(self, bounds_s: Sequence[float], counts: Sequence[float]) -> None:
        """Learn the lead from past starts, as `LeadTime.expect` says; the next fit aims there."""
        self.lead.expect(bounds_s, counts)
        self._aim()

    def expect(self, events: Iterable[KnownEvent]) -> None:
        """Plan for these events from the next tick on, instead of those known before."""
        self._known.events = tuple(events)

    def override(self, overrides: Iterable[Override]) -> None:
        """Have these overrides from the next tick on, instead of those before; each ends by
        itself. They are not part of `state()`: whoever makes them keeps them."""
        self._overrides = tuple(overrides)

    @property
    def claim(self) -> tuple[int, int] | None:
        """Replicas wanted if there were GPUs for all, and the minimum; None before a plan."""
        plan = self._plan_made
        return None if plan is None else (plan.claimed, self.settings.min_replicas)

    def grant(self, most: int | None) -> None:
        """Ask for no more than this from the next tick on; None = no shared budget."""
        self._granted = most

    def reconfigure(self, settings: PlannerSettings) -> None:
        """Go by other promises and bounds from the next tick on, for another daemon; the periods
        stay as they are."""
        self._choosing.forget()
        before, self.settings = self.settings, settings
        self._price.attainment = settings.attainment
        if settings.start_timeout_s != before.start_timeout_s:
            self._supply = Supply(settings.start_timeout_s)
            samples_s, prior_s = self.lead.samples_s, settings.lead_prior_s
            self.lead = LeadTime(prior_s, samples_s, settings.start_timeout_s)
        if not settings.chooses:
            self._choosing = Choosing(settings.periods.season_s)
            self.put_in_force(self._choosing.choice.candidate)
        elif (settings.ttft_s, settings.attainment) != (before.ttft_s, before.attainment):
            self._choosing.again()
        if settings.writes != before.writes:
            self.forget_writes()

    def forget_writes(self) -> None:
        """Another daemon led until now: what it wrote is no second writer's doing."""
        self._asking = Asking(self.target, self.settings.writes)

    def rehearsal_due(self) -> Rehearsal | None:
        """A replay of the past to run elsewhere, if one is due; give what comes of it to `weigh`
        or `keep`. None before a replica's capacity is known."""
        law, at_s, history = (
            self._capacity.law(self._slots),
            self._ticked_s,
            self.forecaster.history,
        )
        if law is None or at_s is None or not self.settings.chooses:
            return None
        if not self._choosing.due(at_s, history.rates, self.settings.periods.season_bins):
            return None
        return Rehearsal(
            self.settings,
            history.rates.copy(),
            history.end_bin,
            law,
            self.lead.samples_s,
            self.lead.settled(LEAD_QUANTILE),
        )

    def weigh(self, trials: Iterable[Trial]) -> Choice:
        """Choose by what candidates came to in a replay; in force from the next tick on."""
        self._choosing.take(trials, self._ticked_s or 0.0, 1.0 - self.settings.attainment)
        self.put_in_force(self._choosing.choice.candidate)
        return self._choosing.choice

    def keep(self, problem: str) -> Choice:
        """A replay failed: what is in force stays, and the problem is told."""
        self._choosing.fail(problem, self._ticked_s or 0.0)
        return self._choosing.choice

    def put_in_force(self, candidate: Candidate) -> None:
        """Forecast with a candidate's model and size by its price from the next fit on."""
        self.forecaster.use(candidate.model)
        self._price.ratio = candidate.price_ratio

    def fit_due(self) -> FitJob | None:
        """A forecast fit to run elsewhere, if one is due; give its result to `adopt`."""
        return self.forecaster.fit_due()

    def adopt(self, fitted: Fitted) -> None:
        """Use a fit's result from the next tick on."""
        self.forecaster.adopt(fitted)

    def state(self) -> dict[str, Any]:
        """Everything learned that history cannot give back, for a restart; plain JSON."""
        return {
            "lead_samples_s": list(self.lead.samples_s),
            "slots": self._observed_slots,
            "capacity": self._capacity.state(),
            "late": [self._price.late, self._price.total, self._price.seen_s],
            "price_integral": self._price.integral,
            "wanted": self._wanted,
            "unforced": self._unforced,
            "needs": [list(entry) for entry in self._needs],
            "usual": self._known.state(),
            "choice": self._choosing.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()` of an earlier run."""
        settings, samples_s = self.settings, state["lead_samples_s"]
        self.lead = LeadTime(settings.lead_prior_s, samples_s, settings.start_timeout_s)
        self._observed_slots = state["slots"]
        self._capacity.restore(state["capacity"])
        self._price.late, self._price.total, self._price.seen_s = state["late"]
        self._price.integral = state["price_integral"]
        self._wanted = state["wanted"]
        self._unforced = state.get("unforced")
        self._needs = deque((float(at_s), int(count)) for at_s, count in state["needs"])
        self._known.restore(state.get("usual"))
        if settings.chooses:
            self._choosing.restore(state.get("choice"))
            self.put_in_force(self._choosing.choice.candidate)
        self._aim()

    @property
    def _slots(self) -> float:
        return self.settings.slots or self._observed_slots or UNKNOWN_SLOTS

    def _learn(self, observation: Observation) -> None:
        replicas, load = observation.replicas, observation.load
        elapsed_s = observation.at_s - (self._ticked_s or observation.at_s)
        if replicas is not None:
            self.lead.observe(observation.at_s, replicas.members)
            self._observed_slots = replicas.max_ongoing_requests
            self._supply.observe(observation.at_s, replicas, self.lead_s)
            self._watch_drain(observation.at_s, load, replicas)
        if observation.demand is not None:
            self.forecaster.observe(observation.demand)
            self._gap_s += 0.1 * (observation.at_s - self.forecaster.history.end_s - self._gap_s)
        ready = 0 if replicas is None else replicas.ready
        if load is not None and ready:
            self._capacity.observe(load, ready)
            self._steer(observation.at_s, elapsed_s, load, ready)
        self._watch_pressure(observation.at_s, load)
        self._aim()

    def _aim(self) -> None:
        lead_s = self.lead_s
        self.forecaster.aim((self._gap_s, self._gap_s + lead_s + self.settings.tick_s), lead_s)

    def _steer(self, at_s: float, elapsed_s: float, load: Load, ready: int) -> None:
        law = self._capacity.law(self._slots)
        carried_rps = 0.0 if law is None else ready * law.capacity_rps
        queueing = load.queued > self.settings.ttft_s * carried_rps
        if self._excuse.holds(at_s, self.forecaster.surprised, queueing, self.lead_s):
            return
        if load.first_tokens_rps is not None and load.late_ratio is not None:
            tokens = load.first_tokens_rps * elapsed_s
            self._price.observe(tokens, tokens * load.late_ratio, elapsed_s)

    def _watch_drain(self, at_s: float, load: Load | None, replicas: Replicas) -> None:
        law = self._capacity.law(self._slots)
        stay_s = None
        if law is not None and load is not None:
            stay_s = law.latency_s(load.company + 1.0)
        self._drain.observe(at_s, load, replicas, stay_s, self.lead_s)

    def _watch_pressure(self, at_s: float, load: Load | None) -> None:
        full = load is not None and (
            (load.gpu_ratio or 0.0) >= FULL_GPU or (load.kv_cache_ratio or 0.0) >= FULL_KV_CACHE
        )
        self._pressed_since_s = (self._pressed_since_s or at_s) if full else None

    def _plan(
        self,
        observation: Observation,
        near: Forecast | None,
        ahead: Forecast | None,
        blind: Reason | None,
    ) -> Plan:
        replicas = observation.replicas
        law = self._capacity.law(self._slots)
        if blind is not None:
            return self._held_blind(observation, blind)
        unforced = self._before(replicas, self._unforced)
        if law is None or near is None or ahead is None or replicas is None:
            load = observation.load
            least = int(load is not None and load.queued > 0)  # wakes what has no replica
            count = max(unforced, least)
            return self._guarded(observation, count, Reason.WARMING_UP, WARMING_GUARDS)
        scales, load = self._scales(law, replicas), observation.load
        count, reason = scales.worth(load, near, ahead)
        if not self._needs:
            self._needs.append((observation.at_s, unforced))
        self._needs.append((observation.at_s, count))
        # A start under way makes the lead as long as it lasts; no need is kept for that long.
        kept_s = min(self.lead_s, SLOWEST * self.lead.settled(LEAD_QUANTILE))
        while self._needs[0][0] < observation.at_s - kept_s:
            self._needs.popleft()
        if scales.by_event(count, load, near, ahead):
            reason = Reason.EVENT
        elif count == unforced:
            reason = Reason.STEADY
        return self._guarded(observation, count, reason, GUARDS)

    def _held_blind(self, observation: Observation, blind: Reason) -> Plan:
        """What was wanted before, and no less than that was without an override: one that ends
        while we are blind does not shrink."""
        before = self._before(observation.replicas, self._wanted)
        if not in_force(self._overrides, observation.at_s):
            before = max(before, self._unforced or 0)
        return self._guarded(observation, before, blind, BLIND_GUARDS)

    def _guarded(
        self,
        observation: Observation,
        count: int,
        reason: Reason,
        guards: tuple[tuple[Guard, Reason], ...],
    ) -> Plan:
        """The plan, with a note of what it would be without an override."""
        limits = self._limits(observation)
        unforced = self._before(observation.replicas, self._unforced)
        if guards is BLIND_GUARDS:
            limits = replace(limits, unforced=unforced)
        plan = guarded(count, reason, limits, guards)
        if not limits.overrides:
            unforced = plan.wanted
        elif guards is not BLIND_GUARDS:
            free = replace(limits, overrides=(), before=unforced)
            unforced = guarded(count, reason, free, guards).wanted
        self._unforced = unforced
        return plan

    def _before(self, replicas: Replicas | None, wanted: int | None) -> int:
        """What was wanted last; after a start without memory, what Serve has."""
        if wanted is not None:
            return wanted
        return replicas.requested if replicas is not None else self.settings.min_replicas

    def _scales(self, law: CapacityLaw, replicas: Replicas) -> Scales:
        settings = self.settings
        return Scales(
            law,
            self._price.gpu_s(self.lead_s, law.capacity_rps),
            settings.ttft_s,
            settings.periods.window_s,
            self.lead_s,
            self._supply,
            OVERLOOK * settings.max_replicas,
            self._before(replicas, self._unforced),
        )

    def _limits(self, observation: Observation) -> Limits:
        pressed_s = observation.at_s - (self._pressed_since_s or observation.at_s)
        return Limits(
            minimum=self.settings.min_replicas,
            maximum=self.settings.max_replicas,
            held=max([count for _, count in self._needs], default=0),
            before=self._before(observation.replicas, self._wanted),
            in_doubt=doubtful(observation),
            pressed=pressed_s >= self.lead_s,
            replicas=observation.replicas,
            overrides=in_force(self._overrides, observation.at_s),
            attainable=self._supply.attainable,
            busy=self._drain.busy,
            granted=self._granted,
            at_s=observation.at_s,
        )
