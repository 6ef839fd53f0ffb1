"""A real engine at the pace of a larger model: each step waits, as it would for a GPU.

The tiny model's step takes two cores wholly and is over in 2 ms, so that two engines on one small
machine would share the speed of one. With `logits_processors: [serve_app.pacing:Pace]` in
`engine_args` a step waits for PACE_STEP_S seconds (an 8B model on one GPU takes about 0.025) and
leaves the cores to the others. Scheduler, KV cache, metrics and answers stay vLLM's own.
"""

import os
import time

import torch
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor.interface import BatchUpdate, LogitsProcessor

VARIABLE = "PACE_STEP_S"


class Pace(LogitsProcessor):
    """Waits once a step and changes nothing."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._step_s = float(os.environ.get(VARIABLE, "0"))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits as they came."""
        time.sleep(self._step_s)
        return logits

    def is_argmax_invariant(self) -> bool:
        """It is, but one that says so is left out where every request is greedy."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """It keeps nothing about requests."""
