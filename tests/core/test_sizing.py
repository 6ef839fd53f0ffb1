"""Risk, need, backlog, guards, ownership and room: the arithmetic of a decision."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.budget import room
from controller.core.capacity import CapacityLaw
from controller.core.guards import GUARDS, Limits, guarded
from controller.core.ownership import FIRST_PAUSE_S, Ownership
from controller.core.risk import LOADS, Lateness, RiskTable
from controller.core.sizing import (
    Backlog,
    extra_demand_rps,
    need,
    projected_backlog,
    weights,
)
from controller.core.types import Forecast, Reason, Replica, Replicas, ReplicaState

LAW = CapacityLaw(16, 2.0, 0.06)
RISK = RiskTable(LAW, Lateness(2.0, 0.2), 60.0)
SMALL = CapacityLaw(4, 1.0, 0.05)
SMALL_RISK = RiskTable(SMALL, Lateness(1.0, 0.1), 60.0)


def forecast(low: float, high: float) -> Forecast:
    probabilities = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
    values = np.linspace(low, high, len(probabilities))
    return Forecast(0.0, 60.0, probabilities, tuple(values.tolist()), "test")


def test_risk_grows_with_load_and_falls_with_replicas() -> None:
    table = np.array([RISK.risk(n * LOADS, n)[n] for n in (1, 2, 4, 8, 16)])
    assert (np.diff(table, axis=1) >= 0).all()
    light = LOADS < 0.95
    assert (np.diff(table[:, light], axis=0) <= 1e-9).all()
    assert ((table >= 0) & (table <= 1)).all()


def test_risk_agrees_with_the_queue_it_models() -> None:
    """At beta 0 and one slot a replica is a server: M/M/c with c = 3, load 0.8. Erlang C gives
    P(wait) = 0.6472 and P(wait > t) = 0.6472 exp(-0.6 t); over ten minutes the chain is there.
    The wait behind k requests is taken at its mean, which matters most with so few servers."""
    law = CapacityLaw(1, 1.0, 0.0)
    table = RiskTable(law, Lateness(2.0, 0.001), 600.0)
    assert table.risk(np.array([2.4]), 3)[3, 0] == pytest.approx(0.6472 * np.exp(-1.2), rel=0.12)


def test_no_replica_makes_everything_late() -> None:
    assert RISK.risk(np.array([0.1, 2.0]), 3)[0].tolist() == [1.0, 1.0]


@settings(max_examples=40, deadline=None)
@given(st.floats(0.1, 40), st.floats(0, 30), st.floats(0.1, 20), st.floats(2, 200))
def test_more_demand_never_needs_fewer_replicas(
    low: float, spread: float, more: float, price: float
) -> None:
    capacity = SMALL.capacity_rps
    before = need(forecast(low, low + spread), SMALL_RISK, capacity, price, 30)
    after = need(forecast(low + more, low + spread + more), SMALL_RISK, capacity, price, 30)
    assert after >= before


def test_a_higher_price_never_needs_fewer_replicas() -> None:
    wanted = [
        need(forecast(5, 15), SMALL_RISK, SMALL.capacity_rps, price, 30)
        for price in (5, 10, 20, 50, 200)
    ]
    assert wanted == sorted(wanted)
    assert wanted[0] < wanted[-1]


def test_the_need_is_never_given_up_under_overload() -> None:
    """Below full load one replica more saves little; only the hull sees that ten save all."""
    demand = forecast(60, 60)
    count = need(demand, RISK, LAW.capacity_rps, 20, 48)
    assert count >= 60 / LAW.capacity_rps


def test_the_need_is_close_to_little_s_law() -> None:
    """`replicas = ceil(rate x latency / concurrency)` is what certainty would need."""
    for rate in (4.0, 20.0, 60.0):
        little = np.ceil(rate * LAW.latency_s(LAW.slots) / LAW.slots)
        count = need(forecast(rate, rate), RISK, LAW.capacity_rps, 24, 48)
        assert little <= count <= 1.35 * little + 1


def test_probability_weights_sum_to_one() -> None:
    assert weights((0.05, 0.5, 0.95)).tolist() == pytest.approx([0.275, 0.45, 0.275])


def test_worked_backlog() -> None:
    """Price 24, demand 10, backlog 100, capacity 1.64, lead 120: 11 replicas more."""
    backlog = Backlog(requests=100, demand_rps=10)
    extra = extra_demand_rps(backlog, 0, 1.64, 2.0, 24, 120)
    assert extra / 1.64 == pytest.approx(11.04, abs=0.01)


def test_a_backlog_that_drains_within_the_slo_is_none() -> None:
    assert extra_demand_rps(Backlog(6, 10), 2, 1.64, 2.0, 24, 120) == 0


def test_replicas_on_their_way_shrink_the_backlog_they_will_find() -> None:
    without = projected_backlog(50, 10, 2, 3, (), 60)
    soon = projected_backlog(50, 10, 2, 3, (10.0, 10.0), 60)
    late = projected_backlog(50, 10, 2, 3, (59.0, 70.0), 60)
    assert without == pytest.approx(50 + 600 - 360)
    assert soon == pytest.approx(without - 2 * 2 * 50)
    assert late == pytest.approx(without - 2)
    assert projected_backlog(0, 1, 2, 3, (), 60) == 0


def placed(count: int, pending: int = 0) -> tuple[Replica, ...]:
    running = tuple(Replica(f"r{i}", ReplicaState.RUNNING, 0.0) for i in range(count))
    waiting = tuple(
        Replica(f"p{i}", ReplicaState.STARTING, 0.0, placed=False) for i in range(pending)
    )
    return running + waiting


def limits(**changes: object) -> Limits:
    values: dict[str, object] = {
        "minimum": 1,
        "maximum": 16,
        "held": 0,
        "before": 4,
        "in_doubt": False,
        "pressed": False,
        "replicas": Replicas(4, 4, placed(4)),
    }
    return Limits(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "changes", "after", "reason"),
    [
        pytest.param(5, {}, 5, Reason.FORECAST, id="nothing stands in the way"),
        pytest.param(3, {"held": 6}, 6, Reason.HOLD, id="needed within the last lead"),
        pytest.param(2, {"in_doubt": True}, 4, Reason.PARTIAL, id="a source is silent"),
        pytest.param(6, {"in_doubt": True}, 6, Reason.FORECAST, id="growing is allowed in doubt"),
        pytest.param(2, {"pressed": True}, 4, Reason.PRESSURE, id="GPUs are full"),
        pytest.param(20, {}, 16, Reason.BOUNDS, id="above the maximum"),
        pytest.param(0, {}, 1, Reason.BOUNDS, id="below the minimum"),
        pytest.param(
            9,
            {"replicas": Replicas(4, 4, placed(4), room=2)},
            6,
            Reason.UNSCHEDULABLE,
            id="A5 room for two more",
        ),
        pytest.param(
            9,
            {"replicas": Replicas(7, 7, placed(4, pending=3), room=0)},
            4,
            Reason.UNSCHEDULABLE,
            id="A5 pending ones have no room",
        ),
        pytest.param(
            9,
            {"replicas": Replicas(6, 6, placed(4, pending=2), room=0), "before": 6, "at_s": 5.0},
            6,
            Reason.UNSCHEDULABLE,
            id="recent starts hold what is no longer free",
        ),
        pytest.param(
            9,
            {"replicas": Replicas(6, 6, placed(4, pending=2), room=2), "before": 6, "at_s": 5.0},
            6,
            Reason.UNSCHEDULABLE,
            id="recent starts may not count as taken yet",
        ),
        pytest.param(
            3,
            {"replicas": Replicas(4, 4, placed(4), room=0)},
            3,
            Reason.FORECAST,
            id="shrinking needs no room",
        ),
    ],
)
def test_guards(wanted: int, changes: dict[str, object], after: int, reason: Reason) -> None:
    plan = guarded(wanted, Reason.FORECAST, limits(**changes))
    assert (plan.wanted, plan.reason) == (after, reason)
    assert [step.before for step in plan.trail[:1]] == ([wanted] if after != wanted else [])


@given(
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 50),
    st.booleans(),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 20)),
    st.integers(0, 10),
    st.integers(0, 10),
)
def test_always_within_bounds_and_never_less_in_doubt(
    wanted: int,
    held: int,
    before: int,
    doubt: bool,
    pressed: bool,
    free: int | None,
    low: int,
    span: int,
) -> None:
    tight = limits(
        minimum=low,
        maximum=low + span,
        held=held,
        before=before,
        in_doubt=doubt,
        pressed=pressed,
        replicas=Replicas(before, before, placed(before), room=free),
    )
    plan = guarded(wanted, Reason.FORECAST, tight)
    assert low <= plan.wanted <= low + span
    if doubt or pressed:
        assert plan.wanted >= min(before, low + span)
    assert GUARDS[-1][1] is Reason.BOUNDS


def seen(setpoint: int, deployed_s: float = 0.0) -> Replicas:
    return Replicas(setpoint, setpoint, placed(setpoint), deployed_s=deployed_s)


def test_a_reset_that_a_redeploy_explains_is_put_right() -> None:
    """A1: the application was deployed anew and the target reset; no conflict."""
    ownership = Ownership()
    ownership.ask(6)
    assert not ownership.observe(0, seen(6))
    assert not ownership.observe(10, seen(1, deployed_s=5))
    ownership.ask(6)
    assert not ownership.observe(20, seen(6, deployed_s=5))


def test_two_unexplained_resets_within_a_minute_are_a_conflict() -> None:
    """A2: someone else keeps writing; we stop, and try again after five minutes."""
    ownership = Ownership()
    ownership.ask(6)
    stopped = [ownership.observe(at_s, seen(n)) for at_s, n in ((0, 6), (10, 2), (20, 6), (30, 2))]
    assert stopped == [False, False, False, True]
    assert ownership.observe(30 + FIRST_PAUSE_S - 1, seen(2))
    assert not ownership.observe(30 + FIRST_PAUSE_S, seen(2))


def test_each_conflict_pauses_longer() -> None:
    ownership = Ownership()
    pauses, at_s = [], 0.0
    for _ in range(6):
        ownership.ask(6)
        for setpoint in (6, 2, 6, 2):
            contested = ownership.observe(at_s, seen(setpoint))
            at_s += 1
        began_s = at_s
        while contested:
            contested = ownership.observe(at_s, seen(2))
            at_s += 1
        pauses.append(at_s - began_s)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(3600, abs=3)


def test_our_own_writes_are_no_conflict() -> None:
    ownership = Ownership()
    for at_s, target in enumerate([3, 5, 4, 8, 2, 9]):
        ownership.ask(target)
        assert not ownership.observe(float(at_s), seen(target))


@pytest.mark.parametrize(
    ("free", "bundles", "expected"),
    [
        pytest.param([{"GPU": 3}, {"GPU": 1}], [{"GPU": 1}], 4, id="one GPU each"),
        pytest.param(
            [{"GPU": 3}, {"GPU": 1}], [{"GPU": 2}], 1, id="A5 total suffices, no node does"
        ),
        pytest.param([{"GPU": 8}], [{"GPU": 1}] * 4, 2, id="a gang of four"),
        pytest.param([{"GPU": 2}, {"GPU": 2}], [{"GPU": 1}] * 4, 1, id="a gang over two nodes"),
        pytest.param([{"GPU": 2, "CPU": 1}], [{"GPU": 1, "CPU": 1}], 1, id="CPU is the limit"),
        pytest.param([{"CPU": 8}], [{"GPU": 1}], 0, id="no GPU at all"),
        pytest.param([{"CPU": 8}], [{}], 50, id="needs nothing"),
        pytest.param([{"CPU": 0.3}], [{"CPU": 0.1}], 3, id="fractions add up"),
    ],
)
def test_room(free: list[dict[str, float]], bundles: list[dict[str, float]], expected: int) -> None:
    assert room(free, bundles, most=50) == expected
