"""The journal: decisions with their inputs and outcomes, learned state, bounded in time."""

import sqlite3
from pathlib import Path

import pytest

from controller.adapters.store import SCHEMA, Journal, JournalError
from controller.core.planning import Planner
from controller.core.types import DeploymentId, Outcome, Tick
from tests.core.worlds import TARGET, World, planner

DAY_S = 86_400.0


def tick_of(live: World, made: Planner) -> Tick:
    decision = live.step(made)
    outcome = Outcome(decision.action, applied=True, detail="min_replicas 3")
    return Tick(live.at_s, ((decision, outcome),), {TARGET: made.state()})


def test_decisions_come_back_newest_first(tmp_path: Path) -> None:
    journal, live, made = Journal(tmp_path / "j.db", DAY_S), World.with_replicas(3), planner()
    for _ in range(5):
        journal.record(tick_of(live, made))
    found = journal.decisions(TARGET, limit=3)
    assert [d["at_s"] for d in found] == [live.at_s, live.at_s - 10, live.at_s - 20]
    assert found[0]["inputs"]["signals"]["arrivals"]["trust"] == "present"
    assert found[0]["detail"] == "min_replicas 3"
    assert journal.decisions(TARGET, until_s=live.at_s - 25)[0]["at_s"] == live.at_s - 30
    assert journal.decisions(DeploymentId("app", "other")) == []


def test_what_was_learned_survives_reopening(tmp_path: Path) -> None:
    journal, live, made = Journal(tmp_path / "j.db", DAY_S), World.with_replicas(3), planner()
    for _ in range(20):
        journal.record(tick_of(live, made))
    journal.close()
    again = Journal(tmp_path / "j.db", DAY_S)
    assert again.learned(TARGET) == made.state()
    assert again.learned(DeploymentId("app", "other")) is None
    assert len(again.decisions()) == 20


def test_old_decisions_are_dropped_and_learned_state_kept(tmp_path: Path) -> None:
    journal, live, made = Journal(tmp_path / "j.db", 3600.0), World.with_replicas(3), planner()
    journal.record(tick_of(live, made))
    live.at_s += 2 * 3600
    journal.record(tick_of(live, made))
    assert [d["at_s"] for d in journal.decisions()] == [live.at_s]
    assert journal.learned(TARGET) is not None


def test_a_tick_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    journal, live, made = Journal(tmp_path / "j.db", DAY_S), World.with_replicas(3), planner()
    good = tick_of(live, made)
    bad = Tick(good.at_s, good.decisions, {TARGET: {"not json": object()}})
    with pytest.raises((JournalError, TypeError)):
        journal.record(bad)
    assert journal.decisions() == []
    journal.record(good)
    assert len(journal.decisions()) == 1


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"journal\.path"):
        Journal(tmp_path / "nowhere" / "j.db", DAY_S)


def test_a_journal_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "j.db", DAY_S).close()
    database = sqlite3.connect(tmp_path / "j.db")
    database.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    database.close()
    with pytest.raises(JournalError, match="newer version"):
        Journal(tmp_path / "j.db", DAY_S)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "j.db").write_text("not a database, just a long enough text" * 50)
    with pytest.raises(JournalError, match=r"j\.db"):
        Journal(tmp_path / "j.db", DAY_S)
