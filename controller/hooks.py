"""Builds what comes in from Alertmanager and what goes out to sinks, for `wiring`."""

import sqlite3
import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx
import numpy as np
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from starlette.routing import BaseRoute

from controller.adapters import alertmanager
from controller.adapters.alertmanager import AlertDesk
from controller.adapters.hook_metrics import HookMetrics
from controller.adapters.outbox import Filter, Letter, Outbox
from controller.adapters.overrides import Overrides
from controller.adapters.page import routes as page
from controller.adapters.page.history import Decisions, History
from controller.adapters.page.routes import View
from controller.adapters.sinks import Mailer, Sink
from controller.core.notices import Kind, Notice, Watcher, made
from controller.core.overrides import Effect, Override
from controller.core.ports import Lease
from controller.core.reactions import Reaction
from controller.core.types import DeploymentId, Tick
from controller.promises import promise_of, slo_of
from controller.settings import Settings, SettingsError
from controller.settings_hooks import ReactionSettings, SinkSettings

SECONDS_PER_DAY = 86_400.0
SECONDS_PER_HOUR = 3600.0
PRUNE_EVERY_S = 3600.0
ALERTS_SHOWN_S = 3600.0


class Shows(Protocol):
    """Whoever knows what the last tick found and decided."""

    def status(self, now_s: float) -> dict[str, Any]:
        """Everything known now."""
        ...

    @property
    def targets(self) -> Sequence[DeploymentId] | None:
        """The deployments of the last tick; None before the first."""
        ...


@dataclass
class Hooks:
    """Overrides, alerts in, events out."""

    settings: Settings
    overrides: Overrides
    desk: AlertDesk
    outbox: Outbox
    mailer: Mailer[Letter]
    history: History
    metrics: HookMetrics
    clock: Callable[[], float]
    lease: Lease
    _pruned_s: float = field(default=float("-inf"), init=False)
    _spent: bool = field(default=False, init=False)
    _started: bool = field(default=False, init=False)

    def routes(self, board: Shows, decisions: Decisions) -> list[BaseRoute]:
        """The endpoints: the status page and Alertmanager's."""
        chosen = self.settings.webhooks
        view = View(
            lambda: board.status(self.clock()),
            self.history,
            decisions,
            lambda: self.desk.alerts(self.clock() - ALERTS_SHOWN_S),
            lambda target: self.overrides.of(target, self.clock()),
            lambda target: promise_of(self.settings, target),
            self.clock,
        )
        return [
            *page.routes(view),
            alertmanager.route(
                self.desk,
                secret_of(chosen.token, chosen.token_file),
                lambda: board.targets if self.lease.left_s() > 0 else None,
                self.clock,
                self.metrics.alert,
                chosen.max_body_bytes,
            ),
        ]

    def of(self, target: DeploymentId, at_s: float) -> tuple[Override, ...]:
        """The overrides of a deployment."""
        return self.overrides.of(target, at_s)

    def record(self, tick: Tick) -> None:
        """Count what boosts had, show the overrides, say when the budget is spent."""
        self.history.record(tick)
        self.overrides.record(tick)
        for decision, _ in tick.decisions:
            found = Counter(each.effect for each in self.overrides.of(decision.target, tick.at_s))
            effects = {effect.value: found[effect] for effect in Effect}
            self.metrics.overridden(decision.target, effects)
        self.metrics.boosted(self.overrides.boosted_s)
        spent, self._spent = self._spent, self.overrides.boosts_spent
        if self._spent and not spent:
            hours = self.settings.webhooks.boost_budget_replica_h
            text = f"boosts have had their {hours:g} replica-hours of the last 24 h: no more boosts"
            self.outbox.publish([made(Kind.BUDGET_EXHAUSTED, tick.at_s, text)])
        if tick.at_s - self._pruned_s >= PRUNE_EVERY_S:
            self._pruned_s = tick.at_s
            retention_s = self.settings.journal.retention_days * SECONDS_PER_DAY
            self.overrides.prune(tick.at_s, retention_s)
            self.desk.prune(tick.at_s - retention_s)
            self.outbox.prune(tick.at_s - retention_s)

    def take_up(self) -> None:
        """We lead from now on: overrides that were made elsewhere hold, and events are
        delivered."""
        self.overrides.reload()
        if self.lease.inherited:
            epoch = self.lease.epoch
            text = f"another daemon leads now (epoch {epoch})"
            self._publish(made(Kind.LEADER_CHANGED, self.clock(), text, data={"epoch": epoch}))
        if not self._started:
            self._started = True
            self.mailer.start()

    def config_changed(self, changes: Mapping[str, str]) -> None:
        """Tell that new settings hold from the next tick on."""
        if changes:
            names = ", ".join(changes)
            text = f"settings were read again: {names}"
            data = {"changes": dict(changes)}
            self._publish(made(Kind.CONFIG_CHANGED, self.clock(), text, data=data))

    def _publish(self, notice: Notice) -> None:
        """A disk that cannot be written costs the event, never the daemon."""
        try:
            self.outbox.publish([notice])
        except sqlite3.Error as error:
            self.metrics.event("all", "failed", f"{notice.id}: journal: {error}")

    async def close(self) -> None:
        """Stop delivering; close the files."""
        await self.mailer.stop()
        self.outbox.close()
        self.desk.close()
        self.overrides.close()


