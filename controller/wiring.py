"""Builds the daemon from its settings: the only module that knows every adapter."""

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.routing import Route

from controller.adapters.fitter import Fitter
from controller.adapters.http import Board, HttpServer, application
from controller.adapters.overriding import Desk, override_route
from controller.adapters.prometheus.client import PrometheusClient
from controller.adapters.rehearser import Limits, Rehearser
from controller.adapters.serve.api import ServeApi
from controller.adapters.store import Journal, JournalError
from controller.adapters.telemetry import Telemetry
from controller.cluster import ClusterSource
from controller.connections import backfill, metrics_source, prometheus_options
from controller.core.types import DeploymentId, Tick
from controller.hooks import Hooks, build_hooks
from controller.leading import Leadership, LeadersRecorder, LedPlanners
from controller.loop import Loop, wall_clock_s
from controller.planners import DeploymentPlanners
from controller.promises import slo_of
from controller.rehearsing import rehearse
from controller.securing import secured, tls
from controller.settings import Settings, SettingsError, Slo
from controller.sharing import gpu_budget
from controller.writing import Writing, leadership, leave, permit, writing

SECONDS_PER_DAY = 86_400.0


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
    rehearser: Rehearser
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
        self.rehearser.close()
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
    hooks = build_hooks(settings, telemetry.registry, wall_clock_s, journal.decisions, made.lease)
    journal.companion = hooks.outbox
    board = Board(settings.mode, 3 * settings.tick_s + settings.prometheus.timeout_s)
    fitter = Fitter()
    rehearser = Rehearser(rehearse, Limits(settings.choice.cpu_s, settings.choice.memory_mib))
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
        chooser=rehearser,
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
        rehearser,
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
