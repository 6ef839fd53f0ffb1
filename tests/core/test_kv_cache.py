"""What a KV cache holds: capacity falls with it before first tokens are late."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.capacity import Capacity, CapacityLaw
from controller.core.kv_cache import KvCache
from controller.core.signals import Freshness, SignalReader
from controller.core.types import Load, Readings, Replica, Replicas, ReplicaState, Sample

SLOTS = 64


def load(ongoing: float, used: float | None, **more: float) -> Load:
    return Load(
        queued=0.0,
        ongoing=ongoing,
        company=max(ongoing - 1, 0),
        interval_s=10.0,
        completions=more.get("completions", ongoing * 5),
        kv_cache_ratio=used,
        preemptions=more.get("preemptions"),
    )


def held(*loads: Load, ready: int = 1) -> float:
    cache = KvCache(1800.0)
    for one in loads:
        cache.observe(one, ready)
    return cache.requests


def test_worked_kv_cache() -> None:
    assert held(load(4, 0.5)) == pytest.approx(7.6)


@pytest.mark.parametrize(
    ("loads", "ready", "expected"),
    [
        ([], 1, inf),
        ([load(4, None)], 1, inf),
        ([load(0, 0.3)], 1, inf),
        ([load(1, 0.01)], 1, inf),
        ([load(12, 0.5)], 3, 7.6),
        ([load(4, 0.4), load(8, 0.8)], 1, 9.5),
        ([load(4, 0.2)] * 50 + [load(16, 0.95)], 1, 16),
        ([load(4, 0.2)] * 50 + [load(16, 0.95), load(4, 0.2)], 1, 18.9),
        ([load(1, 1.0)], 1, 1),
    ],
    ids=[
        "nothing seen",
        "an engine that does not say",
        "nothing runs",
        "too little used to tell",
        "over three replicas",
        "the same at every load",
        "nearly full: the present counts",
        "after it, the memory",
        "one request at least",
    ],
)
def test_requests_that_fill_a_cache(loads: list[Load], ready: int, expected: float) -> None:
    assert held(*loads, ready=ready) == pytest.approx(expected, rel=0.02)


def test_preemptions_say_that_there_are_too_many() -> None:
    without = held(load(16, 0.97))
    assert held(load(16, 0.97, preemptions=20.0, completions=60.0)) == pytest.approx(
        16 * 0.95 / 1.25
    )
    assert held(load(16, 0.97, preemptions=20.0, completions=60.0)) < without


def learned(used_a_request: float, running: float = 8.0) -> Capacity:
    """A replica seen at moderate load, each request taking so much of the cache."""
    capacity = Capacity(60.0, 86_400.0)
    truth = CapacityLaw(SLOTS, 2.0, 0.05)
    for _ in range(60):
        stay_s = truth.latency_s(running)
        capacity.observe(
            Load(
                queued=0.0,
                ongoing=running,
                company=running - 1,
                interval_s=10.0,
                completions=running / stay_s * 10.0,
                kv_cache_ratio=used_a_request * running,
            ),
            1,
        )
    return capacity


def test_long_contexts_lower_the_capacity_while_the_cache_is_far_from_full() -> None:
    """A third full, nothing late, nothing waits: the knee is known to be at 23, not at 64."""
    law = learned(used_a_request=1 / 24).law(SLOTS)
    assert law is not None
    assert law.slots == pytest.approx(0.95 * 24)
    free = learned(used_a_request=1 / 200).law(SLOTS)
    assert free is not None
    assert free.slots == SLOTS
    assert law.capacity_rps < 0.75 * free.capacity_rps


def test_what_was_learned_outlives_a_restart() -> None:
    before = learned(used_a_request=1 / 24)
    after = Capacity(60.0, 86_400.0)
    after.restore(before.state())
    assert after.law(SLOTS) == before.law(SLOTS)
    older = {key: value for key, value in before.state().items() if key != "kv_cache"}
    after.restore(older)
    law = after.law(SLOTS)
    assert law is not None
    assert law.slots == SLOTS


@given(
    used=st.floats(0.0, 1.0),
    ongoing=st.floats(0.0, 500.0),
    preemptions=st.floats(0.0, 1000.0),
    ready=st.integers(0, 8),
)
def test_never_fewer_than_one_and_never_more_for_a_fuller_cache(
    used: float, ongoing: float, preemptions: float, ready: int
) -> None:
    here = held(load(ongoing, used, preemptions=preemptions), ready=ready)
    fuller = held(load(ongoing, min(1.0, used + 0.1), preemptions=preemptions), ready=ready)
    assert here >= 1
    assert fuller <= here


def test_preemptions_are_counted_from_their_first_series_on() -> None:
    reader = SignalReader(Freshness.of_scrape(10.0))
    replica = Replica("r", ReplicaState.RUNNING, 0.0)

    def observed(at_s: float, preempted: float | None) -> Load:
        seen = reader.observe(
            Readings(
                at_s,
                arrivals={"a": Sample(at_s, at_s)},
                completions={"r": Sample(at_s, at_s)},
                queued={"a": Sample(0.0, at_s)},
                ongoing={"r": Sample(4.0, at_s)},
                kv_cache_ratio={"r": Sample(0.9, at_s)},
                preemptions={} if preempted is None else {"p": Sample(preempted, at_s)},
                replicas=Replicas(1, 1, (replica,)),
            )
        )
        assert seen.load is not None
        return seen.load

    assert observed(100.0, None).preemptions is None
    assert observed(110.0, 3.0).preemptions is None
    assert observed(120.0, 8.0).preemptions == 5.0
    assert observed(130.0, 8.0).preemptions == 0.0
