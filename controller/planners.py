"""Planners for deployments that are met: with what was learned, the past, and what will come."""

import asyncio
from collections.abc import Iterable, Mapping
from zoneinfo import ZoneInfo

from controller.adapters.calendar import Calendar, Entry
from controller.adapters.prometheus.backfill import Backfill, WorkWindows
from controller.adapters.prometheus.client import PrometheusError
from controller.adapters.store import Journal, JournalError
from controller.adapters.telemetry import Telemetry
from controller.core.periods import Periods
from controller.core.planning import Planner, PlannerSettings
from controller.core.ports import Overridden
from controller.core.types import DeploymentId
from controller.loop import wall_clock_s
from controller.promises import slo_of
from controller.settings import EventSettings, Settings

EVENTS_EVERY_S = 3600.0
EVENTS_AHEAD_S = 2 * 86_400.0
REFILL_EVERY_S = 60.0
SHORTEST_CHOSEN_S = 3600.0


class DeploymentPlanners:
    """Makes planners with the learned state of the journal and the history of Prometheus."""

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        overrides: Overridden,
        backfill: Backfill,
        watch: Telemetry,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self.overrides = overrides
        self._backfill = backfill
        self._watch = watch
        self.unfilled: set[DeploymentId] = set()
        self._tried_s = float("-inf")
        self._foretold_s = float("-inf")

    async def prepare(self, targets: Iterable[DeploymentId]) -> Mapping[DeploymentId, Planner]:
        """A planner each; history is read for all of them at once."""
        planners = {}
        for target in targets:
            self._promise(target)
            planners[target] = self._continued(target)
            self.unfilled.add(target)
        now_s = wall_clock_s()
        self._foretell(planners, now_s)
        await self._fill(planners, now_s)
        return planners

    def _continued(self, target: DeploymentId) -> Planner:
        """A planner with what an earlier run learned; anew where that cannot be read."""
        settings = planner_settings(self._settings, target)
        planner = Planner(target, settings)
        try:
            learned = self._journal.learned(target)
            if learned is not None:
                planner.restore(learned)
        except (JournalError, KeyError, TypeError, ValueError) as error:
            self._watch.failed_source("journal", f"learned state of {target}: {error!r}")
            return Planner(target, settings)
        return planner

    def continue_from(self, before: "DeploymentPlanners", planners: Iterable[DeploymentId]) -> None:
        """Go on with planners that another made, and with the history that it could not read."""
        self.unfilled = before.unfilled & set(planners)
        for target in planners:
            self._promise(target)

    def _promise(self, target: DeploymentId) -> None:
        slo = slo_of(self._settings, target)
        bounds = slo.min_replicas, slo.max_replicas
        self._watch.promised(target, slo.ttft_s, slo.attainment, *bounds)

    async def refill(self, planners: Mapping[DeploymentId, Planner], now_s: float) -> None:
        """Once a minute, try again to read the history that could not be read; once an hour,
        tell the events of the coming days. Overrides are told at every tick."""
        for target, planner in planners.items():
            planner.override(self.overrides.of(target, now_s))
        if now_s - self._foretold_s >= EVENTS_EVERY_S:
            self._foretold_s = now_s
            self._foretell(planners, now_s)
        if self.unfilled and now_s - self._tried_s >= REFILL_EVERY_S:
            waiting = {target: planners[target] for target in self.unfilled & planners.keys()}
            await self._fill(waiting, now_s)

    def _foretell(self, planners: Mapping[DeploymentId, Planner], now_s: float) -> None:
        for target, planner in planners.items():
            known = calendar_of(self._settings, target)
            planner.expect(known.events(now_s - EVENTS_EVERY_S, now_s + EVENTS_AHEAD_S))

    async def _fill(self, planners: Mapping[DeploymentId, Planner], now_s: float) -> None:
        self._tried_s = now_s
        span_s = self._settings.history_seasons * self._settings.season_s
        if span_s <= 0:
            self.unfilled.clear()
            return
        try:
            past = await asyncio.to_thread(self._backfill.read, now_s, span_s, self._progress)
        except PrometheusError as error:
            self._watch.failed_source("backfill", str(error))
            return
        for target, planner in planners.items():
            self.unfilled.discard(target)
            if target in past.rates:
                planner.forecaster.backfill(past.rates[target], past.start_s)
            if target in past.work:
                learn_work(planner, past.work[target])
            if target in past.starts:
                starts = past.starts[target]
                planner.learn_starts(list(starts), list(starts.values()))
            known = planner.forecaster.known_bins
            self._watch.log.info("history read", deployment=str(target), known_bins=known)

    def _progress(self, share: float) -> None:
        self._watch.log.info("reading history", done=f"{share:.0%}")


def learn_work(planner: Planner, work: WorkWindows) -> None:
    """Have a planner learn the capacity from what ran in past windows."""
    planner.learn_past(
        work.window_s,
        work.running,
        work.pairs,
        work.completed_rps,
        work.running_at_end,
        work.replicas,
    )


def calendar_of(settings: Settings, target: DeploymentId) -> Calendar:
    """The known events of a deployment: those of all, and its own."""
    own = [
        event
        for entry in settings.deployments
        if (entry.application, entry.deployment) == target
        for event in entry.events
    ]
    return Calendar(_entry(event) for event in [*settings.events, *own])


def _entry(event: EventSettings) -> Entry:
    return Entry(
        event.name,
        event.duration_s,
        ZoneInfo(event.time_zone),
        event.cron,
        None if event.start is None else event.start.timestamp(),
        event.multiple,
        event.rate_rps,
    )


def planner_settings(settings: Settings, target: DeploymentId) -> PlannerSettings:
    """The core's view of the settings of one deployment."""
    slo = slo_of(settings, target)
    return PlannerSettings(
        periods=Periods.of_season(settings.season_s, settings.tick_s),
        tick_s=settings.tick_s,
        scrape_s=settings.prometheus.scrape_s,
        ttft_s=slo.ttft_s,
        attainment=slo.attainment,
        min_replicas=slo.min_replicas,
        max_replicas=slo.max_replicas,
        lead_prior_s=slo.lead_prior_s,
        slots=slo.slots,
        writes=settings.mode == "active",
        start_timeout_s=slo.start_timeout_s,
        chooses=settings.choice.enabled and settings.season_s >= SHORTEST_CHOSEN_S,
    )
