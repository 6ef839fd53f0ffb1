"""The plant against queueing theory: waiting in M/M/c, processor sharing in M/G/1-PS."""

import math

import numpy as np
import pytest

from controller.replay.plant import Plant, PlantSettings
from controller.replay.trace import Trace, from_requests
from tests.replay.conftest import poisson


def micro(*, slots: int, beta: float) -> PlantSettings:
    """A million tokens are a second of work: fine enough for exponential work."""
    return PlantSettings(
        slots=slots, beta=beta, prefill_tokens_per_s=1e6, tpot_s=1e-6, slo_ttft_s=1e9
    )


def erlang_wait_s(servers: int, offered: float) -> float:
    """Mean wait in M/M/c at unit service rate: C(c, a) / (c - a)."""
    term, total = 1.0, 1.0
    for k in range(1, servers):
        term *= offered / k
        total += term
    blocked = term * offered / servers * servers / (servers - offered)
    return blocked / (total + blocked) / (servers - offered)


def test_erlang_formula_agrees_with_the_single_server() -> None:
    assert erlang_wait_s(1, 0.7) == pytest.approx(0.7 / 0.3)


@pytest.mark.parametrize(
    ("replicas", "slots", "utilisation"),
    [(1, 1, 0.7), (8, 1, 0.8), (3, 4, 0.8), (2, 16, 0.9)],
    ids=["one server", "eight replicas of one slot", "three of four", "two of sixteen"],
)
def test_waiting_is_that_of_a_queue_with_as_many_servers_as_slots(
    replicas: int, slots: int, utilisation: float
) -> None:
    servers = replicas * slots
    trace = poisson(utilisation * servers, 4e6 / (utilisation * servers), seed=2)
    score = Plant(micro(slots=slots, beta=0.0), trace, initial=replicas).finish()
    expected_s = erlang_wait_s(servers, utilisation * servers)
    assert score.wait_mean_s == pytest.approx(expected_s, rel=0.02)
    assert score.response_mean_s == pytest.approx(expected_s + 1, rel=0.02)


def sharing_trace(work: str) -> Trace:
    """Load 0.7: a prefill of 0.2 s, then 0.8 s on average."""
    rng = np.random.default_rng(5)
    size = 2_000_000
    arrival_s = np.cumsum(rng.exponential(1 / 0.7, size))
    if work == "exponential":
        output_s = rng.exponential(0.8, size)
    else:
        output_s = 0.8 * np.exp(1.0 * rng.standard_normal(size) - 0.5)
    output = np.rint(output_s * 1e6).astype(np.int32)
    prompt = np.full(size, 200_000, np.int32)
    return from_requests("sharing", arrival_s, prompt, output, float(arrival_s[-1]) + 1)


@pytest.mark.parametrize("work", ["exponential", "lognormal"])
def test_sharing_slows_every_part_of_a_request_alike(work: str) -> None:
    # beta 1 shares one server fairly: v(n) = 1/n. In M/G/1-PS service x takes x / (1 - load).
    score = Plant(micro(slots=400, beta=1.0), sharing_trace(work), initial=1).finish()
    assert score.wait_mean_s == 0
    assert score.response_mean_s == pytest.approx(1 / 0.3, rel=0.02)
    assert score.ttft_mean_s == pytest.approx(0.2 / 0.3, rel=0.02)


def test_quantiles_of_the_histogram_are_those_of_the_law() -> None:
    # P(wait > t) = rho exp(-(1 - rho) t) in M/M/1; at 0.7 the 99 % quantile is ln(70)/0.3 = 14.2 s.
    score = Plant(micro(slots=1, beta=0.0), poisson(0.7, 4e6, seed=1), initial=1).finish()
    assert score.ttft_quantile_s(0.99) == pytest.approx(math.log(70) / 0.3, rel=0.05)
    assert score.ttft_quantile_s(0.5) == pytest.approx(math.log(1.4) / 0.3, rel=0.05)
