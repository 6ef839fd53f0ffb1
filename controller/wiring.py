"""Builds the daemon from its settings: the only module that knows every adapter."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from starlette.routing import Route

from controller.adapters.calendar import Calendar, Entry
from controller.adapters.fitter import Fitter
from controller.adapters.http import Board, HttpServer, application
from controller.adapters.overriding import Desk, override_route
from controller.adapters.prometheus.backfill import Backfill
from controller.adapters.prometheus.client import PrometheusClient, PrometheusError
from controller.adapters.prometheus.source import PrometheusSource
from controller.adapters.serve.api import ServeApi, ServeError, Unreachable
from controller.adapters.serve.source import ServeSource
from controller.adapters.store import Journal, JournalError
from controller.adapters.telemetry import Telemetry
from controller.connections import backfill, metrics_source, prometheus_options
from controller.core.periods import Periods
from controller.core.planning import Planner, PlannerSettings
from controller.core.ports import Known, Overridden
from controller.core.types import DeploymentId, Readings, Tick
from controller.hooks import Hooks, build_hooks
from controller.leading import Leadership, LeadersRecorder, LedPlanners
from controller.loop import Loop, wall_clock_s
from controller.patience import Gate, NotAnswered
from controller.promises import slo_of as slo_of
from controller.securing import secured, tls
from controller.settings import EventSettings, Settings, SettingsError, Slo
from controller.sharing import gpu_budget
from controller.writing import Writing, leadership, leave, permit, writing

SECONDS_PER_DAY = 86_400.0
EVENTS_EVERY_S = 3600.0
EVENTS_AHEAD_S = 2 * SECONDS_PER_DAY
REFILL_EVERY_S = 60.0
CLOCKS_EVERY_S = 60.0


class ClusterSource:
    """Serve's account and Prometheus's, one after the other, failures noted and not raised."""

    def __init__(
        self,
        settings: Settings,
        serve: ServeSource,
        metrics: PrometheusSource,
        watch: Telemetry,
        unread: Callable[[], list[str]] = list,
    ) -> None:
        self._settings = settings
        self._unread = unread
        self._serve = serve
        self._metrics = metrics
        self._watch = watch
        self._known: dict[DeploymentId, None] = {}
        self._failures: tuple[str, ...] = ()
        self._unambiguous = False
        self._clocks_s = float("-inf")
        chance, tick_s = np.random.default_rng(), settings.tick_s
        self._serve_gate = Gate(settings.serve.timeout_s + 1.0, tick_s, chance)
        self._metrics_gate = Gate(settings.prometheus.timeout_s + 1.0, tick_s, chance, False)

    @property
    def failures(self) -> tuple[str, ...]:
        """What went wrong in the last round."""
        return self._failures

    async def replicas(self) -> Known:
        """Serve's account; None for every deployment known when it gives none."""
        self._failures = ()
        try:
            found = await self._serve_gate.ask(self._serve.read)
        except (ServeError, NotAnswered) as error:
            if isinstance(error, Unreachable):
                self._serve_gate.failed(error.retry_after_s)
            self._fail("serve", [str(error)])
            return dict.fromkeys(self._known)
        self._serve_gate.succeeded()
        self._known.update(dict.fromkeys(found))
        return found

    async def readings(self, now_s: float, replicas: Known) -> Mapping[DeploymentId, Readings]:
        """Prometheus's account of those deployments."""
        if not self._unambiguous:
            problems = await self.ambiguities()
            if problems:
                self._fail("prometheus", problems)
                return {t: Readings(now_s, replicas=known) for t, known in replicas.items()}
        ttft_s = {target: slo_of(self._settings, target).ttft_s for target in replicas}
        try:
            view = await self._metrics_gate.ask(
                lambda: asyncio.to_thread(self._metrics.read, now_s, replicas, ttft_s)
            )
        except NotAnswered as error:
            self._fail("prometheus", [str(error)])
            return {t: Readings(now_s, replicas=known) for t, known in replicas.items()}
        if view.silent:
            self._metrics_gate.failed(view.retry_after_s)
        else:
            self._metrics_gate.succeeded()
        self._fail("prometheus", view.errors)
        self._fail("floors", self._unread())
        for gpu in view.gpus:
            self._watch.gpu(gpu.node, gpu.gpu, gpu.utilization_ratio, gpu.memory_ratio)
        if abs(now_s - self._clocks_s) >= CLOCKS_EVERY_S:
            self._clocks_s = now_s
            self._watch.clock_skew(await asyncio.to_thread(self._ahead_s))
        return view.readings

    def _ahead_s(self) -> float | None:
        """By how much our clock is ahead of Prometheus's; None if Prometheus does not say."""
        before_s = wall_clock_s()
        try:
            theirs_s = self._metrics.clock_s()
        except PrometheusError:
            return None
        return (before_s + wall_clock_s()) / 2 - theirs_s

    async def ambiguities(self) -> list[str]:
        """Why the selected series must not be added up; nothing if they may, or if Prometheus
        does not say (it is asked again at the next tick)."""
        try:
            problems = await asyncio.to_thread(self._metrics.ambiguities)
        except PrometheusError:
            return []
        self._unambiguous = not problems
        return problems

    def _fail(self, source: str, errors: Iterable[str]) -> None:
        for error in errors:
            self._failures += (f"{source}: {error}",)
            self._watch.failed_source(source, error)


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
                work = past.work[target]
                planner.learn_past(
                    work.window_s,
                    work.running,
                    work.pairs,
                    work.completed_rps,
                    work.running_at_end,
                    work.replicas,
                )
            if target in past.starts:
                starts = past.starts[target]
                planner.lead.expect(list(starts), list(starts.values()))
            known = planner.forecaster.known_bins
            self._watch.log.info("history read", deployment=str(target), known_bins=known)

    def _progress(self, share: float) -> None:
        self._watch.log.info("reading history", done=f"{share:.0%}")


