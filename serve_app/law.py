"""The stand-in engine's law of speed: what a replica can carry, known exactly.

No Ray here: the demo's independent scorer computes need from this law and nothing else.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Law:
    """`slots` requests run at once, each of n at 1 / (1 + beta * (n - 1)) of its lone speed."""

    slots: int
    beta: float
    prefill_tokens_per_s: float
    token_s: float

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ValueError(f"slots must be at least 1, not {self.slots}")
        if self.beta < 0:
            raise ValueError(f"beta must not be negative, not {self.beta}")
        if self.prefill_tokens_per_s <= 0:
            raise ValueError(f"prefill_tokens_per_s must be > 0, not {self.prefill_tokens_per_s}")
        if self.token_s <= 0:
            raise ValueError(f"token_s must be > 0, not {self.token_s}")

    def speed(self, running: int) -> float:
        """Share of its lone speed at which each of `running` requests runs.

        beta 0.1: one runs at 1.0, four at 1 / 1.3 = 0.769 each
        (test_law.py::test_speed_falls_with_company).
        """
        return 1.0 / (1.0 + self.beta * (running - 1)) if running > 1 else 1.0

    def lone_prefill_s(self, prompt_tokens: int) -> float:
        """Seconds to the first token of a request that runs alone."""
        return prompt_tokens / self.prefill_tokens_per_s

    def lone_work_s(self, prompt_tokens: int, output_tokens: int) -> float:
        """Seconds from start to finish of a request that runs alone: its work."""
        return self.lone_prefill_s(prompt_tokens) + output_tokens * self.token_s

    def capacity_rps(self, mean_work_s: float) -> float:
        """Requests of `mean_work_s` a second that a full replica completes: C * v(C) / W.

        Four slots, beta 0.1, work 2 s: 4 * 0.769 / 2 = 1.538 requests/s
        (test_law.py::test_capacity_is_what_a_full_replica_completes).
        """
        return self.slots * self.speed(self.slots) / mean_work_s
