"""What an engine reports about each of its steps, whoever turns it into metrics."""

from collections.abc import Callable
from dataclasses import dataclass, field

from serve_app.engine import FinishReason


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """One answered request: its tokens and the four moments of its life, in monotonic seconds."""

    reason: FinishReason
    prompt_tokens: int
    generation_tokens: int
    arrived_s: float
    scheduled_s: float
    first_token_s: float
    last_token_s: float

    @property
    def e2e_s(self) -> float:
        return self.last_token_s - self.arrived_s

    @property
    def queue_s(self) -> float:
        return self.scheduled_s - self.arrived_s

    @property
    def prefill_s(self) -> float:
        return self.first_token_s - self.scheduled_s

    @property
    def decode_s(self) -> float:
        return self.last_token_s - self.first_token_s

    @property
    def inference_s(self) -> float:
        return self.last_token_s - self.scheduled_s

    @property
    def time_per_output_token_s(self) -> float:
        """Mean gap between tokens; the first is the prefill's and does not count."""
        gaps = self.generation_tokens - 1
        return self.decode_s / gaps if gaps > 0 else 0.0


@dataclass(slots=True)
class Step:
    """Counts at the end of a step, and what it brought since the last one."""

    running: int
    waiting: int
    kv_cache_ratio: float
    prompt_tokens: int = 0
    generation_tokens: int = 0
    ttft_s: list[float] = field(default_factory=list)
    inter_token_s: list[float] = field(default_factory=list)
    finished: list[FinishedRequest] = field(default_factory=list)


StatLogger = Callable[[Step], None]
