"""What the multi-model graph's `args` may say."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from serve_app.graph.intents import FAQ, SHIPPED
from serve_app.graph.split import Shares
from serve_app.settings import (
    AppSettings,
    EngineSettings,
    InvalidArgs,
    Positive,
    StandInSettings,
    Strict,
    parse,
)

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Share = Annotated[float, Field(ge=0, le=1)]


class VersionSettings(Strict):
    """One version of the LLM: the deployment `LLM-<name>`."""

    name: Name
    engine: EngineSettings = StandInSettings()
    cpus: Annotated[float, Field(gt=0)] = 1.0
    """CPUs of one replica."""
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    """GPUs of one replica; two or more are one tensor-parallel gang on one node."""


class LlmSettings(Strict):
    """The model that answers what no cheaper one can."""

    model: Name = "chat"
    """The name clients ask for."""
    versions: Annotated[tuple[VersionSettings, ...], Field(min_length=1, max_length=2)] = (
        VersionSettings(name="a"),
    )
    """One, or two for an A/B split; put the new one last."""

    @model_validator(mode="after")
    def _apart(self) -> "LlmSettings":
        if len({version.name for version in self.versions}) < len(self.versions):
            raise ValueError("the names of versions must differ")
        return self


class SmallSettings(Strict):
    """Small models that share the replicas of the deployment `Small`, loaded when asked for."""

    models: Annotated[dict[Name, EngineSettings], Field(min_length=1)]
    """Their engines, by the name clients ask for."""
    max_models_per_replica: Annotated[int, Field(ge=1, le=64)] = 2
    """The least recently used goes when another is asked for; the first ones load at the start."""
    cpus: Annotated[float, Field(gt=0)] = 1.0
    """CPUs of one replica, for all of its models."""
    gpus: Annotated[int, Field(ge=0, le=1)] = 0
    """GPUs of one replica; its models share it (vLLM: engine_args.gpu_memory_utilization)."""


class SplitSettings(Strict):
    """`user_config` of the Ingress: changes in place, without a restart."""

    shares: dict[Name, Share]
    """Of conversations, by version; they sum to 1."""

    @model_validator(mode="after")
    def _whole(self) -> "SplitSettings":
        if not math.isclose(sum(self.shares.values()), 1.0, abs_tol=1e-6):
            raise ValueError("shares must sum to 1")
        return self


class RouterSettings(Strict):
    """How `auto_model` chooses."""

    auto_model: Name = "auto"
    """The name under which clients leave the choice to the router."""
    phrases: Path = SHIPPED
    """What intents and FAQ are learned from, when the application is built."""
    routes: dict[str, str] = Field(default={FAQ: FAQ})
    """Model by intent: `faq`, the LLM's or a small one's name. The LLM answers all others."""
    min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.7
    """Probability of the intent below which the LLM answers."""
    min_similarity: Annotated[float, Field(ge=0, le=1)] = 0.33
    """Similarity to an FAQ question below which the LLM answers."""
    timeout_s: Positive = 1.0
    """A router or FAQ that takes longer is passed over: the LLM answers."""


class GraphSettings(Strict):
    """Router, FAQ and small models in front of an LLM."""

    router: RouterSettings = RouterSettings()
    llm: LlmSettings = LlmSettings()
    small: SmallSettings | None = None
    slo_ttft_s: tuple[Positive, ...] = (1.0,)
    default_max_tokens: Annotated[int, Field(ge=1)] = 16

    @model_validator(mode="after")
    def _names_fit(self) -> "GraphSettings":
        names = [self.router.auto_model, FAQ, self.llm.model, *self._small_names()]
        if len(set(names)) < len(names):
            raise ValueError(f"model names must differ: {', '.join(names)}")
        for intent, model in self.router.routes.items():
            if model not in names[1:]:
                known = ", ".join(names[1:])
                raise ValueError(f"router.routes.{intent}: {model!r} is none of {known}")
        return self

    @property
    def models(self) -> tuple[str, ...]:
        """Every name that clients may ask for."""
        return (self.router.auto_model, self.llm.model, FAQ, *self._small_names())

    def default_split(self) -> SplitSettings:
        """All to the first version."""
        return SplitSettings(shares={self.llm.versions[0].name: 1.0})

    def shares(self, user_config: Mapping[str, Any]) -> Shares:
        """The split in the versions' order; InvalidArgs if it is none or names another version."""
        given = parse(SplitSettings, user_config, "Ingress (user_config)").shares
        names = [version.name for version in self.llm.versions]
        if unknown := sorted(given.keys() - set(names)):
            raise InvalidArgs(
                f"user_config of Ingress: shares.{unknown[0]}: no such version; "
                f"there is {', '.join(names)}"
            )
        return tuple((name, given.get(name, 0.0)) for name in names)

    def _small_names(self) -> tuple[str, ...]:
        return tuple(self.small.models) if self.small is not None else ()

    def version(self, version: VersionSettings) -> AppSettings:
        """One version as an application of its own; metrics name it `chat@b`."""
        return self._app(f"{self.llm.model}@{version.name}", version, version.engine)

    def small_models(self) -> dict[str, AppSettings]:
        if self.small is None:
            return {}
        engines = self.small.models.items()
        return {name: self._app(name, self.small, engine) for name, engine in engines}

    def _app(
        self, model: str, room: VersionSettings | SmallSettings, engine: EngineSettings
    ) -> AppSettings:
        return AppSettings(
            model=model,
            engine=engine,
            cpus=room.cpus,
            gpus=room.gpus,
            slo_ttft_s=self.slo_ttft_s,
            default_max_tokens=self.default_max_tokens,
        )
