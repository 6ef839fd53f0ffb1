"""Loads that the replay tests share."""

from pathlib import Path

import numpy as np
import pytest

from controller.replay.plant import ColdStart, PlantSettings
from controller.replay.trace import Trace, from_requests

PUBLIC_TRACES = Path(__file__).parents[3] / "shared" / "traces"


@pytest.fixture
def public_traces() -> Path:
    """The folder of public traces, which is beside the project and not part of it."""
    if not PUBLIC_TRACES.is_dir():
        pytest.skip(f"no public traces at {PUBLIC_TRACES}")
    return PUBLIC_TRACES


def requests_at(
    arrivals_s: list[float], *, end_s: float, prompt_s: float = 0.0, output_s: float = 1.0
) -> Trace:
    """Requests of equal work, in seconds alone under `plain()`."""
    size = len(arrivals_s)
    prompt, output = np.full(size, prompt_s * 1000), np.full(size, output_s * 1000)
    return from_requests(
        "hand", np.array(arrivals_s, float), prompt.astype(np.int32), output.astype(np.int32), end_s
    )


def plain(
    *, slots: int = 1, beta: float = 0.0, cap: int = 8, cold_start_s: float = 10.0, slo_s: float = 2
) -> PlantSettings:
    """1000 tokens are a second of work; a fixed cold start."""
    return PlantSettings(
        slots=slots,
        beta=beta,
        cap=cap,
        prefill_tokens_per_s=1000.0,
        tpot_s=0.001,
        slo_ttft_s=slo_s,
        cold_start=ColdStart(cold_start_s, jitter=0.0),
    )


def poisson(rate_rps: float, end_s: float, *, seed: int, work_s: float = 1.0) -> Trace:
    """Poisson arrivals of exponential work, all of it after the first token."""
    rng = np.random.default_rng(seed)
    size = rng.poisson(rate_rps * end_s)
    arrival_s = np.sort(rng.uniform(0, end_s, size))
    output = np.rint(rng.exponential(work_s * 1e6, size)).astype(np.int32)
    return from_requests("poisson", arrival_s, np.zeros(size, np.int32), output, end_s)
