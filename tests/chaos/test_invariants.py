"""Each invariant holds over a sound run, and is broken by the run that it is there for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.chaos.invariants import (
    Look,
    Rules,
    Strike,
    Timeline,
    broken,
    caught,
    chance_of,
    failed_by,
    need,
    out_of_bounds,
    recovered_after_s,
    shortages,
    too_short,
    unrecovered,
)
from tests.chaos.looking import filled
from tests.chaos.schedule import KINDS, Act, Fault, Victim
from tests.chaos.table import table

RULES = Rules(minimum=1, maximum=6, capacity_rps=3.0, slots=4)
BUSY_S = (40.0, 60.0)
LAST_S = 100
LEAD_S = 8.0


def load() -> list[float]:
    """One request a second, eight from 40 to 60 s."""
    quiet = [float(second) for second in range(LAST_S)]
    return sorted(quiet + [second + k / 7 for second in range(40, 60) for k in range(7)])


def looks(**changed: tuple[float, float, int | None]) -> list[Look]:
    """Two replicas, four from 38 s on. Each change, `target`, `serving` or `well`, gives a value
    in a span."""
    made = []
    for at_s in np.arange(0, LAST_S, 0.5):
        count = 4 if at_s >= 38 else 2
        look = Look(float(at_s), count, count, True)
        for name, (begin_s, end_s, value) in changed.items():
            if begin_s <= at_s < end_s:
                change: dict[str, Any] = {name: value}
                look = replace(look, **change)
        made.append(look)
    return made


def strike(victim: Victim, act: Act, at_s: float, lasts_s: float = 0.0) -> Strike:
    kind = next(kind for kind in KINDS if (kind.victim, kind.act) == (victim, act))
    over_s = at_s + lasts_s if act is Act.PAUSE else at_s
    return Strike(Fault(at_s, kind, lasts_s, 0.0), at_s, over_s)


KILLED = strike(Victim.REPLICA, Act.KILL, 20.0)
PAUSED = strike(Victim.DASHBOARD, Act.PAUSE, 30.0, 10.0)


def run(
    seen: Sequence[Look] | None = None,
    failed_s: Sequence[float] = (),
    wanted: Sequence[int] = (1, 4, 6),
    strikes: Sequence[Strike] = (KILLED, PAUSED),
) -> Timeline:
    return Timeline(
        looks() if seen is None else seen,
        strikes,
        np.array(load()),
        failed_s,
        0.0,
        wanted,
        LEAD_S,
    )


def test_a_sound_run_breaks_nothing() -> None:
    assert broken(run(), run(), RULES) == []


def test_need_is_what_carries_the_last_ten_seconds() -> None:
    seen = run()
    assert need(seen, 30.0, RULES) == 1
    assert need(seen, 45.0, RULES) == 2  # 4.5 requests/s over 10 s
    assert need(seen, 60.0, RULES) == 3
    assert need(seen, 60.0, replace(RULES, maximum=2)) == 2
    assert need(seen, 0.0, replace(RULES, minimum=2)) == 2


@pytest.mark.parametrize("count", [0, 7])
def test_a_target_out_of_bounds_is_found(count: int) -> None:
    assert out_of_bounds(run(looks(target=(70.0, 70.5, count))), RULES)
    assert out_of_bounds(run(wanted=(1, count)), RULES)


def test_a_silent_serve_requests_nothing() -> None:
    assert not out_of_bounds(run(looks(target=(30.0, 40.0, None))), RULES)


def test_too_few_for_one_lead_are_allowed_and_no_longer() -> None:
    assert not too_short(run(looks(target=(50.0, 58.0, 1))), RULES)
    told = too_short(run(looks(target=(50.0, 58.5, 1))), RULES)
    assert told == ["below the reactive need from 50.0 to 58.5 s, a lead is 8.0 s"]


def test_shortages_that_add_up_to_a_lead_are_several() -> None:
    seen = looks(target=(45.0, 58.5, 1))
    seen = [replace(look, target=4) if look.at_s == 52.0 else look for look in seen]
    assert len(shortages(run(seen), RULES)) == 2
    assert not too_short(run(seen), RULES)


def test_a_shortage_goes_on_while_serve_is_silent() -> None:
    seen = looks(target=(48.0, 58.5, 1))
    seen = [replace(look, target=None) if 49 <= look.at_s < 58 else look for look in seen]
    assert too_short(run(seen), RULES)


def test_a_shortage_at_the_end_counts() -> None:
    seen = [look for look in looks(target=(49.0, 100.0, 1)) if look.at_s < 59]
    assert too_short(run(seen), RULES)


def test_what_serve_reported_stands_where_it_did_not_answer() -> None:
    seen = looks(target=(50.0, 60.0, None))
    reported = [Look(float(at_s), 1, 0, False) for at_s in range(120)]
    merged = filled(seen, reported)
    assert too_short(run(merged), RULES)
    assert not too_short(run(filled(looks(), reported)), RULES)
    assert merged[-1].at_s == seen[-1].at_s


def test_recovery_counts_from_the_end_of_a_fault() -> None:
    assert recovered_after_s(run(), PAUSED, RULES) == 0.0
    assert recovered_after_s(run(looks(serving=(20.0, 26.0, 0))), KILLED, RULES) == 6.0
    assert recovered_after_s(run(looks(target=(30.0, 43.0, None))), PAUSED, RULES) == 3.0


@pytest.mark.parametrize(
    "change",
    [
        {"well": (20.0, 81.0, False)},
        {"serving": (20.0, 81.0, 0)},
        {"target": (20.0, 81.0, None)},
    ],
    ids=["who should answer does not", "nothing serves", "Serve does not answer"],
)
def test_a_recovery_of_more_than_a_minute_is_told(
    change: dict[str, tuple[float, float, int | None]],
) -> None:
    told = unrecovered(run(looks(**change), strikes=(KILLED,)), RULES)
    assert told == ["kill replica at 20 s: recovered after 61 s"]


def test_no_recovery_is_told() -> None:
    told = unrecovered(run(looks(serving=(20.0, 100.0, 0))), RULES)
    assert told == [
        "kill replica at 20 s: recovered never",
        "pause dashboard at 30 s: recovered never",
        "not recovered at the end",
    ]


def test_an_end_that_is_not_sound_is_told() -> None:
    assert unrecovered(run(looks(well=(99.0, 100.0, False))), RULES) == ["not recovered at the end"]


def test_a_kill_catches_at_most_what_a_replica_holds() -> None:
    assert caught(run(failed_s=[20.1, 20.2, 22.9]), RULES) == 3
    assert caught(run(failed_s=[20.0 + k / 10 for k in range(9)]), RULES) == 4
    assert caught(run(failed_s=[19.9, 23.0, 30.5]), RULES) == 0


def test_failures_that_no_kill_explains_may_not_be_more() -> None:
    assert broken(run(failed_s=[50.0]), run(failed_s=[70.0]), RULES) == []
    assert broken(run(failed_s=[50.0, 51.0]), run(failed_s=[70.0]), RULES) == [
        "2 requests failed otherwise, 1 under native autoscaling"
    ]
    assert broken(run(failed_s=[20.0 + k / 10 for k in range(5)]), run(), RULES) == [
        "1 requests failed otherwise, 0 under native autoscaling"
    ]


def test_failures_by_kills_may_be_more_by_chance_only() -> None:
    kills = [strike(Victim.REPLICA, Act.KILL, at_s) for at_s in (10.0, 20.0, 30.0)]
    few = run(strikes=kills, failed_s=[10.1, 20.1])
    some = run(strikes=kills, failed_s=[10.1, 10.2, 10.3, 20.1])
    many = run(strikes=kills, failed_s=[s + k / 10 for s in (10.1, 20.1, 30.1) for k in range(3)])
    assert broken(some, few, RULES) == []
    assert broken(many, few, RULES) == []
    assert broken(replace(many, failed_s=[*many.failed_s, 30.5]), run(strikes=kills), RULES) == [
        "kills caught 10 requests, 0 under native autoscaling"
    ]


def test_chance_is_that_of_a_coin() -> None:
    assert chance_of(0, 5) == 1.0
    assert chance_of(5, 5) == 1 / 32
    assert chance_of(9, 11) == pytest.approx(0.033, abs=0.001)
    assert chance_of(10, 11) == pytest.approx(0.006, abs=0.001)


def test_a_failure_counts_for_the_last_strike_before_it() -> None:
    assert failed_by(run(failed_s=[5.0, 20.0, 29.9, 31.0, 99.0])) == [1, 2, 2]


def test_the_table_has_a_row_a_fault() -> None:
    ours, native = run(failed_s=[20.5]), run(strikes=(KILLED,))
    lines = table([KILLED.fault, PAUSED.fault], ours, native, RULES).splitlines()
    assert lines[1].split() == ["kill", "replica", "20", "s", "0.0", "s", "0.0", "s", "1", "0"]
    assert lines[2].split()[-4:] == ["s", "-", "0", "-"]
    assert lines[-2].startswith("ours: 1 of 240 requests failed")
