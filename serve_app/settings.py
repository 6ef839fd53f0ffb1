"""What the application's `args` may say: every key with unit, bound and default."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from serve_app.law import Law
from serve_app.standin import StandInConfig

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class InvalidArgs(ValueError):
    """The application's `args` are wrong; the message names each key and what it must be."""


class Strict(BaseModel):
    """Settings that take no unknown key and never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StandInSettings(Strict):
    """The stand-in engine of each replica; its defaults are roughly an 8B model on a small GPU."""

    kind: Literal["standin"] = "standin"
    load_s: Annotated[float, Field(ge=0, le=3600)] = 8.0
    """Seconds from constructor to ready: the model load."""
    slots: Annotated[int, Field(ge=1, le=1024)] = 8
    """Requests that run at once; more wait."""
    beta: Annotated[float, Field(ge=0, le=10)] = 0.05
    """Slow-down by company: each of n runs at 1 / (1 + beta * (n - 1)) of its lone speed."""
    prefill_tokens_per_s: Positive = 8000.0
    """Prompt tokens a second of a request that runs alone."""
    token_s: Positive = 0.02
    """Seconds an output token of a request that runs alone."""
    chunk_tokens: Annotated[int, Field(ge=1, le=4096)] = 8
    """Output tokens sent as one, after the first, which goes alone."""
    kv_tokens: Annotated[int, Field(ge=1)] = 65_536
    """Tokens that the KV cache holds; only shown (kv_cache_usage_perc), it stops nothing."""
    max_model_len: Annotated[int, Field(ge=2)] = 32_768
    """Prompt and output tokens of one request together; more is refused with 400."""

    def config(self) -> StandInConfig:
        return StandInConfig(
            law=self.law(),
            load_s=self.load_s,
            chunk_tokens=self.chunk_tokens,
            kv_tokens=self.kv_tokens,
            max_model_len=self.max_model_len,
        )

    def law(self) -> Law:
        """The law by which these replicas run, for scorers and planners of experiments."""
        return Law(self.slots, self.beta, self.prefill_tokens_per_s, self.token_s)


ENGINE_ARGS_OF_OURS = {
    "model": "source",
    "served_model_name": "model",
    "tensor_parallel_size": "gpus",
    "max_model_len": "max_model_len",
    "max_num_seqs": "slots",
    "enforce_eager": "enforce_eager",
    "distributed_executor_backend": None,
    "disable_log_stats": None,
}
"""Arguments of vLLM that other keys set, or that the application needs as they are (None)."""


class VllmSettings(Strict):
    """Real vLLM in each replica."""

    kind: Literal["vllm"]
    source: Annotated[str, Field(min_length=1)]
    """Folder or hub name of the weights; `tiny-random` is a model of no use, made on demand."""
    slots: Annotated[int, Field(ge=1, le=4096)] = 64
    """Requests that run at once (vLLM's max_num_seqs); more wait."""
    max_model_len: Annotated[int, Field(ge=2)] = 8192
    """Prompt and output tokens of one request together; more is refused with 400."""
    enforce_eager: bool = False
    """No compiled graphs: a faster start, slower tokens."""
    engine_args: dict[str, JsonValue] = Field(default_factory=dict)
    """More of vLLM's AsyncEngineArgs by name, e.g. gpu_memory_utilization."""

    @field_validator("engine_args")
    @classmethod
    def _leaves_ours_alone(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in value.keys() & ENGINE_ARGS_OF_OURS.keys():
            key = ENGINE_ARGS_OF_OURS[name]
            instead = f"is set by the key {key}" if key else "must stay as the application sets it"
            raise ValueError(f"{name} {instead}")
        return value


def _kind(engine: Any) -> object:
    return (
        engine.get("kind", "standin")
        if isinstance(engine, Mapping)
        else getattr(engine, "kind", None)
    )


EngineSettings = Annotated[
    Annotated[StandInSettings, Tag("standin")] | Annotated[VllmSettings, Tag("vllm")],
    Discriminator(
        _kind,
        custom_error_type="engine_kind",
        custom_error_message="kind must be 'standin' or 'vllm'",
    ),
]


class AppSettings(Strict):
    """One model behind one ingress."""

    model: Annotated[str, Field(min_length=1, max_length=200)] = "standin"
    """The name clients ask for."""
    engine: EngineSettings = StandInSettings()
    cpus: Annotated[float, Field(gt=0)] = 1.0
    """CPUs of one replica."""
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    """GPUs of one replica; two or more are one tensor-parallel gang on one node."""
    slo_ttft_s: Annotated[tuple[Positive, ...], Field(max_length=10)] = (1.0,)
    """Seconds to the first token, as the client feels it; each becomes a bucket bound."""
    default_max_tokens: Annotated[int, Field(ge=1)] = 16
    """Output tokens of a request that names no limit."""

    @field_validator("slo_ttft_s", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, value: object) -> object:
        return (value,) if isinstance(value, int | float) else value

    @model_validator(mode="after")
    def _default_fits_the_context(self) -> "AppSettings":
        if self.default_max_tokens >= self.engine.max_model_len:
            raise ValueError("default_max_tokens must be below engine.max_model_len")
        return self


def parse_args(args: Mapping[str, Any]) -> AppSettings:
    """Settings from the config file's `args`; InvalidArgs naming every wrong key."""
    return parse(AppSettings, args, "serve_app.app:build")


Settings = TypeVar("Settings", bound=Strict)


def parse(kind: type[Settings], args: Mapping[str, Any], of: str) -> Settings:
    """The `args` of the builder `of` as settings; InvalidArgs naming every wrong key."""
    try:
        return kind.model_validate(args)
    except ValidationError as error:
        faults = "; ".join(_fault(fault) for fault in error.errors())
        raise InvalidArgs(f"args of {of}: {faults}") from error


KINDS = {"standin", "vllm"}


def _fault(fault: Mapping[str, Any]) -> str:
    # The kind of engine stands in pydantic's path, and nowhere in the file.
    loc = [None, None, *(str(part) for part in fault["loc"])]
    parts = [
        part
        for grandparent, parent, part in zip(loc, loc[1:], loc[2:], strict=False)
        if part and not (part in KINDS and (parent == "engine" or grandparent == "models"))
    ]
    key = ".".join(parts) or "args"
    if fault["type"] == "extra_forbidden":
        return f"{key}: unknown key"
    return f"{key}: {fault['msg']}, not {fault['input']!r}"
