"""The loop on a real cluster: ahead of a scheduled ramp, back after it, through crashes."""

import sqlite3
from pathlib import Path

import pytest

from tests.e2e.world import (
    MAX_REPLICAS,
    NEEDED,
    RAMP_AT_S,
    RAMP_ENDS_S,
    SEASON_S,
    World,
    world,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SLACK_S = 3.0


def assert_ramp_met(live: World, season: int, lead_s: float) -> None:
    """Capacity was there when the ramp began, and was asked for a cold start before."""
    begin_s = season * SEASON_S
    ramp_s = begin_s + RAMP_AT_S
    ready_s = live.ready_since(NEEDED, begin_s, ramp_s + SLACK_S)
    asked_s = live.asked_since(NEEDED, begin_s, ramp_s)
    assert ready_s is not None, f"no {NEEDED} replicas by the ramp of season {season}"
    assert asked_s is not None
    assert asked_s <= ramp_s + SLACK_S - lead_s


def assert_given_back(live: World, season: int) -> None:
    """Before the season ended the replicas were given back."""
    begin_s = season * SEASON_S
    assert min(live.targets(begin_s + RAMP_ENDS_S, begin_s + SEASON_S)) <= NEEDED - 1


def restart_without_a_wrong_action(live: World, actuation: str, at_s: float) -> None:
    """Kill the daemon and start it again: what it does next continues what it did before."""
    live.wait_until(at_s)
    before = live.decisions()[-1]
    live.kill_daemon()
    live.start_daemon(actuation)
    after = [d for d in live.decisions() if d["at_s"] > before["at_s"]]
    assert after, "the restarted daemon decided nothing"
    first = after[0]
    assert abs(first["wanted"] - before["wanted"]) <= 1
    assert first["lead_s"] == pytest.approx(before["lead_s"], rel=0.5)
    assert first["ahead"]["model"] == "location_scale"
    database = sqlite3.connect(live.folder / "leadtime.db")
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


def test_floor_is_ahead_of_the_ramp_and_safe_to_lose(tmp_path: Path) -> None:
    with world(tmp_path, "floor") as live:
        live.play_load(seasons=3, seed=5)
        live.wait_until(SEASON_S - 1)
        lead_s = min(live.watch.cold_starts_s)
        assert_ramp_met(live, 0, lead_s)
        assert_given_back(live, 0)
        restart_without_a_wrong_action(live, "floor", SEASON_S + 2)
        live.wait_until(2 * SEASON_S - 1)
        assert_ramp_met(live, 1, lead_s)
        assert_given_back(live, 1)
        # The daemon dies in the trough: Serve's own autoscaler meets the next ramp, late.
        live.wait_until(2 * SEASON_S + 2)
        live.kill_daemon()
        live.wait_until(2 * SEASON_S + RAMP_ENDS_S)
        ramp_s = 2 * SEASON_S + RAMP_AT_S
        assert max(live.targets(ramp_s - 10, ramp_s)) < NEEDED
        assert live.asked_since(NEEDED, ramp_s, ramp_s + 12) is not None
        assert max(live.targets(0, 3 * SEASON_S)) <= MAX_REPLICAS


def test_external_is_ahead_of_the_ramp(tmp_path: Path) -> None:
    with world(tmp_path, "external") as live:
        live.play_load(seasons=2, seed=6)
        live.wait_until(SEASON_S - 1)
        lead_s = min(live.watch.cold_starts_s)
        assert_ramp_met(live, 0, lead_s)
        assert_given_back(live, 0)
        restart_without_a_wrong_action(live, "external", SEASON_S + 2)
        live.wait_until(2 * SEASON_S - 1)
        assert_ramp_met(live, 1, lead_s)
        assert_given_back(live, 1)
