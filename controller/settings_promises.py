"""Settings of what is promised to users, between which bounds, and which load is known to come."""

from datetime import UTC, datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from controller.settings_types import Section


def _comes(cron: str) -> str:
    example = "such as '30 8 * * MON-FRI' (minute hour day month weekday)"
    if len(cron.split()) != 5:
        raise ValueError(f"must have five fields, {example}")
    try:
        never = next(CronSim(cron, datetime(2024, 1, 1, tzinfo=UTC)), None) is None
    except CronSimError as error:
        said = str(error).removeprefix("Bad ")
        raise ValueError(f"cannot be read at the {said}; write it {example}") from error
    if never:
        raise ValueError("names a day that never comes; choose another day or month")
    return cron


def _with_offset(start: object) -> object:
    """A YAML reader makes a time of what looks like one; a text comes from the environment."""
    try:
        made = datetime.fromisoformat(start) if isinstance(start, str) else start
    except ValueError:
        made = None
    if not isinstance(made, datetime) or made.tzinfo is None:
        raise ValueError("must be a time with its offset, such as 2026-12-24T18:00:00+01:00")
    return made


def _is_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError("is no IANA time zone; write it like Europe/Berlin or UTC") from error
    return name


Cron = Annotated[str, AfterValidator(_comes)]
Start = Annotated[datetime, BeforeValidator(_with_offset)]
TimeZone = Annotated[str, AfterValidator(_is_zone)]


class Slo(Section):
    """What is promised to the users of a deployment, and between which bounds."""

    ttft_s: float = Field(
        2.0, gt=0, le=600, description="seconds within which a request gets its first token"
    )
    attainment: float = Field(
        0.99, ge=0.5, le=0.9999, description="share of requests for which that must hold"
    )
    min_replicas: int = Field(1, ge=0, le=10_000, description="never fewer replicas than this")
    max_replicas: int = Field(
        16, ge=1, le=10_000, description="never more replicas; at most max_replicas in Serve"
    )
    lead_prior_s: float = Field(
        120.0,
        gt=0,
        le=3600,
        description="seconds a start is taken to need until some were seen; 30 s to 7 min is usual",
    )
    start_timeout_s: float = Field(
        3600.0,
        ge=10,
        le=86_400,
        description="seconds after which a start that has not ended is given up: cancelled, told "
        "(reason stuck) and tried again later; well above the slowest good start",
    )
    slots: float | None = Field(
        None,
        ge=1,
        le=100_000,
        description="requests a replica runs at once (vLLM's max_num_seqs); null: as Serve's "
        "max_ongoing_requests says",
    )
    actuation: Literal["policy", "floor", "external"] | None = Field(
        None,
        description="policy offers a floor to the LeadtimePolicy inside Serve, floor raises "
        "min_replicas under Serve's own autoscaler, external sets the target; null: external where "
        "external_scaler_enabled, policy where it is configured, else floor",
    )
    on_exit: Literal["peak", "hold"] = Field(
        "peak",
        description="what SIGTERM leaves behind under external, where nothing scales after us: "
        "peak sets the largest number wanted within 24 hours, hold leaves what is there",
    )

    @model_validator(mode="after")
    def _ordered(self) -> "Slo":
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas ({self.min_replicas}) must not exceed max_replicas "
                f"({self.max_replicas})"
            )
        return self


class EventSettings(Section):
    """Load that is known to come: a launch, a campaign, a nightly batch."""

    name: str = Field(min_length=1, max_length=100, description="what you call it")
    cron: Cron | None = Field(None, description="when it begins, in five fields, again and again")
    start: Start | None = Field(None, description="when it begins, once: RFC 3339 with offset")
    duration_s: float = Field(gt=0, le=604_800, description="seconds that it lasts")
    multiple: float | None = Field(
        None, gt=1, le=1000, description="times the load that would be there without it"
    )
    rate_rps: float | None = Field(
        None, gt=0, le=1_000_000, description="requests per second in all while it runs"
    )
    time_zone: TimeZone = Field("UTC", description="IANA name of the clock that cron goes by")

    @model_validator(mode="after")
    def _said_once(self) -> "EventSettings":
        for one, other in (("cron", "start"), ("multiple", "rate_rps")):
            given = [name for name in (one, other) if getattr(self, name) is not None]
            if len(given) != 1:
                found = "both are set" if given else "neither is set"
                raise ValueError(f"needs exactly one of {one} and {other}; {found}")
        if self.start is not None and "time_zone" in self.model_fields_set:
            raise ValueError("time_zone is for cron; start has its offset: delete time_zone")
        return self


class DeploymentSettings(Slo):
    """One deployment to scale; what is left out is taken from `slo`."""

    application: str = Field(description="Serve's name of the application")
    deployment: str = Field(description="Serve's name of the deployment")
    priority: int = Field(
        0, ge=-1000, le=1000, description="who goes first in gpu_budget; higher is earlier"
    )
    events: list[EventSettings] = Field(
        default_factory=list, description="known events of this one, beside those of all"
    )
