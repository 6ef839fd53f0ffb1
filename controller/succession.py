"""One daemon gives way to the next within the process, between two ticks, and nothing is forgotten:
planners, with their forecasts, go on. So settings change, and so a damaged journal is left."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

from controller.adapters.store import JournalError
from controller.adapters.telemetry.logs import set_up_logs
from controller.core.types import Tick
from controller.planners import planner_settings
from controller.reloading import Reloading
from controller.settings import Settings, SettingsError
from controller.wiring import Daemon, build


class Succession:
    """Runs one daemon after another until `stop`."""

    def __init__(self, config: Path | None, settings: Settings, stop: asyncio.Event) -> None:
        self._stop = stop
        self._halt = asyncio.Event()
        self._next: Daemon | None = None
        self._daemon = self._built(settings)
        self.reloading = Reloading(config, settings, self._prepare, self._refuse)

    async def run(self) -> None:
        """Until `stop`; each successor begins where the one before left off."""
        watching = asyncio.create_task(self.reloading.watch())
        try:
            while True:
                await self._daemon.run(self._stop, self._halt)
                if self._stop.is_set():
                    return
                self._halt.clear()
                self._daemon = self._succeed()
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            if self._next is not None:
                await self._next.close()

    def record(self, tick: Tick) -> None:
        """The last of the recorders: a tick is over."""
        if self._next is not None or self._daemon.journal.renewed:
            self._halt.set()

    def _built(self, settings: Settings) -> Daemon:
        daemon = build(settings)
        daemon.loop.recorders = (*daemon.loop.recorders, self)
        return daemon

    def _prepare(self, settings: Settings, changed: Mapping[str, str]) -> None:
        """Build the successor; what cannot be built is refused before anything has changed."""
        try:
            self._next = self._built(settings)
        except (JournalError, OSError) as error:
            raise SettingsError(str(error)) from error
        self._daemon.telemetry.log.info("settings read again", changes=dict(changed))
        # To the new settings' sinks; the lease is still that of the daemon in force.
        if self._daemon.leadership.leads:
            self._next.hooks.config_changed(changed)

    def _refuse(self, why: str) -> None:
        self._daemon.telemetry.failed_source("settings", f"not taken, the old ones stay: {why}")

    def _succeed(self) -> Daemon:
        """The successor, with the planners of the one before."""
        before = self._daemon
        if before.journal.renewed:
            kept_as = before.journal.replaced
            before.telemetry.log.error("journal is another file", damaged_one=str(kept_as))
        after, self._next = self._next or self._built(before.settings), None
        set_up_logs(after.settings.log.format, after.settings.log.level)
        hand_over(before, after)
        return after


def hand_over(before: Daemon, after: Daemon) -> None:
    """Give planners on, under their new settings; those of deployments no longer listed end."""
    listed = {(entry.application, entry.deployment) for entry in after.settings.deployments}
    for target, planner in before.loop.planners.items():
        if listed and target not in listed:
            continue
        planner.reconfigure(planner_settings(after.settings, target))
        after.loop.planners[target] = planner
    after.planners.continue_from(before.planners, after.loop.planners)
