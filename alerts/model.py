"""What an alert is: an expression, when it counts, how grave it is, what it says."""

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["page", "ticket"]
Layer = Literal["slo", "serving", "controller", "cluster"]
OF_DEPLOYMENT = ("application", "deployment")


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that others are made of; `expr` is PromQL at scale 1."""

    name: str
    expr: str
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert at scale 1.

    `page` wakes a person, `ticket` waits for the morning. `summary` is Alertmanager's template
    text and tells numbers; `<5m>` in it is a duration, written as the scale makes it. `by` are
    the labels that tell one alert of this name from another. `follows_from` names the alerts
    that explain this one, so that it is not sent while they fire.
    """

    name: str
    layer: Layer
    severity: Severity
    expr: str
    for_: str
    summary: str
    description: str
    by: tuple[str, ...] = OF_DEPLOYMENT
    follows_from: tuple[str, ...] = ()
