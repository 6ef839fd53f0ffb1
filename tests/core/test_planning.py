"""The planner's promises, on a small world that does what it is told."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.types import (
    Hold,
    Reason,
    Replica,
    Replicas,
    ReplicaState,
    Sample,
    ScaleDeployment,
)
from tests.core.worlds import SLOTS, START_S, World, planner

WARM = 60


def test_steady_load_settles_and_writes_nothing() -> None:
    """A4: a steady plan writes nothing."""
    live, made = World.with_replicas(4), planner()
    live.run(made, WARM)
    settled = live.run(made, 60)
    assert all(isinstance(decision.action, Hold) for decision in settled[20:])
    assert {d.plan.reason for d in settled[20:]} <= {Reason.STEADY, Reason.HOLD}


def test_rises_with_the_load_and_falls_after_it() -> None:
    live, made = World.with_replicas(3), planner()
    quiet = live.run(made, WARM)[-1].plan.wanted
    live.rate_rps = 20
    busy = live.run(made, 30)[-1].plan.wanted
    live.rate_rps = 5
    after = live.run(made, 60)[-1].plan.wanted
    assert busy > quiet
    assert busy >= 20 * 2.1 / SLOTS
    assert after < busy


def test_keeps_for_one_lead_what_was_needed() -> None:
    """D3: no reversal before one window plus one lead."""
    live, made = World.with_replicas(3), planner()
    live.run(made, WARM)
    live.rate_rps = 20
    busy = live.run(made, 90)[-1].plan.wanted
    live.rate_rps = 2
    assert all(d.plan.wanted == busy for d in live.run(made, 6))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"arrivals": None}, Reason.BLIND, id="Prometheus is silent"),
        pytest.param({"arrivals": {}}, Reason.BLIND, id="S10 empty vectors"),
        pytest.param({"arrivals": {"r": Sample(float("nan"), 0)}}, Reason.NON_FINITE, id="S11 NaN"),
        pytest.param({"replicas": None}, Reason.SERVE_UNREACHABLE, id="A6 Serve is silent"),
    ],
)
def test_holds_when_blind_for_as_long_as_it_lasts(changes: dict[str, Any], reason: Reason) -> None:
    live, made = World.with_replicas(6, rate_rps=12), planner()
    before = live.run(made, WARM)[-1].plan.wanted
    blind = live.run(made, 60, **changes)
    assert {d.plan.wanted for d in blind} == {before}
    assert {d.plan.reason for d in blind} == {reason}
    assert all(isinstance(d.action, Hold) for d in blind)


def test_the_minimum_holds_even_when_blind() -> None:
    """D10: all queries fail, current 1, minimum 2: 2, reason bounds."""
    live, made = World.with_replicas(1), planner(min_replicas=2)
    decision = live.step(made, arrivals=None, ongoing=None, queued=None, completions=None)
    assert (decision.plan.wanted, decision.plan.reason) == (2, Reason.BOUNDS)


def test_after_a_restart_it_holds_what_serve_has_until_it_has_data() -> None:
    """D15: the controller restarts at 7 requested replicas."""
    live, made = World.with_replicas(7), planner()
    first = live.step(made)
    assert first.plan.wanted == 7
    assert first.plan.reason is Reason.WARMING_UP
    assert all(d.plan.wanted == 7 for d in live.run(made, 3))


def test_what_was_learned_survives_a_restart_byte_for_byte() -> None:
    live, made = World.with_replicas(4, rate_rps=12), planner()
    live.run(made, WARM)
    restarted = planner()
    restarted.restore(json.loads(json.dumps(made.state())))
    assert restarted.learned() == made.learned()
    assert restarted.state() == made.state()


def test_pending_replicas_are_supply() -> None:
    """D1, D5: wanted 6, ready 1, load unchanged: stays; no doubling while they start."""
    live, made = World.with_replicas(2, lead_s=300, rate_rps=5), planner(lead_prior_s=300)
    live.run(made, WARM)
    live.rate_rps = 15
    rising = [d.plan.wanted for d in live.run(made, 25)]
    assert rising[-1] == rising[-10]
    assert max(rising) == rising[-1]


def test_noise_changes_direction_at_most_once() -> None:
    """D2, D4: constant load with 5 % noise."""
    live, made = World.with_replicas(4, rate_rps=12), planner()
    live.run(made, WARM)
    wanted = []
    for tick in range(60):
        live.rate_rps = 12 * (1 + 0.05 * (-1) ** tick)
        wanted.append(live.step(made).plan.wanted)
    turns = [b - a for a, b in pairwise(wanted) if a != b]
    assert sum(a * b < 0 for a, b in pairwise(turns)) <= 1


def test_a_backlog_is_answered_at_once_by_its_size() -> None:
    """D14: one order of the size of the work, not a doubling a tick."""
    live, made = World.with_replicas(2, lead_s=30), planner(lead_prior_s=30)
    live.run(made, WARM)
    before = live.target
    live.queued = 300
    first = live.step(made)
    assert first.plan.reason is Reason.BACKLOG
    assert first.plan.wanted > before + 1
    more = [d.plan.wanted for d in live.run(made, 2)]
    assert max(more) <= 1.5 * first.plan.wanted


def test_nothing_is_asked_for_that_has_no_room() -> None:
    """A5: no node fits more; the plan says unschedulable and asks for what there is."""
    live, made = World.with_replicas(3, room=0), planner()
    live.run(made, WARM)
    live.rate_rps = 30
    crowded = live.run(made, 20)
    assert max(d.plan.wanted for d in crowded) == 3
    assert crowded[-1].plan.reason is Reason.UNSCHEDULABLE


def test_full_gpus_forbid_shrinking() -> None:
    live, made = World.with_replicas(4, rate_rps=12), planner()
    before = live.run(made, WARM)[-1].plan.wanted
    live.rate_rps = 2
    pressed = [live.step(made, gpu_ratio={"r0": Sample(0.99, live.at_s + 9)}) for _ in range(40)]
    assert pressed[-1].plan.wanted == before
    assert pressed[-1].plan.reason is Reason.PRESSURE
    assert live.run(made, 40)[-1].plan.wanted < before


def test_a_second_writer_stops_our_writing() -> None:
    """A2: someone keeps writing the target."""
    live, made = World.with_replicas(4, rate_rps=12), planner()
    live.run(made, WARM)
    reasons = []
    for tick in range(12):
        live.scale(1 if tick % 2 else 12)
        decision = live.step(made, obey=True)
        reasons.append(decision.plan.reason)
    assert Reason.CONFLICT in reasons
    assert isinstance(decision.action, Hold)


def test_a_reset_by_a_redeploy_is_put_right_within_a_tick() -> None:
    """A1: Serve resets the target with the deploy that explains it."""
    live, made = World.with_replicas(5, rate_rps=14), planner()
    wanted = live.run(made, WARM)[-1].plan.wanted
    live.scale(1)
    members = live.readings().replicas
    assert members is not None
    reset = Replicas(1, 1, members.members, None, SLOTS, deployed_s=live.at_s)
    decision = live.step(made, replicas=reset)
    assert isinstance(decision.action, ScaleDeployment)
    assert decision.action.replicas >= wanted


def test_only_the_slow_application_moves() -> None:
    """D12: two planners share nothing."""
    calm, busy = World.with_replicas(3), World.with_replicas(3)
    of_calm, of_busy = planner(), planner()
    calm.run(of_calm, WARM)
    busy.run(of_busy, WARM)
    before = of_calm.state()["wanted"]
    busy.rate_rps = 25
    busy.run(of_busy, 20)
    calm.run(of_calm, 20)
    assert of_calm.state()["wanted"] == before
    assert of_busy.state()["wanted"] > before


def test_two_replicas_at_seventy_percent_stay_two() -> None:
    """D6: one would be at 140 %."""
    live, made = World.with_replicas(2, rate_rps=0.7 * 2 * SLOTS / (2.0 * 1.35)), planner()
    assert live.run(made, 120)[-1].plan.wanted >= 2


def test_shadow_mode_sees_no_conflict_in_others_writes() -> None:
    live, made = World.with_replicas(4, rate_rps=12), planner(writes=False)
    for tick in range(60):
        live.scale(1 + tick % 5)
        assert live.step(made, obey=False).plan.reason is not Reason.CONFLICT


broken = st.sampled_from(
    [
        {"arrivals": None},
        {"arrivals": {}},
        {"ongoing": {}},
        {"queued": {}},
        {"queued": {"router": Sample(float("inf"), START_S)}},
        {"ongoing": {"r0": Sample(-1.0, START_S)}},
        {"replicas": None},
        {"completions": {"all": Sample(float("nan"), START_S)}},
        {"late_ratio": {"": Sample(float("nan"), START_S)}},
        {"arrivals": {"router": Sample(5.0, START_S)}},
    ]
)


@settings(max_examples=30, deadline=None)
@given(st.lists(broken, min_size=1, max_size=25), st.sampled_from([0.5, 5.0, 12.0]))
def test_no_missing_or_false_signal_ever_shrinks(
    faults: list[dict[str, Any]], rate_rps: float
) -> None:
    live, made = World.with_replicas(6, rate_rps=12), planner()
    before = live.run(made, WARM)[-1].plan.wanted
    live.rate_rps = rate_rps
    for fault in faults:
        if {"completions", "late_ratio"} & fault.keys():
            continue
        decision = live.step(made, **fault)
        assert decision.plan.wanted >= before
        before = decision.plan.wanted


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 60), st.integers(1, 30)), min_size=1, max_size=6),
    st.integers(0, 4),
    st.integers(0, 10),
)
def test_always_within_bounds(loads: list[tuple[float, int]], minimum: int, span: int) -> None:
    made = planner(min_replicas=minimum, max_replicas=minimum + span + 1)
    live = World.with_replicas(max(minimum, 1))
    for rate_rps, ticks in loads:
        live.rate_rps = rate_rps
        for decision in live.run(made, ticks):
            assert minimum <= decision.plan.wanted <= minimum + span + 1


def test_replicas_are_told_apart_by_state() -> None:
    members = tuple(
        Replica(state.value, state, 0.0, placed=state is not ReplicaState.STARTING)
        for state in ReplicaState
    )
    replicas = Replicas(6, 6, members)
    assert (replicas.ready, len(replicas.starting), replicas.stopping) == (4, 1, 1)


def test_the_first_fit_aims_where_starts_of_the_past_say() -> None:
    """Else the first hour's forecasts are those of the prior, whatever a start takes here."""
    told, restarted = planner(lead_prior_s=30.0), planner(lead_prior_s=30.0)
    told.learn_starts([60.0, 300.0, float("inf")], [0.0, 40.0, 40.0])
    restarted.restore({**planner().state(), "lead_samples_s": [250.0] * 5})
    for made, lead_s in ((told, 252.0), (restarted, 250.0)):
        made.forecaster.backfill(np.ones(100), 0.0)
        job = made.fit_due()
        assert job is not None
        periods = made.settings.periods
        assert job.horizons[-1] >= periods.horizon_bins(lead_s)
        assert job.reach_bins == round(lead_s / periods.bin_s)
