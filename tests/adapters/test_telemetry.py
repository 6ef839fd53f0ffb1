"""Our metrics: what one tick shows, and what is not known is not shown."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controller.adapters.telemetry import Telemetry, names
from controller.core.choosing import CANDIDATES, LAST_VALUE, Candidate, Choice, Trial, Verdict
from controller.core.planning import Planner
from controller.core.types import (
    Decision,
    Outcome,
    Plan,
    Reason,
    Replica,
    Replicas,
    ReplicaState,
    Sample,
    Tick,
)
from tests.core.worlds import START_S, TARGET, World, planner

LABELS = f'application="{TARGET.application}",deployment="{TARGET.deployment}"'


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(active=True)


@pytest.fixture
def live() -> World:
    return World.with_replicas(3)


@pytest.fixture
def made(live: World) -> Iterator[Planner]:
    made = planner()
    live.run(made, 60)
    yield made


def shown(telemetry: Telemetry, name: str, more: str = "") -> float | None:
    """The value of the deployment's series, None where it is not on the page."""
    for line in telemetry.page().decode().splitlines():
        if line.startswith(f"{name}{{{LABELS}{more}}}") or line.startswith(f"{name} "):
            return float(line.rsplit(" ", 1)[1])
    return None


def record(telemetry: Telemetry, decision: Decision, at_s: float) -> None:
    telemetry.record(Tick(at_s, ((decision, Outcome(decision.action, True, "done")),), {}))


def with_replicas(decision: Decision, replicas: Replicas | None) -> Decision:
    return replace(decision, observation=replace(decision.observation, replicas=replicas))


def with_choice(decision: Decision, choice: Choice | None) -> Decision:
    return replace(decision, learned=replace(decision.learned, choice=choice))


def tried(*candidates: Candidate) -> Choice:
    """The last of some candidates in force, each with its trial."""
    trials = tuple(Trial(each, 100.0, 0.004) for each in candidates)
    return Choice(candidates[-1], Verdict.CHEAPEST, START_S, trials)


def starting(at_s: float, **changes: Any) -> Replicas:
    """One replica that runs, one that starts since 20 s, one without a node since 50 s."""
    members = (
        Replica("a", ReplicaState.RUNNING, at_s - 900),
        Replica("b", ReplicaState.STARTING, at_s - 20),
        Replica("c", ReplicaState.STARTING, at_s - 50, placed=False),
    )
    return replace(Replicas(3, 3, members), **changes)


def test_every_metric_is_shown_after_two_ticks(
    telemetry: Telemetry, live: World, made: Planner
) -> None:
    late, rate = Sample(0.01, live.at_s + 9), Sample(5.0, live.at_s + 9)
    decision = live.step(made, late_ratio={"": late}, first_tokens_rps={"": rate})
    decision = with_choice(with_replicas(decision, starting(live.at_s)), tried(*CANDIDATES))
    record(telemetry, decision, live.at_s - 10)
    record(telemetry, decision, live.at_s)
    untrusted = live.step(made, queued={"": Sample(float("nan"), live.at_s + 9)})
    record(telemetry, untrusted, live.at_s - 10)
    record(telemetry, decision, live.at_s - 10)
    telemetry.gpu("node", "0", 0.5, 0.5)
    telemetry.failed_source("serve", "refused")
    telemetry.failed_tick(RuntimeError("boom"))
    telemetry.failed_journal("disk is full")
    telemetry.fitted(TARGET, "adopted")
    telemetry.chose(TARGET, Choice())
    telemetry.promised(TARGET, 2.0, 0.99, 1, 16)
    telemetry.clock_skew(0.1)
    telemetry.gpu_hour_price(2.5)
    page = telemetry.page().decode()
    missing = [name for name in (*names.GAUGES, *names.COUNTERS) if f"\n{name}" not in page]
    assert missing == []
    assert f'reason="{decision.plan.reason.value}"}} 1.0' in page
    assert shown(telemetry, names.FIRST_TOKENS) == pytest.approx(50)
    assert shown(telemetry, names.LATE_FIRST_TOKENS) == pytest.approx(0.5)


