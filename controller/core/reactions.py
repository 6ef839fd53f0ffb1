"""What an alert may do to a deployment: which override it asks for, and whether it is news."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controller.core.overrides import Effect, Override, Source
from controller.core.types import DeploymentId

APPLICATION, DEPLOYMENT = "application", "deployment"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of a notification: `fingerprint` names it, `starts_s` tells its episodes apart."""

    fingerprint: str
    firing: bool
    starts_s: float
    labels: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""

    @property
    def name(self) -> str:
        """The label alertname, or the fingerprint where it has none."""
        return self.labels.get("alertname", self.fingerprint)


@dataclass(frozen=True, slots=True)
class Reaction:
    """The bounded effect that alerts with the labels of `match` have until they are resolved, at
    most `ttl_s` after they came. On `target`; None: on the deployment that the alert's labels
    name, or on every one where they name none."""

    name: str
    match: Mapping[str, str]
    effect: Effect
    ttl_s: float
    replicas: int | None = None
    factor: float | None = None
    target: DeploymentId | None = None

    def key(self, alert: Alert) -> str:
        """The id of the override that it makes for an alert."""
        return f"alert:{self.name}:{alert.fingerprint}"

    def answers(self, alert: Alert) -> bool:
        """Whether it is meant for an alert."""
        return all(alert.labels.get(name) == value for name, value in self.match.items())

    def override(self, alert: Alert, at_s: float) -> Override:
        """What it makes of an alert that came at `at_s`."""
        why = f"alert {alert.name}, reaction {self.name}"
        return Override(
            self.key(alert),
            self.effect,
            Source.ALERT,
            f"{why}: {alert.summary}" if alert.summary else why,
            at_s,
            at_s + self.ttl_s,
            self.replicas,
            self.factor,
        )

    def targets(self, alert: Alert, known: Iterable[DeploymentId]) -> list[DeploymentId]:
        """The known deployments that it acts on."""
        if self.target is not None:
            return [target for target in known if target == self.target]
        application, deployment = alert.labels.get(APPLICATION), alert.labels.get(DEPLOYMENT)
        return [
            target
            for target in known
            if application in (None, target.application) and deployment in (None, target.deployment)
        ]


class Verdict(StrEnum):
    """What an alert is, in view of what came before it."""

    FIRED = "fired"
    RESOLVED = "resolved"
    REPEATED = "repeated"  # known already: nothing to do
    REPLAYED = "replayed"  # an episode that is over: somebody sends old notifications


@dataclass(frozen=True, slots=True)
class Episode:
    """What is known of an alert: when its last episode began, whether it is still going on, and
    the latest beginning among those that are over."""

    starts_s: float
    firing: bool
    over_s: float = float("-inf")


def judged(alert: Alert, last: Episode | None) -> tuple[Verdict, Episode]:
    """An alert's verdict, and what is known of it afterwards.

    Two Prometheus servers of a pair may move the beginning of a firing alert back by seconds;
    that is the same episode. Whatever began no later than an episode that is over is old.
    """
    over_s = float("-inf") if last is None else last.over_s
    if alert.starts_s <= over_s and last is not None:
        same = not alert.firing and not last.firing and alert.starts_s == over_s
        return (Verdict.REPEATED if same else Verdict.REPLAYED), last
    if not alert.firing:
        began_s = alert.starts_s if last is None else max(last.starts_s, alert.starts_s)
        return Verdict.RESOLVED, Episode(began_s, False, began_s)
    if last is not None and last.firing and alert.starts_s <= last.starts_s:
        return Verdict.REPEATED, Episode(alert.starts_s, True, over_s)
    return Verdict.FIRED, Episode(alert.starts_s, True, over_s)
