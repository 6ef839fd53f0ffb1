"""Overrides: bounded, on top of the plan, and gone without a trace when they end."""

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.overrides import Effect, Override, Source, boosted, in_force, pinned
from controller.core.types import Hold, Reason, Sample
from tests.core.worlds import START_S, World, planner

WARM = 60
ON_REQUEST = {"boosted_on_request", "unchanged_on_request", "pinned_on_request"}
ON_REQUEST = {"boosted_on_request", "unchanged_on_request", "pinned_on_request"}


def override(effect: str, **changes: Any) -> Override:
    values: dict[str, Any] = {
        "id": "one",
        "effect": Effect(effect),
        "source": Source.ALERT,
        "why": "HighQueueWait",
        "from_s": START_S,
        "until_s": START_S + 1e6,
    }
    return Override(**{**values, **changes})


@pytest.mark.parametrize(
    ("effect", "changes", "said"),
    [
        pytest.param("boost", {}, "exactly one", id="a boost of nothing"),
        pytest.param("boost", {"replicas": 1, "factor": 2.0}, "exactly one", id="both"),
        pytest.param("boost", {"replicas": 0}, "replicas:", id="a boost of zero"),
        pytest.param("boost", {"factor": 1.0}, "factor:", id="a factor that does nothing"),
        pytest.param("boost", {"factor": inf}, "factor:", id="a factor without end"),
        pytest.param("hold", {"replicas": 3}, "hold has neither", id="a hold with a number"),
        pytest.param("pin", {}, "needs a number", id="a pin without a number"),
        pytest.param("pin", {"replicas": -1}, "needs a number", id="a negative pin"),
        pytest.param("hold", {"until_s": inf}, "until_s", id="no end"),
        pytest.param("hold", {"until_s": START_S}, "until_s", id="ends before it begins"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    effect: str, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        override(effect, **changes)


def test_a_boost_is_never_fewer() -> None:
    assert override("boost", factor=1.5).boosted(3) == 5
    assert override("boost", replicas=2).boosted(3) == 5
    assert override("boost", factor=2.0).boosted(0) == 0


def test_boosts_do_not_add_up() -> None:
    both = (override("boost", replicas=2), override("boost", id="two", factor=2.0))
    assert boosted(both, 4) == 8


def test_an_operator_s_pin_goes_before_an_alert_s_then_the_newest() -> None:
    alert = override("pin", replicas=9, from_s=START_S + 50)
    older = override("pin", replicas=2, source=Source.OPERATOR)
    newer = override("pin", id="two", replicas=3, source=Source.OPERATOR, from_s=START_S + 5)
    assert pinned((alert, older)) == 2
    assert pinned((newer, alert, older)) == 3
    assert pinned(()) is None


def test_it_comes_back_from_plain_values() -> None:
    for made in (override("boost", factor=1.5), override("pin", replicas=4), override("hold")):
        assert Override.of(made.plain()) == made


def test_it_ends_by_itself() -> None:
    made = override("hold", until_s=START_S + 10)
    assert in_force((made,), START_S + 9) == (made,)
    assert in_force((made,), START_S + 10) == ()


def test_a_boost_is_added_and_given_back_in_full() -> None:
    live, made = World.with_replicas(4, rate_rps=12), planner()
    before = live.run(made, WARM)[-1].plan.wanted
    made.override([override("boost", replicas=3)])
    with_boost = live.run(made, 30)
    assert {d.plan.wanted for d in with_boost} == {before + 3}
    assert {d.plan.reason for d in with_boost} == {Reason.BOOST}
    assert ("boosted_on_request", before, before + 3) in with_boost[0].plan.trail
    made.override([])
    after = live.run(made, 3)
    assert {d.plan.wanted for d in after} == {before}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"arrivals": None}, id="blind"),
        pytest.param({"replicas": None}, id="Serve is silent"),
        pytest.param({"queued": {"router": Sample(float("nan"), 0)}}, id="in doubt"),
    ],
)
def test_a_boost_does_not_grow_with_every_tick_in_the_dark(changes: dict[str, Any]) -> None:
    live, made = World.with_replicas(4, rate_rps=12), planner()
    before = live.run(made, WARM)[-1].plan.wanted
    made.override([override("boost", factor=1.5)])
    dark = live.run(made, 30, **changes)
    assert {d.plan.wanted for d in dark} <= set(range(before, -(-before * 3 // 2) + 2))
    made.override([])
    still = live.run(made, 5, **changes)
    assert min(d.plan.wanted for d in still) >= before


def test_a_boost_before_anything_is_known_does_not_grow() -> None:
    live, made = World.with_replicas(3, rate_rps=0.0), planner()
    made.override([override("boost", replicas=2)])
    wanted = {d.plan.wanted for d in live.run(made, 5, completions={})}
    assert wanted == {5}


def test_a_pin_is_taken_in_the_dark_and_its_end_does_not_shrink() -> None:
    live, made = World.with_replicas(4, rate_rps=12), planner()
    before = live.run(made, WARM)[-1].plan.wanted
    made.override([override("pin", replicas=2)])
    pins = live.run(made, 5, arrivals=None)
    assert {(d.plan.wanted, d.plan.reason) for d in pins} == {(2, Reason.PINNED)}
    made.override([])
    assert {d.plan.wanted for d in live.run(made, 5, arrivals=None)} == {before}


def test_a_hold_forbids_growing_and_shrinking() -> None:
    live, made = World.with_replicas(4, rate_rps=12), planner()
    before = live.run(made, WARM)[-1].plan.wanted
    made.override([override("hold")])
    live.rate_rps = 25
    busy = live.run(made, 30)
    live.rate_rps = 1
    quiet = live.run(made, 60)
    assert {d.plan.wanted for d in (*busy, *quiet)} == {before}
    assert all(isinstance(d.action, Hold) for d in (*busy, *quiet))
    assert {busy[-1].plan.reason, quiet[-1].plan.reason} == {Reason.FROZEN}


@pytest.mark.parametrize(
    ("made_of", "room", "wanted", "reason"),
    [
        pytest.param(
            lambda: override("pin", replicas=500), None, 16, Reason.BOUNDS, id="the maximum"
        ),
        pytest.param(lambda: override("pin", replicas=0), None, 1, Reason.BOUNDS, id="the minimum"),
        pytest.param(
            lambda: override("boost", factor=50.0), 0, 4, Reason.UNSCHEDULABLE, id="no room"
        ),
    ],
)
def test_bounds_and_room_have_the_last_word(
    made_of: Callable[[], Override], room: int | None, wanted: int, reason: Reason
) -> None:
    live, made = World.with_replicas(4, rate_rps=12), planner()
    live.run(made, WARM)
    live.scale(4)
    live.room = room
    made.override([made_of()])
    plan = live.step(made).plan
    assert (plan.wanted, plan.reason) == (wanted, reason)


def test_what_would_be_wanted_without_it_survives_a_restart() -> None:
    live, made = World.with_replicas(4, rate_rps=12), planner()
    before = live.run(made, WARM)[-1].plan.wanted
    made.override([override("boost", replicas=5)])
    live.run(made, 5)
    restarted = planner()
    restarted.restore(made.state())
    assert restarted.state()["unforced"] == before
    assert live.step(restarted, arrivals=None).plan.wanted == before + 5


asked = st.one_of(
    st.builds(lambda n: override("boost", replicas=n), st.integers(1, 40)),
    st.builds(lambda x: override("boost", id="b", factor=x), st.floats(1.01, 20.0)),
    st.builds(lambda n: override("pin", id="p", replicas=n), st.integers(0, 40)),
    st.just(override("hold", id="h")),
)
signals = st.sampled_from([{}, {"arrivals": None}, {"replicas": None}, {"ongoing": {}}])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(asked, max_size=3), st.floats(0, 40), signals), min_size=1, max_size=8
    )
)
def test_whatever_is_asked_stays_within_bounds_and_leaves_no_trace(
    steps: list[tuple[list[Override], float, dict[str, Any]]],
) -> None:
    """Once they have ended and everything is seen, the plan is what it would be without."""
    made = planner(min_replicas=2, max_replicas=12)
    live = World.with_replicas(4)
    for overrides, rate_rps, changes in steps:
        made.override(overrides)
        live.rate_rps = rate_rps
        for decision in live.run(made, 4, **changes):
            assert 2 <= decision.plan.wanted <= 12
    made.override([])
    for decision in live.run(made, 10):
        assert not {step.guard for step in decision.plan.trail} & ON_REQUEST
        assert decision.unforced == decision.plan.wanted