def test_the_choice_in_force_is_shown_and_what_was_tried_before_is_not(
    telemetry: Telemetry, live: World, made: Planner
) -> None:
    decision = live.step(made)
    record(telemetry, with_choice(decision, tried(*CANDIDATES)), live.at_s)
    chosen, careful = CANDIDATES[-1], Candidate(LAST_VALUE.model, 1.6)
    assert shown(telemetry, names.CHOSEN_MODEL, f',model="{chosen.model.value}"') == 1
    assert shown(telemetry, names.CHOSEN_AT) == START_S
    record(telemetry, with_choice(decision, tried(LAST_VALUE, careful)), live.at_s)
    assert shown(telemetry, names.CHOSEN_MODEL, f',model="{chosen.model.value}"') is None
    assert shown(telemetry, names.CHOSEN_MODEL, ',model="last_value"') == 1
    assert shown(telemetry, names.CHOSEN_PRICE) == 1.6
    page = telemetry.page().decode()
    assert page.count(f"\n{names.TRIAL_GPU_HOURS}{{") == 2
    assert page.count(f"\n{names.TRIAL_LATE}{{") == 2
    record(telemetry, with_choice(decision, None), live.at_s)
    assert "leadtime_chosen_model{" not in telemetry.page().decode()
    assert f"\n{names.TRIAL_LATE}{{" not in telemetry.page().decode()


def test_starts_and_replicas_without_a_node_are_told_apart(
    telemetry: Telemetry, live: World, made: Planner
) -> None:
    decision = live.step(made)
    record(telemetry, with_replicas(decision, starting(live.at_s)), live.at_s)
    assert shown(telemetry, names.STARTING) == 1
    assert shown(telemetry, names.OLDEST_START) == 20
    assert shown(telemetry, names.PENDING) == 1
    assert shown(telemetry, names.OLDEST_PENDING) == 50
    record(telemetry, decision, live.at_s)
    assert shown(telemetry, names.STARTING) == 0
    assert shown(telemetry, names.OLDEST_START) is None
    assert shown(telemetry, names.OLDEST_PENDING) is None
    record(telemetry, with_replicas(decision, None), live.at_s)
    assert shown(telemetry, names.STARTING) is None


def at(decision: Decision, at_s: float, wanted: int, setpoint: int, why: Reason) -> Decision:
    observation = replace(decision.observation, at_s=at_s, replicas=Replicas(setpoint, setpoint))
    return replace(decision, observation=observation, plan=Plan(wanted, why))


UNHONOURED = [
    # at_s, wanted, setpoint, reason, seconds shown
    (0, 4, 3, Reason.FORECAST, 0.0),  # asked for just now
    (10, 4, 4, Reason.STEADY, 0.0),  # honoured
    (20, 6, 4, Reason.FORECAST, 0.0),
    (30, 6, 4, Reason.FORECAST, 10.0),
    (40, 5, 4, Reason.FORECAST, 20.0),  # another number, still not honoured
    (50, 5, 5, Reason.STEADY, 0.0),
    (60, 5, 9, Reason.CONFLICT, None),  # someone else writes: that is another alert
    (70, 5, 9, Reason.STEADY, 0.0),
]


def test_the_time_for_which_serve_does_not_have_our_number(
    telemetry: Telemetry, live: World, made: Planner
) -> None:
    decision = live.step(made)
    for after_s, wanted, setpoint, why, expected in UNHONOURED:
        at_s = START_S + after_s
        record(telemetry, at(decision, at_s, wanted, setpoint, why), at_s)
        assert shown(telemetry, names.UNHONOURED) == expected, after_s


def test_in_shadow_mode_nothing_is_unhonoured(live: World, made: Planner) -> None:
    telemetry = Telemetry(active=False)
    record(telemetry, live.step(made), live.at_s)
    assert shown(telemetry, names.UNHONOURED) is None


def test_a_forecast_that_is_not_made_is_not_shown(
    telemetry: Telemetry, live: World, made: Planner
) -> None:
    decision = live.step(made)
    record(telemetry, decision, live.at_s)
    assert decision.ahead is not None
    more = f',horizon="ahead",model="{decision.ahead.model}"'
    assert shown(telemetry, names.MODEL, more) == 1
    other = replace(decision.ahead, model="other")
    record(telemetry, replace(decision, ahead=other), live.at_s)
    assert shown(telemetry, names.MODEL, more) is None
    assert shown(telemetry, names.MODEL, ',horizon="ahead",model="other"') == 1
    record(telemetry, live.step(made, arrivals=None), live.at_s)
    for name in (names.MODEL, names.HORIZON, names.FORECAST_TRUSTED, names.FORECAST):
        assert f"\n{name}{{" not in telemetry.page().decode()


def test_plain_gauges_are_absent_until_known(telemetry: Telemetry) -> None:
    for name in (names.CLOCK_SKEW, names.GPU_HOUR_PRICE, names.TICKED):
        assert shown(telemetry, name) is None
    telemetry.clock_skew(-0.25)
    assert shown(telemetry, names.CLOCK_SKEW) == -0.25
    telemetry.clock_skew(None)
    assert shown(telemetry, names.CLOCK_SKEW) is None
    telemetry.clock_skew(1.5)
    assert shown(telemetry, names.CLOCK_SKEW) == 1.5