def build_hooks(
    settings: Settings,
    registry: CollectorRegistry,
    clock: Callable[[], float],
    decisions: Decisions,
    lease: Lease,
) -> Hooks:
    """What the settings describe, on the journal's file; raises SettingsError. Only a daemon that
    has the lease takes alerts and delivers events."""
    path = settings.journal.path
    metrics = HookMetrics(registry)
    try:
        overrides = Overrides(path, settings.webhooks.boost_budget_replica_h * SECONDS_PER_HOUR)
        desk = AlertDesk(path, [reaction(each) for each in settings.reactions], overrides)
        filters = [
            Filter(each.name, frozenset(each.kinds), frozenset(each.applications))
            for each in settings.sinks
        ]
        outbox = Outbox(
            path, filters, Watcher(lambda target: slo_of(settings, target).attainment).notices
        )
    except sqlite3.Error as error:
        raise SettingsError(f"journal.path: {path}: {error}") from error
    sinks = [sink(each) for each in settings.sinks]
    mailer = Mailer(
        outbox, sinks, clock, metrics, np.random.default_rng(), lambda: lease.left_s() > 0
    )
    outbox.wake = mailer.wake
    history = History(decisions)
    return Hooks(settings, overrides, desk, outbox, mailer, history, metrics, clock, lease)


def reaction(settings: ReactionSettings) -> Reaction:
    """The core's view of a reaction."""
    target = None
    if settings.application is not None and settings.deployment is not None:
        target = DeploymentId(settings.application, settings.deployment)
    return Reaction(
        settings.name,
        settings.match,
        Effect(settings.effect),
        settings.ttl_s,
        settings.replicas,
        settings.factor,
        target,
    )


def sink(settings: SinkSettings) -> Sink:
    """A sink with a client of its own, so that a slow one takes no other's connections."""
    verify: ssl.SSLContext | bool = True
    if settings.ca_file is not None:
        try:
            verify = ssl.create_default_context(cafile=str(settings.ca_file))
        except (ssl.SSLError, OSError) as error:
            raise SettingsError(f"sinks.{settings.name}.ca_file: {error}") from error
    return Sink(
        settings.name,
        settings.url.get_secret_value(),
        settings.format == "slack",
        secret_of(settings.secret, settings.secret_file),
        settings.give_up_s,
        httpx.AsyncClient(timeout=settings.timeout_s, verify=verify, trust_env=False),
    )


def secret_of(value: SecretStr | None, file: Path | None) -> Callable[[], str | None]:
    """Reads a secret, at each call anew where it stands in a file; None where there is none. A
    file that cannot be read holds none."""

    def read() -> str | None:
        if file is None:
            return None if value is None else value.get_secret_value()
        try:
            return file.read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    return read
