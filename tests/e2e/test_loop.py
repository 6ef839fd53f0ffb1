"""One cluster, one daemon, an application that it scales by `floor` and one by `external`: ahead of
scheduled ramps, back after them, through crashes, outages and steps of its clock."""

import sqlite3
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.clocks import SteppedClock
from tests.e2e.served import MAX_REPLICAS, NEEDED, SEASON_S
from tests.e2e.world import World, frozen, wait_for, world

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.timeout(300)]

SLACK_S = 3.0
GIVEN_BACK_S = 18.0
BEFORE_S = 25.0
"""By then the ramp before has long been over."""
SEASONS = 7
BEGINS_IN_S, EARLY_S = 25.0, 12.0
"""A load that paused until the season began would be forecast to go on pausing."""
BLIND = ("blind", "stale")
HOUR_S = 3600.0
CLOCK_OFF_S = 8.0
"""Ticks of a second in which the clock is wrong."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("loop"), "floor", BEGINS_IN_S, beside="external") as made:
        for seed, view in enumerate(views(made), 5):
            view.play_load(SEASONS, seed, EARLY_S)
        yield made


def views(live: World) -> tuple[World, World]:
    """The same world seen from the application under `floor`, and from that under `external`."""
    assert live.beside is not None
    return live, live.beside


def assert_ramp_met(live: World, season: int) -> None:
    """Capacity was there when the ramp began, and was asked for a cold start before."""
    lead_s = min(live.watch.cold_starts_s)
    ramp_s = season * SEASON_S + live.ramp_s
    ready_s = live.ready_since(NEEDED, ramp_s - BEFORE_S, ramp_s + SLACK_S)
    asked_s = live.asked_since(NEEDED, ramp_s - BEFORE_S, ramp_s)
    assert ready_s is not None, f"no {NEEDED} replicas by the ramp of season {season}"
    assert asked_s is not None
    assert asked_s <= ramp_s + SLACK_S - lead_s


def assert_given_back(live: World, season: int) -> None:
    """Soon after the ramp the replicas were given back."""
    ends_s = season * SEASON_S + live.ramp_ends_s
    assert min(live.targets(ends_s, ends_s + GIVEN_BACK_S)) <= NEEDED - 1


def last_decisions(live: World) -> list[dict[str, Any]]:
    """The last on each application."""
    return [view.decisions(limit=10)[-1] for view in views(live)]


def restart_without_a_wrong_action(live: World) -> None:
    """Kill the daemon and start it again: what it does next continues what it did before."""
    before = last_decisions(live)
    live.kill_daemon()
    live.start_daemon()
    for view, last in zip(views(live), before, strict=True):
        after = [d for d in view.decisions() if d["at_s"] > last["at_s"]]
        assert after, "the restarted daemon decided nothing"
        first = after[0]
        assert abs(first["wanted"] - last["wanted"]) <= 1
        assert first["lead_s"] == pytest.approx(last["lead_s"], rel=0.5)
        assert first["ahead"]["model"] == "location_scale"
    database = sqlite3.connect(live.folder / "leadtime.db")
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


def test_both_ways_are_ahead_of_the_ramps_and_floor_is_safe_to_lose(live: World) -> None:
    floor, external = views(live)
    live.wait_until(SEASON_S - 1)
    for view in (floor, external):
        assert_ramp_met(view, 0)
        assert_given_back(view, 0)
    live.wait_until(SEASON_S + 2)
    restart_without_a_wrong_action(live)
    live.wait_until(2 * SEASON_S - 1)
    for view in (floor, external):
        assert_ramp_met(view, 1)
        assert_given_back(view, 1)
    # The daemon dies in the trough: Serve's own autoscaler meets the next ramp, late.
    live.wait_until(2 * SEASON_S + 2)
    live.kill_daemon()
    live.wait_until(2 * SEASON_S + floor.ramp_ends_s)
    ramp_s = 2 * SEASON_S + floor.ramp_s
    assert max(floor.targets(ramp_s - 10, ramp_s)) < NEEDED
    assert floor.asked_since(NEEDED, ramp_s, ramp_s + 12) is not None
    assert max(floor.targets(0, 3 * SEASON_S)) <= MAX_REPLICAS
    # Nobody gives back what `external` had asked for.
    assert len(set(external.targets(2 * SEASON_S + 4, 2 * SEASON_S + floor.ramp_ends_s))) == 1


def assert_blind_held(live: World, since_s: float) -> None:
    """No decision made blind wants fewer than the one before it."""
    for view in views(live):
        lately = [d for d in view.decisions() if d["at_s"] >= since_s]
        for before, blind in pairwise(lately):
            if blind["reason"] in BLIND:
                assert blind["wanted"] >= before["wanted"], (before, blind)


def begun_anew(live: World) -> float:
    """The daemon, started again where it was killed; the time of its next decision or earlier."""
    if live.daemon is None or live.daemon.poll() is not None:
        live.start_daemon()
    return float(live.decisions(limit=10)[-1]["at_s"])


def test_holds_and_recovers(live: World) -> None:
    since_s = begun_anew(live)

    # Prometheus stops answering.
    live.metrics.stop()
    wait_for(lambda: "prometheus" in live.problems(), 20, "readyz to name Prometheus")
    wait_for(lambda: live.reason() in BLIND, 20, "a blind decision")
    assert live.metric('leadtime_source_errors_total{source="prometheus"}') > 0
    assert_blind_held(live, since_s)
    assert "no usable answer" in live.group.log("leadtime", 100_000)
    live.metrics.start()
    wait_for(live.ready, 30, "recovery from Prometheus's absence")

    # Prometheus answers, and has nothing: a vector without series is no zero.
    live.metrics.stop()
    discovery, live.metrics.service_discovery_file = live.metrics.service_discovery_file, None
    live.metrics.start()
    wait_for(lambda: live.reason() in BLIND, 40, "a blind decision on no series")
    assert_blind_held(live, since_s)
    live.metrics.stop()
    live.metrics.service_discovery_file = discovery
    live.metrics.start()
    wait_for(live.ready, 30, "recovery from empty answers")

    # Serve's API stops answering, and comes back.
    silent = live.dashboard()
    assert silent
    with frozen(silent):
        wait_for(lambda: live.reason() == "serve_unreachable", 30, "serve_unreachable")
        assert "serve" in live.problems()
    wait_for(live.ready, 30, "recovery from Serve's absence")
    assert all(decision["wanted"] >= 1 for decision in last_decisions(live))

    # SIGTERM ends it within five seconds, with 0.
    assert live.daemon is not None
    live.daemon.terminate()
    assert live.daemon.wait(5) == 0


def wanted(live: World) -> dict[str, float]:
    """What the daemon wants for each application."""
    metric = 'leadtime_wanted_replicas{{application="{}",deployment="LLM"}}'
    return {view.application: live.metric(metric.format(view.application)) for view in views(live)}


@pytest.mark.parametrize("off_s", [HOUR_S, -HOUR_S], ids=["an hour ahead", "an hour behind"])
def test_a_step_of_the_clock_takes_nothing_away(live: World, tmp_path: Path, off_s: float) -> None:
    """The machine's clock is set while the daemon runs, and set right again."""
    clock = SteppedClock(tmp_path)
    live.kill_daemon()
    live.start_daemon(clock.env)
    before = wanted(live)
    assert min(before.values()) >= 1, "else there is nothing to take away"
    clock.step(off_s)
    wait_for(lambda: not live.ready(), 20, "the daemon to mistrust what it sees")
    seen = []
    stepped_s = time.monotonic()
    while time.monotonic() < stepped_s + CLOCK_OFF_S:
        seen.append(wanted(live))
        time.sleep(0.5)
    clock.step(0.0)
    wait_for(live.ready, 30, "the daemon to see again")
    for application, replicas in before.items():
        assert min(each[application] for each in seen) >= replicas, (before, seen)
    assert live.reason() not in BLIND
