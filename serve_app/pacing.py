"""A real engine at the pace of a larger model, which leaves the cores alone while it waits.

The tiny model's step is over in 3 ms, and between steps vLLM's processes spin until the next: two
engines take two cores wholly and hold up whoever sends the load. In `engine_args`,
`logits_processors: [serve_app.pacing:Pace]` has each step wait for PACE_STEP_S seconds, as it would
for a GPU, and `scheduler_cls: serve_app.pacing.PacedScheduler` has the engine's own process rest,
too. Scheduling, KV cache, metrics and answers stay vLLM's own.
"""

import os
import time
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.distributed.device_communicators.shm_broadcast import SpinCondition
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.sample.logits_processor.interface import BatchUpdate, LogitsProcessor

VARIABLE = "PACE_STEP_S"
LONGEST_STEP_S = 10.0
LONGEST_REST_MS = 10
_wait = SpinCondition.wait


def rest_between_steps() -> None:
    """Have this process sleep until it is woken where it would spin for up to a second first; it
    looks every 10 ms by itself, as a call to wake up that comes right after another is lost."""
    SpinCondition.busy_loop_s = property(lambda _: 0.0, lambda _, value: None)
    SpinCondition.wait = _rest


def _rest(condition: SpinCondition, timeout_ms: int | None = None) -> None:
    _wait(condition, LONGEST_REST_MS if timeout_ms is None else min(timeout_ms, LONGEST_REST_MS))


class Pace(LogitsProcessor):
    """Waits once a step and changes nothing; lives in the process that runs the model."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._step_s = _step_s(os.environ.get(VARIABLE, "0"))
        rest_between_steps()

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits as they came."""
        time.sleep(self._step_s)
        return logits

    def is_argmax_invariant(self) -> bool:
        """It is, but one that says so is left out where every request is greedy."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """It keeps nothing about requests."""


class PacedScheduler(AsyncScheduler):
    """vLLM's own; lives in the engine's process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rest_between_steps()


def _step_s(text: str) -> float:
    try:
        step_s = float(text)
    except ValueError:
        step_s = -1.0
    if not 0 <= step_s <= LONGEST_STEP_S:
        raise ValueError(f"{VARIABLE}: {text!r} is no number of seconds up to {LONGEST_STEP_S:g}")
    return step_s
