"""The journal: decisions with their inputs and outcomes, learned state, bounded in time."""

import sqlite3
from pathlib import Path

import pytest

from controller.adapters.store import SCHEMA, Journal, JournalError, file
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


def test_the_last_decision_is_the_last_one_made_also_when_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    journal, live, made = Journal(tmp_path / "j.db", DAY_S), World.with_replicas(3), planner()
    for set_by_s in (0.0, 3600.0, -3600.0):
        live.at_s += set_by_s
        journal.record(tick_of(live, made))
        (last,) = journal.decisions(TARGET, limit=1)
        assert last["at_s"] == live.at_s
    assert journal.decisions(TARGET, limit=1, until_s=live.at_s - 5)[0]["at_s"] < live.at_s


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


V1 = """
CREATE TABLE decisions (at_s REAL NOT NULL, application TEXT NOT NULL, deployment TEXT NOT NULL,
    reason TEXT NOT NULL, wanted INTEGER NOT NULL, applied INTEGER NOT NULL, body TEXT NOT NULL);
CREATE INDEX decisions_by_deployment ON decisions (application, deployment, at_s);
CREATE INDEX decisions_by_time ON decisions (at_s);
CREATE TABLE learned (application TEXT NOT NULL, deployment TEXT NOT NULL, at_s REAL NOT NULL,
    body TEXT NOT NULL, PRIMARY KEY (application, deployment));
INSERT INTO decisions VALUES (5.0, 'app', 'llm', 'steady', 4, 1, '{"at_s": 5.0, "wanted": 4}');
INSERT INTO learned VALUES ('app', 'llm', 5.0, '{"wanted": 4}');
PRAGMA user_version = 1;
"""


def test_a_journal_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "j.db")
    database.executescript(V1)
    database.close()
    journal = Journal(tmp_path / "j.db", 1e12, epoch=lambda: 7)
    target = DeploymentId("app", "llm")
    assert journal.learned(target) == {"wanted": 4}
    journal.record(tick_of(World.with_replicas(3), planner()))
    journal.close()
    database = sqlite3.connect(tmp_path / "j.db")
    assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
    assert database.execute("SELECT epoch FROM decisions ORDER BY at_s").fetchall() == [(0,), (7,)]
    database.close()


def test_a_step_that_fails_leaves_the_version_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = sqlite3.connect(tmp_path / "j.db")
    database.executescript(V1)
    steps = (*file.MIGRATIONS, ("CREATE TABLE extra (a)", "NO SUCH STATEMENT"))
    monkeypatch.setattr(file, "MIGRATIONS", steps)
    monkeypatch.setattr(file, "SCHEMA", len(steps))
    with pytest.raises(sqlite3.OperationalError):
        file.migrate(database, tmp_path / "j.db")
    names = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
    assert "extra" not in names
    assert database.execute("PRAGMA user_version").fetchone() == (1,)
    database.close()


def damage(path: Path, since: float) -> None:
    """Overwrite the file from a share of its length on, as a bad disk would."""
    size = path.stat().st_size
    with path.open("r+b") as opened:
        opened.seek(int(size * since))
        opened.write(b"\xa5" * (size - int(size * since)))


def filled(path: Path, ticks: int = 60) -> tuple[Journal, World, Planner]:
    journal, live, made = Journal(path, 1e12), World.with_replicas(3), planner()
    for _ in range(ticks):
        journal.record(tick_of(live, made))
    return journal, live, made


@pytest.mark.parametrize("since", [0.3, 0.9])
def test_a_damaged_journal_is_moved_aside_at_the_start(tmp_path: Path, since: float) -> None:
    path = tmp_path / "j.db"
    journal, live, made = filled(path)
    journal.close()
    damage(path, since)
    again = Journal(path, 1e12)
    assert again.replaced is not None
    assert again.replaced.name == "j.db.damaged-start"
    assert "damaged" in again.problem
    again.record(tick_of(live, made))
    assert again.decisions(limit=1)[0]["at_s"] == live.at_s
    assert again.learned(TARGET) == made.state()
    assert again.problem == ""
    again.close()
    assert Journal(path, 1e12).replaced is None


def test_what_can_be_read_of_a_damaged_journal_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal, _, made = filled(path)
    journal.close()
    database = sqlite3.connect(path)
    learned_at = database.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'learned'"
    ).fetchone()[0]
    index_at = database.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'decisions_by_time'"
    ).fetchone()[0]
    page = database.execute("PRAGMA page_size").fetchone()[0]
    database.close()
    assert learned_at != index_at
    with path.open("r+b") as opened:
        opened.seek((index_at - 1) * page)
        opened.write(b"\xa5" * page)
    again = Journal(path, 1e12)
    assert again.replaced is not None
    assert again.learned(TARGET) == made.state()
    assert len(again.decisions(limit=1000)) == 60


def test_a_journal_damaged_while_it_is_open_is_replaced_and_the_tick_kept(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal, live, made = filled(path)
    for each in (path, path.with_name("j.db-wal")):
        damage(each, 0.0)
    # What is in memory hides the damage until the file is read again, as after any failure.
    journal._close()  # noqa: SLF001
    journal.record(tick_of(live, made))
    assert journal.replaced is not None
    journal.record(tick_of(live, made))
    assert journal.decisions(limit=1)[0]["at_s"] == live.at_s
    assert journal.learned(TARGET) == made.state()
    journal.close()


def test_a_file_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    path.write_bytes(b"a text that is no journal\n" * 100)
    with pytest.raises(JournalError, match=r"journal\.path"):
        Journal(path, DAY_S)
    assert [each.name for each in tmp_path.iterdir()] == ["j.db"]


def test_ticks_wait_while_the_journal_is_locked_and_are_written_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "BUSY_S", 0.0)
    journal, live, made = filled(tmp_path / "j.db", 3)
    other = sqlite3.connect(tmp_path / "j.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for _ in range(4):
        with pytest.raises(JournalError, match="wait to be written"):
            journal.record(tick_of(live, made))
    assert (journal.waiting, journal.problem) == (4, "database is locked")
    other.execute("ROLLBACK")
    journal.record(tick_of(live, made))
    assert (journal.waiting, journal.problem) == (0, "")
    assert len(journal.decisions()) == 8
    assert journal.learned(TARGET) == made.state()
    other.close()
