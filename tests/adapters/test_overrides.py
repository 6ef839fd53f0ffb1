"""Overrides in the journal's file: durable, replaced by id, ended with a reason."""

import sqlite3
from pathlib import Path

import pytest

from controller.adapters.overrides import Overrides
from controller.adapters.store import Journal
from controller.core.overrides import Effect, Override, Source
from controller.core.types import DeploymentId
from tests.core.test_overrides import override
from tests.core.worlds import START_S, TARGET

OTHER = DeploymentId("app", "other")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "leadtime.db"
    Journal(made, 3600.0).close()
    return made


def test_an_override_survives_a_restart(path: Path) -> None:
    made = override("boost", replicas=2)
    first = Overrides(path)
    first.put(TARGET, made)
    first.close()
    again = Overrides(path)
    assert again.of(TARGET, START_S + 1) == (made,)
    assert again.of(OTHER, START_S + 1) == ()
    assert again.all(START_S + 1) == {TARGET: (made,)}


def test_the_same_id_replaces(path: Path) -> None:
    kept = Overrides(path)
    kept.put(TARGET, override("boost", replicas=2))
    kept.put(TARGET, override("pin", replicas=7, from_s=START_S + 5))
    assert [each.effect for each in kept.of(TARGET, START_S + 6)] == [Effect.PIN]
    past = kept.past(TARGET)
    assert [(each["effect"], each["ended_why"]) for each in past] == [
        ("pin", None),
        ("boost", "replaced"),
    ]


def test_a_revoked_one_is_gone_once(path: Path) -> None:
    kept = Overrides(path)
    kept.put(TARGET, override("hold"))
    assert kept.revoke(TARGET, "one", START_S + 5, "resolved")
    assert not kept.revoke(TARGET, "one", START_S + 6, "resolved")
    assert kept.of(TARGET, START_S + 6) == ()
    assert kept.past(TARGET)[0]["ended_s"] == START_S + 5
    assert Overrides(path).of(TARGET, START_S + 6) == ()


def test_it_runs_out_and_is_dropped_after_the_retention(path: Path) -> None:
    kept = Overrides(path)
    kept.put(TARGET, override("hold", until_s=START_S + 10))
    assert kept.of(TARGET, START_S + 10) == ()
    kept.prune(START_S + 20, retention_s=100)
    assert kept.past(TARGET)[0]["ended_why"] == "ran out"
    assert not kept.revoke(TARGET, "one", START_S + 21, "resolved")
    kept.prune(START_S + 200, retention_s=100)
    assert kept.past(TARGET) == []


def test_what_cannot_be_written_is_not_in_force(path: Path) -> None:
    kept = Overrides(path)
    kept.put(TARGET, override("boost", replicas=1))
    other = sqlite3.connect(path)
    other.execute("DROP TABLE overrides")
    other.close()
    with pytest.raises(sqlite3.Error):
        kept.put(TARGET, override("boost", replicas=9))
    with pytest.raises(sqlite3.Error):
        kept.revoke(TARGET, "one", START_S + 5, "resolved")
    assert [each.replicas for each in kept.of(TARGET, START_S + 6)] == [1]


def test_what_another_daemon_kept_holds_for_the_one_that_takes_over(tmp_path: Path) -> None:
    standby, leader = Overrides(tmp_path / "j.db"), Overrides(tmp_path / "j.db")
    pin = Override("operator", Effect.PIN, Source.OPERATOR, "launch", 0.0, 100.0, 5)
    leader.put(TARGET, pin)
    assert standby.of(TARGET, 50.0) == ()
    standby.reload()
    assert standby.of(TARGET, 50.0) == (pin,)
