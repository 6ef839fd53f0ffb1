"""Everything an operator may tune: read from YAML, overridden by the environment, validated.

Each setting carries its unit, bounds, default and reason; `leadtime init` writes them out as
an example file that equals the defaults. Secrets come from the environment or from files.
"""

import os
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from controller.settings_hooks import ReactionSettings, SinkSettings, WebhookSettings
from controller.settings_promises import DeploymentSettings as DeploymentSettings
from controller.settings_promises import EventSettings as EventSettings
from controller.settings_promises import Slo as Slo
from controller.settings_servers import HttpSettings as HttpSettings
from controller.settings_servers import PrometheusSettings as PrometheusSettings
from controller.settings_servers import ServeSettings as ServeSettings
from controller.settings_types import Section

PREFIX = "LEADTIME_"
NESTED = "__"
# Variables that begin like settings and are none.
RESERVED = frozenset({"LEADTIME_CONFIG", "LEADTIME_GROUP"})


class SettingsError(ValueError):
    """A setting is wrong; each line of the message names one and says how to mend it."""


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


class ChoiceSettings(Section):
    """The model and the price of risk, chosen once a season by what they would have cost in a
    replay of the deployment's own past."""

    enabled: bool = Field(
        True,
        description="false: the default model and price, always; seasons of under an hour are "
        "never replayed",
    )
    cpu_s: int = Field(
        900, ge=10, le=86_400, description="seconds of CPU time, niced, that a replay may take"
    )
    memory_mib: int = Field(
        2048, ge=1024, le=1_048_576, description="MiB of address space that a replay may take"
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
    choice: ChoiceSettings = Field(default_factory=ChoiceSettings)
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
    if wrong := [key for key in values if not isinstance(key, str)]:
        raise SettingsError(f"{path}: {wrong[0]!r:.100} is no setting; see leadtime init")
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
