"""Settings of what comes in from Alertmanager and of what goes out to sinks."""

from typing import Literal

from pydantic import Field, SecretStr, model_validator

from controller.core.notices import Kind
from controller.settings_types import ReadableFile, SecretUrl, Section


class WebhookSettings(Section):
    """Notifications from Alertmanager, taken at POST /webhooks/alertmanager."""

    token: SecretStr | None = Field(
        None,
        description="bearer token that Alertmanager must send; without one nothing is taken; "
        "better token_file",
    )
    token_file: ReadableFile | None = Field(
        None, description="file with that token, read again at every notification"
    )
    max_body_bytes: int = Field(
        1_000_000, ge=1_000, le=100_000_000, description="larger notifications are refused"
    )
    boost_budget_replica_h: float = Field(
        24.0,
        ge=0,
        le=1_000_000,
        description="replica-hours that boosts may add in 24 h, over all deployments; they stop "
        "when these are spent",
    )


class ReactionSettings(Section):
    """A bounded effect of an alert."""

    name: str = Field(
        min_length=1, max_length=100, pattern=r"^[\w.-]+$", description="what you call it"
    )
    match: dict[str, str] = Field(
        min_length=1, description="labels that an alert must have, such as alertname"
    )
    effect: Literal["boost", "hold", "pin"] = Field(
        description="boost adds replicas, hold forbids change, pin states the number"
    )
    replicas: int | None = Field(None, ge=0, le=10_000, description="added by boost, or pinned")
    factor: float | None = Field(None, gt=1, le=100, description="of a boost: times the plan")
    ttl_s: float = Field(
        900.0,
        ge=1,
        le=604_800,
        description="seconds after which it ends, resolved or not",
    )
    application: str | None = Field(None, description="of the deployment it acts on")
    deployment: str | None = Field(
        None,
        description="acts on this one; null: the one that the alert's labels name, or all where "
        "they name none",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> "ReactionSettings":
        given = [name for name in ("replicas", "factor") if getattr(self, name) is not None]
        allowed = {"boost": (["replicas"], ["factor"]), "hold": ([],), "pin": (["replicas"],)}
        if given not in allowed[self.effect]:
            wants = {"boost": "one of replicas and factor", "hold": "neither", "pin": "replicas"}
            raise ValueError(f"{self.effect} needs {wants[self.effect]} of replicas and factor")
        if self.effect == "boost" and self.replicas == 0:
            raise ValueError("replicas: a boost adds at least 1")
        if (self.application is None) != (self.deployment is None):
            raise ValueError("application and deployment go together")
        return self


class SinkSettings(Section):
    """Where events go."""

    name: str = Field(
        min_length=1, max_length=100, pattern=r"^[\w.-]+$", description="what you call it"
    )
    url: SecretUrl = Field(description="where they are posted to")
    format: Literal["cloudevents", "slack"] = Field(
        "cloudevents", description="CloudEvents 1.0 JSON, or what a Slack webhook understands"
    )
    kinds: list[Kind] = Field(
        default_factory=list, description="kinds of events that it gets; empty: all"
    )
    applications: list[str] = Field(
        default_factory=list, description="applications that it hears of; empty: all"
    )
    secret: SecretStr | None = Field(
        None, description="key of the HMAC-SHA256 signature; better secret_file"
    )
    secret_file: ReadableFile | None = Field(None, description="file with that key")
    ca_file: ReadableFile | None = Field(None, description="certificates to trust (PEM)")
    timeout_s: float = Field(5.0, gt=0, le=60, description="seconds until a try is given up")
    give_up_s: float = Field(
        86_400.0,
        ge=1,
        le=2_592_000,
        description="seconds after which an event that could not be delivered is a dead letter",
    )
