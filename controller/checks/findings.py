"""What a check finds, and everything that the rules go by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.adapters.prometheus.audit import Cadence
from controller.adapters.serve.view import Actuation, Deployment
from controller.core.types import DeploymentId, Readings

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
Bundles = Sequence[Mapping[str, float]]
Failure = tuple[str, str, str]
"""Where, what, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: by which rule, how bad, where, why it matters and what to do."""

    rule: str
    severity: Severity
    where: str
    reason: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """One deployment: what Serve says of it, what is promised for it and what was measured.

    `actuation` is how we scale it, None where we do not; `listed` whether the settings name it.
    `stay_p99_s` bounds the time that 99 % of its requests stayed in a replica, `start_s` is a
    usual cold start; both None where none was seen. `late_bounds` are the histogram that its SLO
    is measured by and its bucket bounds. `gang` is what one replica asks of the cluster,
    `strategy` how it is spread.
    """

    deployment: Deployment
    ttft_s: float
    min_replicas: int
    max_replicas: int
    slots: float | None
    actuation: Actuation | None
    listed: bool = False
    lead_prior_s: float = 120.0
    stay_p99_s: tuple[float, float] | None = None
    start_s: float | None = None
    readings: Readings | None = None
    late_bounds: tuple[str, Sequence[float]] | None = None
    gang: Bundles = ()
    strategy: str = "PACK"

    @property
    def where(self) -> str:
        """Its name, as findings show it."""
        return str(self.deployment.target)

    @property
    def scaling(self) -> Mapping[str, Any]:
        """Serve's autoscaling of it; empty where Serve does not scale it."""
        return self.deployment.autoscaling or {}

    @property
    def submitted(self) -> Mapping[str, Any]:
        """What the config file says of it."""
        return self.deployment.submitted or {}


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything that was asked, at one moment.

    `missing` are deployments of the settings that Serve does not have; `arguments` the `args`
    of each application; `nodes` every node's resources in all; `versions` Ray's version by
    node; `open_urls` where Ray's dashboard lets anyone in. None = it was not asked.
    """

    serve_url: str
    prometheus_url: str
    tick_s: float
    scrape_s: float
    elastic: bool
    subjects: tuple[Subject, ...] = ()
    missing: tuple[DeploymentId, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    nodes: Mapping[str, Mapping[str, float]] | None = None
    version: str | None = None
    versions: Mapping[str, str] | None = None
    open_urls: tuple[str, ...] = ()
    cadence: Cadence | None = None
    ambiguities: tuple[str, ...] | None = None
    failures: tuple[Failure, ...] = ()

    @property
    def scaled(self) -> tuple[Subject, ...]:
        """The deployments that are scaled by us."""
        return tuple(subject for subject in self.subjects if subject.actuation is not None)
