"""The circuit breaker: closed, open, half open, and never all clients at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.breaker import (
    FAILURES,
    JITTER,
    LONGEST_ASKED_S,
    LONGEST_S,
    CircuitBreaker,
)


def breaker(seed: int = 1) -> CircuitBreaker:
    return CircuitBreaker(10.0, np.random.default_rng(seed))


def opened(made: CircuitBreaker, at_s: float = 0.0) -> CircuitBreaker:
    for _ in range(FAILURES):
        made.failed(at_s)
    return made


def test_a_failure_or_two_change_nothing() -> None:
    made = breaker()
    for _ in range(FAILURES - 1):
        made.failed(0.0)
        assert made.allows(0.0)
    made.succeeded()
    for _ in range(FAILURES - 1):
        made.failed(0.0)
    assert made.allows(0.0)


def test_after_three_it_opens_and_one_request_decides() -> None:
    made = opened(breaker())
    assert not made.allows(7.9)
    assert made.allows(12.1)
    made.failed(12.1)
    assert not made.allows(12.1 + 15.9)
    assert made.allows(12.1 + 24.1)
    made.succeeded()
    assert made.allows(0.0)
    assert made.wait_s(0.0) == 0


def test_it_is_never_open_for_long() -> None:
    """Recovery is seen within half a minute."""
    made, at_s = breaker(), 0.0
    for _ in range(50):
        made.failed(at_s)
        wait_s = made.wait_s(at_s)
        assert wait_s <= (1 + JITTER) * LONGEST_S
        at_s += wait_s


def test_clients_do_not_come_back_together() -> None:
    waits = {round(opened(breaker(seed)).wait_s(0.0), 3) for seed in range(20)}
    assert len(waits) > 15


@pytest.mark.parametrize(("asked_s", "kept_s"), [(5.0, 5.0), (1e9, LONGEST_ASKED_S)])
def test_a_server_that_asks_for_time_gets_it(asked_s: float, kept_s: float) -> None:
    made = breaker()
    made.failed(0.0, asked_s)
    assert made.wait_s(0.0) == kept_s


@given(st.lists(st.booleans(), max_size=60), st.integers(0, 9))
def test_a_success_always_closes_it(outcomes: list[bool], seed: int) -> None:
    made, at_s = breaker(seed), 0.0
    for good in outcomes:
        at_s += made.wait_s(at_s)
        assert made.allows(at_s)
        if good:
            made.succeeded()
            assert made.allows(at_s)
        else:
            made.failed(at_s)
