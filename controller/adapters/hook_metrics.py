"""Metrics and log lines of overrides, of alerts that come in and of events that go out."""

from collections.abc import Mapping

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from controller.core.types import DeploymentId

OF_DEPLOYMENT = ("application", "deployment")

OVERRIDES = "leadtime_overrides"
BOOSTED = "leadtime_boosted_replica_seconds"
ALERTS = "leadtime_alerts_total"
EVENTS = "leadtime_events_total"
EVENTS_WAITING = "leadtime_events_waiting"
DOUBTFUL = frozenset({"refused", "replayed", "failed"})


class HookMetrics:
    """In the registry of the daemon's own metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._log = structlog.get_logger("leadtime")
        self._overrides = Gauge(
            OVERRIDES, "Overrides in force.", (*OF_DEPLOYMENT, "effect"), registry=registry
        )
        self._boosted = Gauge(
            BOOSTED, "Replica-seconds that boosts had in the last 24 h.", registry=registry
        )
        self._alerts = Counter(
            ALERTS.removesuffix("_total"),
            "Alerts received, by verdict.",
            ("verdict",),
            registry=registry,
        )
        self._events = Counter(
            EVENTS.removesuffix("_total"),
            "Tries to deliver an event, by outcome; dead: given up.",
            ("sink", "outcome"),
            registry=registry,
        )
        self._waiting = Gauge(
            EVENTS_WAITING, "Events that wait to be delivered.", ("sink",), registry=registry
        )

    def alert(self, verdict: str, detail: str) -> None:
        """Note an alert that came in, or a notification that was refused."""
        self._alerts.labels(verdict).inc()
        say = self._log.warning if verdict in DOUBTFUL else self._log.info
        say("alert", verdict=verdict, detail=detail)

    def event(self, sink: str, outcome: str, detail: str) -> None:
        """Note a try to deliver an event."""
        self._events.labels(sink, outcome).inc()
        say = self._log.debug if outcome == "delivered" else self._log.warning
        say("event", sink=sink, outcome=outcome, detail=detail)

    def events_waiting(self, sink: str, waiting: int) -> None:
        """Show how many events wait for a sink."""
        self._waiting.labels(sink).set(waiting)

    def overridden(self, target: DeploymentId, effects: Mapping[str, int]) -> None:
        """Show the overrides of a deployment, by effect."""
        for effect, count in effects.items():
            self._overrides.labels(*target, effect).set(count)

    def boosted(self, replica_s: float) -> None:
        """Show what boosts had."""
        self._boosted.set(replica_s)
