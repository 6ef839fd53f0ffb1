"""What is learned of a deployment: its lead time, its capacity, its price of lateness."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.capacity import Capacity, CapacityLaw
from controller.core.leadtime import LeadTime
from controller.core.price import Excuse, Price
from controller.core.types import Load, Replica, ReplicaState

STARTING, RUNNING, RECOVERING = (
    ReplicaState.STARTING,
    ReplicaState.RUNNING,
    ReplicaState.RECOVERING,
)


def follow(lead: LeadTime, name: str, start_s: float, took_s: float, tick_s: float = 1.0) -> None:
    """Ticks from the asking until just after the replica runs."""
    at_s = start_s + (start_s / 7.3) % tick_s
    while at_s < start_s + took_s + tick_s:
        state = STARTING if at_s < start_s + took_s else RUNNING
        lead.observe(at_s, [Replica(name, state, start_s)])
        at_s += tick_s


def test_the_prior_holds_until_starts_were_seen() -> None:
    lead = LeadTime(prior_s=120)
    assert lead.quantile(0.8) == 120
    for number in range(3):
        follow(lead, f"r{number}", 1000 * number, 40)
    assert lead.quantile(0.8) == pytest.approx(40, abs=0.6)


def test_a_start_is_the_time_from_asking_to_running_whatever_the_tick() -> None:
    for tick_s in (1.0, 5.0, 10.0):
        lead = LeadTime(prior_s=120)
        for number in range(40):
            follow(lead, f"r{number}", 1000.0 * number, 47.0, tick_s)
        assert np.mean(lead.samples_s) == pytest.approx(47, abs=1.0)


def test_replicas_first_seen_running_or_recovering_teach_nothing() -> None:
    lead = LeadTime(prior_s=120)
    lead.observe(10, [Replica("a", RUNNING, 3), Replica("b", RECOVERING, 8)])
    lead.observe(20, [Replica("a", RUNNING, 3), Replica("b", RUNNING, 8)])
    assert lead.samples_s == ()


def test_a_start_restarted_by_a_controller_teaches_nothing() -> None:
    lead = LeadTime(prior_s=120)
    lead.observe(10, [Replica("a", STARTING, 3)])
    lead.observe(20, [Replica("a", RECOVERING, 15)])
    lead.observe(30, [Replica("a", RUNNING, 15)])
    assert lead.samples_s == ()


def test_slow_starts_are_felt_before_they_end() -> None:
    lead = LeadTime(prior_s=30, samples_s=[30.0] * 10)
    lead.observe(0, [])
    lead.observe(200, [Replica(f"r{i}", STARTING, 0) for i in range(4)])
    assert lead.quantile(0.8) > 100


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param([0, 0, 40, 40], 18, id="within a bucket, linear"),
        pytest.param([0, 50, 50, 50], 9, id="in an earlier bucket"),
        pytest.param([0, 0, 10, 40], 30, id="beyond the last bound"),
        pytest.param([0, 0, 0, 0], 120, id="no start at all"),
    ],
)
def test_earlier_starts_give_the_prior(counts: list[float], expected: float) -> None:
    lead = LeadTime(prior_s=120)
    lead.expect([5, 10, 20, float("inf")], counts)
    assert lead.quantile(0.8) == pytest.approx(expected)


@given(st.lists(st.floats(1, 600), min_size=3, max_size=80))
def test_quantiles_lie_within_what_was_seen(samples: list[float]) -> None:
    lead = LeadTime(120, samples)
    kept = samples[-60:]
    assert min(kept) <= lead.quantile(0.5) <= lead.quantile(0.9) <= max(kept)


def test_worked_capacity() -> None:
    assert CapacityLaw(16, 2.0, 0.06).capacity_rps == pytest.approx(4.21, abs=0.005)
    assert CapacityLaw(16, 2.0, 0.06).latency_s(16) == pytest.approx(3.8)


# Half an hour of a load that never takes more than 10 of 16 slots.
WAVE = [
    4.0,
    5,
    6,
    7,
    8,
    9,
    10,
    9,
    8,
    7,
    6,
    5,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    9,
    8,
    7,
    6,
    5,
    4,
    5,
    6,
    7,
    8,
    9,
]


def traffic(
    capacity: Capacity,
    law: CapacityLaw,
    running: list[float],
    seed: int = 0,
    tokens: tuple[float, float] | None = None,
) -> None:
    """Minutes of traffic at these numbers running on each of four replicas."""
    rng = np.random.default_rng(seed)
    for n in running:
        rate = 4 * n / law.latency_s(n)
        for _ in range(6):
            done = float(rng.poisson(rate * 10))
            prompt, output = tokens or (0.0, 0.0)
            load = Load(
                queued=0,
                ongoing=4 * n,
                company=n - 1,
                interval_s=10,
                completions=done,
                prompt_tokens=done * prompt if tokens else None,
                output_tokens=done * output if tokens else None,
            )
            capacity.observe(load, 4)


def test_the_knee_is_found_from_normal_traffic() -> None:
    """Never above 70 % of the slots, half an hour: the knee within 10 %."""
    law = CapacityLaw(16, 2.0, 0.06)
    capacity = Capacity(60, 86_400)
    traffic(capacity, law, WAVE)
    found = capacity.law(16)
    assert found is not None
    assert found.capacity_rps == pytest.approx(law.capacity_rps, rel=0.10)


def test_little_s_law_agrees_with_the_capacity_learned() -> None:
    """Little: concurrency = rate x latency, so C slots carry C / latency(C)."""
    law = CapacityLaw(16, 2.0, 0.06)
    assert law.capacity_rps * law.latency_s(16) == pytest.approx(16)


def test_nothing_is_known_before_anything_completed() -> None:
    capacity = Capacity(60, 86_400)
    assert capacity.law(16) is None
    for _ in range(20):
        capacity.observe(Load(0, 8, company=3, interval_s=10, completions=0), 2)
    assert capacity.law(16) is None


def test_windows_in_which_replicas_came_or_went_are_left_out() -> None:
    capacity = Capacity(60, 86_400)
    for step in range(60):
        capacity.observe(Load(0, 8, company=3, interval_s=10, completions=40), 2 + step % 2)
    assert capacity.law(16) is None


def test_slow_first_samples_of_a_replica_move_capacity_little() -> None:
    """D9: three slow samples move the learned capacity by less than 10 %."""
    law = CapacityLaw(16, 2.0, 0.06)
    capacity = Capacity(60, 86_400)
    traffic(capacity, law, WAVE)
    before = capacity.law(16)
    for _ in range(18):
        capacity.observe(Load(0, 32, company=7, interval_s=10, completions=4 * 8 / 12 * 10), 4)
    after = capacity.law(16)
    assert before is not None
    assert after is not None
    assert after.capacity_rps == pytest.approx(before.capacity_rps, rel=0.10)


def test_longer_prompts_are_more_work_not_less_capacity() -> None:
    """D11: twenty times the prompt at the same rate; the work follows the tokens at once."""
    law = CapacityLaw(16, 2.0, 0.06)
    capacity = Capacity(60, 86_400)
    traffic(capacity, law, WAVE, tokens=(400, 96))
    before = capacity.law(16)
    longer = CapacityLaw(16, 2.0 * (8000 / 100 + 96) / (400 / 100 + 96), 0.06)
    traffic(capacity, longer, [10, 10], tokens=(8000, 96))
    after = capacity.law(16)
    assert before is not None
    assert after is not None
    assert capacity.mix == pytest.approx(1.76, rel=0.05)
    assert after.work_s == pytest.approx(longer.work_s, rel=0.1)


def test_what_was_learned_survives_a_restart() -> None:
    law = CapacityLaw(16, 2.0, 0.06)
    capacity, restarted = Capacity(60, 86_400), Capacity(60, 86_400)
    traffic(capacity, law, WAVE)
    restarted.restore(capacity.state())
    assert restarted.law(16) == capacity.law(16)


def test_the_price_starts_at_an_eighth_of_a_long_lead_and_a_fifth_of_a_short_one() -> None:
    price = Price(attainment=0.99, season_s=86_400)
    assert price.gpu_s(300, 1.64) == pytest.approx(37.5)
    assert price.gpu_s(300, 3.28) == pytest.approx(18.75)
    assert price.gpu_s(120, 1.64) == pytest.approx(15)
    assert price.gpu_s(20, 1.64) == pytest.approx(4)
    assert price.gpu_s(45, 1.64) == pytest.approx(9)
    assert Price(0.999, 86_400).gpu_s(300, 1.64) == pytest.approx(375)


@pytest.mark.parametrize(
    ("late_share", "factor"), [(0.0, (0.1, 0.7)), (0.0095, (0.95, 1.05)), (0.05, (4.0, 8.0))]
)
def test_the_price_follows_attainment_within_bounds(
    late_share: float, factor: tuple[float, float]
) -> None:
    price = Price(attainment=0.99, season_s=86_400)
    for _ in range(3 * 8640):
        price.observe(100, 100 * late_share, 10)
    moved = price.gpu_s(300, 1.64) / 37.5
    assert factor[0] <= moved <= factor[1]


def excused(*looks: tuple[float, bool, bool]) -> list[bool]:
    """Whether lateness is excused at each (time, unforeseen demand, queue), at a lead of 60 s."""
    excuse = Excuse()
    return [excuse.holds(at_s, surprised, queueing, 60.0) for at_s, surprised, queueing in looks]


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param(
            [(0, False, True), (59, False, False), (60, False, False), (70, False, True)],
            [True, True, False, False],
            id="one lead from the first tick on",
        ),
        pytest.param(
            [(0, False, True), (60, False, True), (90, False, False), (100, False, True)],
            [True, True, False, False],
            id="until the queue found at the start is gone",
        ),
        pytest.param(
            [(0, False, True), (119, False, True), (120, False, True), (500, False, True)],
            [True, True, False, False],
            id="two leads at most",
        ),
        pytest.param(
            [(0, False, False), (300, False, False), (310, True, True), (360, False, True)],
            [True, False, True, True],
            id="from a demand that nobody foresaw",
        ),
        pytest.param(
            [(0, False, False), (100, True, True), (150, True, True), (209, False, False)],
            [True, True, True, True],
            id="a lead from the last such demand",
        ),
    ],
)
def test_late_requests_are_excused_while_what_was_asked_for_cannot_be_there(
    looks: list[tuple[float, bool, bool]], expected: list[bool]
) -> None:
    assert excused(*looks) == expected