class WatchedJournal:
    """The journal as a recorder whose failure is counted and ends nothing."""

    def __init__(self, journal: Journal, watch: Telemetry) -> None:
        self._journal = journal
        self._watch = watch

    def record(self, tick: Tick) -> None:
        """Keep a tick if the journal can."""
        try:
            self._journal.record(tick)
        except JournalError as error:
            self._watch.failed_journal(str(error))


@dataclass
class Daemon:
    """Everything that runs, and how it ends."""

    settings: Settings
    source: ClusterSource
    loop: Loop
    serve: ServeApi
    prometheus: PrometheusClient
    journal: Journal
    hooks: Hooks
    fitter: Fitter
    board: Board
    telemetry: Telemetry
    writing: Writing
    leadership: Leadership
    planners: DeploymentPlanners

    async def run(self, stop: asyncio.Event, halt: asyncio.Event) -> None:
        """Serve HTTP and tick until `stop`, or until `halt` lets a successor in, which is to be set
        between two ticks. The journal is closed last."""
        more = [
            *self.hooks.routes(self.board, self._decisions),
            self.writing.route(),
            self._override_route(),
        ]
        app = application(self.board, self.telemetry.page, self._decisions, wall_clock_s, more)
        http = self.settings.http
        guarded = secured(app, http, self.settings.journal, self.telemetry, wall_clock_s)
        server = HttpServer(guarded, http.host, http.port, **tls(http))
        port = await server.start()
        self.telemetry.log.info(
            "started", mode=self.settings.mode, http=f"{self.settings.http.host}:{port}"
        )
        self.leadership.begin()
        keeping = asyncio.create_task(self.leadership.keep(asyncio.Event()))
        stopping = asyncio.create_task(_pass_on(stop, halt))
        try:
            problems = await self.source.ambiguities()
            if problems:
                raise SettingsError("\n".join(f"prometheus.selector: {p}" for p in problems))
            if not self.loop.planners:
                await self.loop.first_fits()
            await self.loop.run(halt)
            if stop.is_set():
                await self._leave()
        finally:
            keeping.cancel()
            stopping.cancel()
            await server.stop()
            await self.close()
            self.telemetry.log.info("stopped")

    async def close(self) -> None:
        """Close every connection and file."""
        self.fitter.close()
        await self.hooks.close()
        self.writing.lease.release()
        await self.serve.close()
        self.prometheus.close()
        self.journal.close()

    def _override_route(self) -> Route:
        desk = Desk(
            self.hooks.overrides,
            lambda: list(self.loop.planners),
            wall_clock_s,
            self.writing.lease.left_s,
            lambda said: self.telemetry.log.warning("override", what=said),
        )
        return override_route(desk, permit(self.settings.http))

    async def _leave(self) -> None:
        for said in await leave(self.settings, self.writing, self.journal, self._slo_of):
            self.telemetry.log.info(said)

    def _slo_of(self, target: DeploymentId) -> Slo:
        return slo_of(self.settings, target)

    def _decisions(
        self, target: DeploymentId | None, limit: int, until_s: float | None
    ) -> list[dict[str, Any]]:
        return self.journal.decisions(target, limit, until_s)


def build(settings: Settings) -> Daemon:
    """The daemon that the settings describe; raises SettingsError or JournalError."""
    active = settings.mode == "active"
    telemetry = Telemetry(active)
    if settings.gpu_hour_price is not None:
        telemetry.gpu_hour_price(settings.gpu_hour_price)
    prometheus = PrometheusClient(prometheus_options(settings.prometheus))
    made = writing(settings)
    retention_s = settings.journal.retention_days * SECONDS_PER_DAY
    journal = Journal(settings.journal.path, retention_s, epoch=lambda: made.lease.epoch)
    if journal.problem:
        telemetry.failed_journal(journal.problem)
    hooks = build_hooks(settings, telemetry.registry, wall_clock_s, journal.decisions)
    journal.companion = hooks.outbox
    board = Board(settings.mode, 3 * settings.tick_s + settings.prometheus.timeout_s)
    fitter = Fitter()
    metrics = metrics_source(settings, prometheus)
    cluster = ClusterSource(settings, made.source, metrics, telemetry, made.unread)
    leads = leadership(settings, made, journal, lambda: cluster.failures, telemetry, hooks.take_up)
    past = backfill(settings, prometheus)
    planners = DeploymentPlanners(settings, journal, hooks, past, telemetry)
    loop = Loop(
        cluster,
        LedPlanners(planners, leads),
        made.actuator,
        (
            telemetry,
            board,
            *made.recorders(WatchedJournal(journal, telemetry)),
            LeadersRecorder(hooks, made.lease),
        ),
        fitter,
        telemetry,
        settings.tick_s,
        budget=gpu_budget(settings),
    )
    return Daemon(
        settings,
        cluster,
        loop,
        made.serve,
        prometheus,
        journal,
        hooks,
        fitter,
        board,
        telemetry,
        made,
        leads,
        planners,
    )


async def _pass_on(stop: asyncio.Event, halt: asyncio.Event) -> None:
    """Whoever is to stop halts."""
    await stop.wait()
    halt.set()


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
    )
