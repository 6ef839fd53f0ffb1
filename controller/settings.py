"""Everything an operator may tune: read from YAML, overridden by the environment, validated.

Each setting carries its unit, bounds, default and reason; `leadtime init` writes them out as
an example file that equals the defaults. Secrets come from the environment or from files.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import yaml
from cronsim import CronSim, CronSimError
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from controller.settings_hooks import ReactionSettings, SinkSettings, WebhookSettings
from controller.settings_types import ReadableFile, Section, Url

PREFIX = "LEADTIME_"
NESTED = "__"
# Variables that begin like settings and are none.
RESERVED = frozenset({"LEADTIME_CONFIG", "LEADTIME_GROUP"})


class SettingsError(ValueError):
    """A setting is wrong; each line of the message names one and says how to mend it."""


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


class PrometheusSettings(Section):
    """Where the metrics are."""

    url: Url = Field("http://127.0.0.1:9090", description="base URL of Prometheus's HTTP API")
    scrape_s: float = Field(
        10.0, ge=0.5, le=120, description="seconds between two scrapes of Ray's targets"
    )
    timeout_s: float = Field(5.0, gt=0, le=60, description="seconds until a query is given up")
    selector: dict[str, str] = Field(
        default_factory=dict,
        description="labels put into every query, so that exactly one Ray cluster matches",
    )
    client_ttft: str = Field(
        "ray_client_ttft_seconds_bucket",
        pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*_bucket$",
        description="histogram of the first-token time that clients feel, in seconds, with "
        "labels application and deployment; without it the SLO is bounded from router wait and "
        "engine time",
    )
    headers: dict[str, SecretStr] = Field(default_factory=dict, description="sent with every query")
    tenant: str | None = Field(None, description="sent as X-Scope-OrgID (Mimir, Cortex)")
    bearer: SecretStr | None = Field(None, description="token; better bearer_file")
    bearer_file: ReadableFile | None = Field(
        None, description="file with the token, read again at every query"
    )
    username: str | None = Field(None, description="for basic authentication")
    password: SecretStr | None = Field(None, description="for basic authentication")
    ca_file: ReadableFile | None = Field(None, description="certificates to trust (PEM)")
    certificate_file: ReadableFile | None = Field(None, description="client certificate (PEM)")
    key_file: ReadableFile | None = Field(None, description="key of the client certificate (PEM)")


class ServeSettings(Section):
    """Where Ray Serve is."""

    url: Url = Field("http://127.0.0.1:8265", description="base URL of Ray's dashboard")
    timeout_s: float = Field(5.0, gt=0, le=60, description="seconds until a request is given up")
    token: SecretStr | None = Field(None, description="Ray's auth token; better token_file")
    token_file: ReadableFile | None = Field(None, description="file with Ray's auth token")
    ca_file: ReadableFile | None = Field(None, description="certificates to trust (PEM)")
    elastic: bool = Field(
        False,
        description="true if the cluster adds nodes when replicas wait for room; false: never "
        "more replicas are asked for than the free resources hold",
    )


class HttpSettings(Section):
    """Our own HTTP server."""

    host: str = Field("127.0.0.1", description="address to listen on; loopback by default")
    port: int = Field(8199, ge=0, le=65535, description="port to listen on; 0: any free one")
    read_token: SecretStr | None = Field(
        None,
        description="bearer token without which nothing but health is answered; better "
        "read_token_file",
    )
    read_token_file: ReadableFile | None = Field(
        None, description="file with that token, read again at every request"
    )
    token: SecretStr | None = Field(
        None,
        description="bearer token of operators (pin, pause, resume), who can do nothing without "
        "it; better token_file",
    )
    token_file: ReadableFile | None = Field(
        None, description="file with that token, read again at every request"
    )
    certificate_file: ReadableFile | None = Field(
        None, description="our certificate (PEM); with key_file: HTTPS instead of HTTP"
    )
    key_file: ReadableFile | None = Field(None, description="key of our certificate (PEM)")
    client_ca_file: ReadableFile | None = Field(
        None, description="certificates (PEM) one of which a client must have been given"
    )

    @model_validator(mode="after")
    def _both(self) -> "HttpSettings":
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together")
        if self.client_ca_file is not None and self.certificate_file is None:
            raise ValueError("client_ca_file needs certificate_file and key_file")
        return self


class PolicySettings(Section):
    """The floors that the policy inside Serve reads (actuation: policy)."""

    ttl_s: float = Field(
        60.0,
        ge=5,
        le=3600,
        description="seconds that a floor holds after the tick that decided it; what the death of "
        "this daemon may cost, and what its restart may take",
    )
    file: Path | None = Field(
        None, description="file to write floors to as well, for policies that cannot reach us"
    )


class JournalSettings(Section):
    """Where decisions and learned state are kept."""

    path: Path = Field(Path("leadtime.db"), description="SQLite file; its folder must exist")
    retention_days: float = Field(
        30.0, gt=0, le=3650, description="days after which decisions are dropped"
    )


class LogSettings(Section):
    """What is written to standard error."""

    format: Literal["console", "json"] = Field("console", description="for people or machines")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level")


class Settings(BaseSettings):
    """All settings of the daemon."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=PREFIX, env_nested_delimiter=NESTED
    )

    mode: Literal["shadow", "active"] = Field(
        "shadow", description="shadow decides and writes nothing; active scales"
    )
    season_s: float = Field(
        86_400.0,
        ge=60,
        le=604_800,
        description="length in seconds of the cycle that the load repeats; every period of the "
        "forecaster derives from it",
    )
    tick_s: float = Field(10.0, ge=0.5, le=60, description="seconds between two decisions")
    history_seasons: float = Field(
        14.0,
        ge=0,
        le=14,
        description="seasons of history read from Prometheus at the start; 14 days by default",
    )
    gpu_budget: float | None = Field(
        None,
        gt=0,
        le=100_000,
        description="GPUs that all deployments together may hold, shared by priority: minimums "
        "first, and nothing is given on before it is free; null: no budget",
    )
    slo: Slo = Field(default_factory=Slo, description="for every deployment that says no other")
    deployments: list[DeploymentSettings] = Field(
        default_factory=list,
        description="deployments to scale, each with application, deployment, any key of slo and "
        "events of its own; empty: every one that Serve autoscales or leaves to an external scaler",
    )
    events: list[EventSettings] = Field(
        default_factory=list,
        description="load known to come, for every deployment; each with name, duration_s (at "
        "most 604800), one of cron (five fields, in quotes, on the clock of time_zone, UTC by "
        "default) and start (such as 2026-12-24T18:00:00+01:00), and one of multiple (above 1: "
        "of the load otherwise expected) and rate_rps (requests per second in all)",
    )
    reactions: list[ReactionSettings] = Field(
        default_factory=list,
        description="what Alertmanager's alerts do; each with name, match (labels), effect (boost, "
        "hold, pin), replicas or factor, ttl_s (900), and application and deployment if not those "
        "of the alert's labels",
    )
    sinks: list[SinkSettings] = Field(
        default_factory=list,
        description="where events go; each with name, url, and as you like format (cloudevents, "
        "slack), kinds, applications, secret or secret_file, ca_file, timeout_s, give_up_s",
    )
    gpu_hour_price: float | None = Field(
        None, gt=0, description="what a GPU-hour costs you, in your currency; dashboards show it"
    )
    prometheus: PrometheusSettings = Field(default_factory=PrometheusSettings)
    serve: ServeSettings = Field(default_factory=ServeSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    webhooks: WebhookSettings = Field(default_factory=WebhookSettings)
    policy: PolicySettings = Field(default_factory=PolicySettings)
    journal: JournalSettings = Field(default_factory=JournalSettings)
    log: LogSettings = Field(default_factory=LogSettings)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file."""
        return env_settings, init_settings

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, values: Any) -> Any:
        """Deployments take from `slo` what they do not say themselves."""
        if not isinstance(values, dict):
            return values
        shared, listed = values.get("slo"), values.get("deployments")
        if not isinstance(shared, dict) or not isinstance(listed, list):
            return values
        merged = [{**shared, **entry} if isinstance(entry, dict) else entry for entry in listed]
        return {**values, "deployments": merged}

    @model_validator(mode="after")
    def _named_once(self) -> "Settings":
        names = [(entry.application, entry.deployment) for entry in self.deployments]
        twice = sorted({"/".join(name) for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"deployments lists {', '.join(twice)} more than once")
        for listed, entries in (("reactions", self.reactions), ("sinks", self.sinks)):
            called = [entry.name for entry in entries]
            twice = sorted({name for name in called if called.count(name) > 1})
            if twice:
                raise ValueError(f"{listed} has {', '.join(twice)} more than once")
        return self

    @model_validator(mode="after")
    def _floors_outlive_ticks(self) -> "Settings":
        if self.policy.ttl_s < 2 * self.tick_s:
            raise ValueError(
                f"policy.ttl_s ({self.policy.ttl_s:g}) must be at least twice tick_s "
                f"({self.tick_s:g}), or floors would come and go"
            )
        return self


def load(path: Path | None) -> Settings:
    """Settings from a YAML file and LEADTIME_* variables, which win; raises SettingsError.

    A variable names its setting with two underscores between levels, as in
    LEADTIME_PROMETHEUS__URL; lists and mappings are written as JSON.
    """
    values = _read(path) if path is not None else {}
    where = f"{path}: " if path is not None else ""
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise SettingsError("\n".join(where + line for line in _lines(error))) from error
    except ValueError as error:
        raise SettingsError(f"environment: {error}") from error
    _refuse_unknown_variables()
    return settings


def _read(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: is no YAML: {error}") from error
    except RecursionError:
        raise SettingsError(f"{path}: is nested too deeply to be settings") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: must be a mapping of settings, not {type(values).__name__}")
    return values


def _refuse_unknown_variables() -> None:
    for name in sorted(os.environ):
        first = name.removeprefix(PREFIX).lower().split(NESTED)[0]
        if name.startswith(PREFIX) and name not in RESERVED and first not in Settings.model_fields:
            raise SettingsError(f"environment: {name} is no setting; see leadtime init")


def _lines(error: ValidationError) -> list[str]:
    lines = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in problem["loc"]) or "settings"
        said = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            said = "is no setting; see leadtime init for those there are"
        lines.append(f"{where}: {said}")
    return lines
