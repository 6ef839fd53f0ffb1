"""How decisions reach Serve, and which of several daemons may write them."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from starlette.routing import Route

from controller.adapters.floors import FloorBoard, floor_route
from controller.adapters.lease import JournalLease
from controller.adapters.serve.actuator import ServeActuator, ShadowActuator
from controller.adapters.serve.api import ServeApi, ServeError
from controller.adapters.serve.source import ServeSource
from controller.adapters.serve.view import Actuation
from controller.adapters.store import Journal, JournalError
from controller.adapters.telemetry import Telemetry
from controller.adapters.tokens import Permit, bearer
from controller.connections import serve_api, serve_source
from controller.core.ports import Actuator, Lease, Recorder
from controller.core.types import DeploymentId, ScaleDeployment
from controller.leading import Alone, FencedActuator, Leadership, LeadersRecorder
from controller.loop import wall_clock_s
from controller.settings import HttpSettings, Settings, Slo

PEAK_S = 86_400.0
LEAVE_PATIENCE_S = 3.0


@dataclass
class Writing:
    """What writes to Serve, or offers it floors, while we lead."""

    lease: Lease
    serve: ServeApi
    source: ServeSource
    floors: FloorBoard
    actuator: Actuator

    def unread(self) -> list[str]:
        """Policies inside Serve that do not ask for their floors, while they are ours to give."""
        return self.floors.unread() if 0 < self.lease.left_s() < inf else []

    def recorders(self, journal: Recorder) -> tuple[Recorder, ...]:
        """Those that only the one that leads may fill: floors before the journal."""
        return LeadersRecorder(self.floors, self.lease), LeadersRecorder(journal, self.lease)

    def route(self) -> Route:
        """What the policies inside Serve ask; closed while we do not lead."""
        fence = self.lease.left_s if self.lease.left_s() < inf else lambda: 0.0
        return floor_route(self.floors, fence)


def writing(settings: Settings) -> Writing:
    """The writing side that the settings describe; in shadow mode it writes nothing."""
    active = settings.mode == "active"
    lease = lease_of(settings)
    serve = serve_api(settings.serve, lease.left_s)
    ways: dict[str, ServeSource] = {}

    def by_policy(target: DeploymentId) -> bool:
        return active and ways["source"].actuation(target) is Actuation.POLICY

    floors = FloorBoard(by_policy, settings.policy.ttl_s, time.monotonic, settings.policy.file)
    source = ways["source"] = serve_source(settings, serve, floors.floor)
    inner = ServeActuator(serve, source.actuation, floors.publish) if active else ShadowActuator()
    return Writing(lease, serve, source, floors, FencedActuator(inner, lease))


def lease_of(settings: Settings) -> Lease:
    """The lease of an active daemon: those with one journal and one Serve agree on who leads."""
    if settings.mode != "active":
        return Alone()
    return JournalLease(settings.journal.path, settings.serve.url, time.monotonic)


def leadership(
    settings: Settings,
    made: Writing,
    journal: Journal,
    failures: Callable[[], tuple[str, ...]],
    telemetry: Telemetry,
    began: Callable[[], None],
) -> Leadership:
    """Keeps the lease while the ticks go on and Serve answers them; `began` is called when we take
    over."""

    def reachable() -> bool:
        return not any(failure.startswith("serve:") for failure in failures())

    return Leadership(
        made.lease, journal.learned, reachable, telemetry, settings.tick_s, time.monotonic, began
    )


def permit(http: HttpSettings) -> Permit:
    """Who may change something: whoever has the token of the settings."""

    def token() -> str | None:
        if http.token_file is not None:
            return http.token_file.read_text(encoding="utf-8").strip()
        return http.token.get_secret_value() if http.token else None

    return bearer(token)


async def leave(
    settings: Settings, made: Writing, journal: Journal, slo_of: Callable[[DeploymentId], Slo]
) -> list[str]:
    """Before we end: give `external` deployments, which nothing scales after us, the largest
    number wanted within a day, where `on_exit` says so. Takes 3 s at most; says what it did."""
    if settings.mode != "active" or made.lease.left_s() <= 0:
        return []
    try:
        async with asyncio.timeout(LEAVE_PATIENCE_S):
            return await _leave_peaks(made, journal, slo_of)
    except (TimeoutError, ServeError, JournalError) as error:
        return [f"on_exit could not be carried out: {error or 'Serve did not answer in time'}"]


async def _leave_peaks(
    made: Writing, journal: Journal, slo_of: Callable[[DeploymentId], Slo]
) -> list[str]:
    said = []
    for target, replicas in (await made.source.read()).items():
        slo = slo_of(target)
        by_us_alone = made.source.actuation(target) is Actuation.EXTERNAL
        if replicas is None or not by_us_alone or slo.on_exit == "hold":
            continue
        peak = journal.peak(target, wall_clock_s() - PEAK_S) or 0
        wanted = min(max(peak, slo.min_replicas), slo.max_replicas)
        if wanted > replicas.requested:
            outcome = await made.actuator.apply(ScaleDeployment(target, wanted))
            said.append(f"on_exit: peak: {target}: {outcome.detail}")
    return said
