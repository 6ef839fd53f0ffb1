"""The lease: one leads at a time, whatever happens to holders, clocks and the file."""

import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from controller.adapters import lease as module
from controller.adapters.lease import LEASE_S, JournalLease, Process

CLUSTER = "http://ray:8265"


class Clock:
    def __init__(self) -> None:
        self.at_s = 1000.0

    def __call__(self) -> float:
        return self.at_s


class Pair:
    """Two daemons on one journal; their names tell of no process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "leadtime.db"
        self.clock = Clock()
        self.one, self.two = self.candidate("one"), self.candidate("two")

    def candidate(self, name: str) -> JournalLease:
        return JournalLease(self.path, CLUSTER, self.clock, holder=name)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_the_first_leads_and_the_second_stands_by(pair: Pair) -> None:
    """A11"""
    assert pair.one.renew()
    assert not pair.two.renew()
    assert (pair.one.left_s(), pair.two.left_s()) == (LEASE_S, 0.0)
    assert pair.two.leader() == "one"


def test_a_lease_that_is_renewed_never_ends(pair: Pair) -> None:
    for _ in range(20):
        assert pair.one.renew()
        pair.clock.at_s += LEASE_S / 2
        assert not pair.two.renew()
    assert pair.one.epoch == 1


def test_who_is_silent_for_a_lease_is_followed_and_may_not_write(pair: Pair) -> None:
    """A holder that was paused wakes: its first look says no, even before it renews."""
    pair.one.renew()
    pair.two.renew()
    pair.clock.at_s += LEASE_S
    assert pair.two.renew()
    assert pair.two.epoch == pair.one.epoch + 1
    assert pair.one.left_s() == 0.0
    assert not pair.one.renew()


def test_a_write_is_checked_against_the_file_and_not_only_against_the_deadline(
    pair: Pair,
) -> None:
    """Our deadline has not passed; someone else's epoch is in the file all the same."""
    pair.one.renew()
    other = sqlite3.connect(pair.path)
    with other:
        other.execute("UPDATE lease SET holder = 'two', epoch = 2")
    other.close()
    assert pair.one.left_s() == 0.0


def test_the_deadline_counts_from_before_the_file_was_asked(pair: Pair) -> None:
    """A write that waited for the file makes the lease end sooner, not later."""
    now_s, waited_s = pair.clock.at_s, 3.0
    calls = iter([now_s] + [now_s + waited_s] * 10)
    slow = JournalLease(pair.path, CLUSTER, lambda: next(calls), holder="slow")
    assert slow.renew()
    assert slow.left_s() == LEASE_S - waited_s


def test_a_clean_end_hands_over_at_once(pair: Pair) -> None:
    pair.one.renew()
    pair.one.close()
    assert pair.two.renew()


def test_a_holder_that_has_ended_is_followed_at_once(pair: Pair) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host, namespace, _, _ = Process.own()
    process = Process(host, namespace, ended.pid, module._started(ended.pid))  # noqa: SLF001
    assert pair.candidate(str(process)).renew()
    assert not pair.two.renew()
    ended.kill()
    ended.wait()
    assert pair.two.renew()


def test_a_process_of_the_same_number_is_not_the_holder() -> None:
    own = Process.own()
    assert not own.ended
    assert own._replace(started="1").ended
    assert not own._replace(namespace="pid:[1]", started="1").ended
    assert Process.of(str(own)) == own


def test_a_lease_of_another_boot_means_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.one.renew()
    monkeypatch.setattr(module, "_boot_id", lambda: "after a reboot")
    assert pair.candidate("two").renew()


def test_a_deadline_further_off_than_a_lease_means_nothing(pair: Pair) -> None:
    """Where no boot can be told from another, a clock that began anew shows itself so."""
    pair.one.renew()
    pair.clock.at_s -= 100 * LEASE_S
    assert pair.two.renew()


def test_two_clusters_have_a_leader_each(pair: Pair) -> None:
    pair.one.renew()
    assert JournalLease(pair.path, "http://other:8265", pair.clock, holder="two").renew()


def test_who_cannot_reach_serve_leaves_the_lead_to_a_standby_that_can(pair: Pair) -> None:
    pair.one.renew(healthy=True)
    pair.two.renew(healthy=True)
    assert not pair.one.renew(healthy=False)
    assert pair.two.renew(healthy=True)


@pytest.mark.parametrize("standby_healthy", [None, False])
def test_who_cannot_reach_serve_leads_on_where_nobody_is_better(
    pair: Pair, standby_healthy: bool | None
) -> None:
    pair.one.renew()
    if standby_healthy is not None:
        pair.two.renew(healthy=standby_healthy)
    assert pair.one.renew(healthy=False)
    assert not pair.two.renew(healthy=False)


def test_a_standby_that_was_seen_long_ago_is_none(pair: Pair) -> None:
    pair.two.renew()
    pair.two.release()
    pair.one.renew()
    pair.two.renew(healthy=True)
    for _ in range(3):
        pair.clock.at_s += LEASE_S / 2
        assert pair.one.renew(healthy=True)
    assert pair.one.renew(healthy=False)


def test_a_journal_that_cannot_be_written_ends_no_lead_and_begins_none(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be read: nobody else has taken the lease. (The lock stands for a full disk.)"""
    monkeypatch.setattr(module, "BUSY_S", 0.0)
    pair.one.renew()
    pair.two.renew()
    lock = sqlite3.connect(pair.path, isolation_level=None)
    lock.execute("PRAGMA journal_mode = WAL")
    pair.one.renew()
    lock.execute("BEGIN IMMEDIATE")
    for _ in range(4):
        pair.clock.at_s += LEASE_S / 2
        assert pair.one.renew()
        assert "cannot be written" in pair.one.problem
        assert not pair.two.renew()
        assert pair.one.left_s() == LEASE_S
    lock.execute("ROLLBACK")
    assert pair.one.renew()
    assert pair.one.problem == ""


def test_who_slept_while_the_journal_could_not_be_written_does_not_lead(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_S", 0.0)
    pair.one.renew()
    lock = sqlite3.connect(pair.path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    pair.clock.at_s += LEASE_S + 1
    assert not pair.one.renew()
    lock.close()


def test_a_journal_that_was_replaced_is_the_one_that_counts(pair: Pair) -> None:
    """A damaged journal is moved aside: both then look at the new one."""
    pair.one.renew()
    pair.two.renew()
    pair.path.rename(pair.path.with_name("damaged"))
    assert pair.one.left_s() > 0
    assert pair.one.renew()
    assert not pair.two.renew()
    assert pair.two.leader() == "one"


def test_no_wall_clock_is_read() -> None:
    """A clock step of an hour either way cannot matter to what reads no such clock."""
    for source in ("adapters/lease.py", "leading.py"):
        text = (Path(module.__file__).parents[1] / source).read_text()
        assert "datetime" not in text
        assert "time()" not in text
        assert "wall_clock" not in text
        assert "import time" not in text


class Daemons(RuleBasedStateMachine):
    """Daemons that renew, pause, die, cannot reach Serve or find the journal locked."""

    names = st.sampled_from(["a", "b", "c"])

    def __init__(self) -> None:
        super().__init__()
        module_busy, module.BUSY_S = module.BUSY_S, 0.0
        self._busy_s = module_busy
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "leadtime.db"
        self.clock = Clock()
        self.daemons = {name: self._new(name) for name in ("a", "b", "c")}
        self.lock: sqlite3.Connection | None = None
        self.births = 0

    def _new(self, name: str) -> JournalLease:
        return JournalLease(self.path, CLUSTER, self.clock, holder=name)

    @rule(name=names, healthy=st.booleans())
    def renew(self, name: str, healthy: bool) -> None:
        self.daemons[name].renew(healthy)

    @rule(name=names)
    def release(self, name: str) -> None:
        self.daemons[name].release()

    @rule(name=names)
    def die_and_come_back(self, name: str) -> None:
        self.births += 1
        self.daemons[name] = self._new(f"{name}{self.births}")

    @rule(seconds=st.sampled_from((0.1, 3.0, 9.9, 10.0, 25.0)))
    def wait(self, seconds: float) -> None:
        self.clock.at_s += seconds

    @rule()
    def lock_or_unlock(self) -> None:
        if self.lock is not None:
            self.lock.close()
            self.lock = None
            return
        self.lock = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        self.lock.execute("BEGIN IMMEDIATE")

    @invariant()
    def at_most_one_may_write(self) -> None:
        assert sum(daemon.left_s() > 0 for daemon in self.daemons.values()) <= 1

    def teardown(self) -> None:
        if self.lock is not None:
            self.lock.close()
        for daemon in self.daemons.values():
            daemon.close()
        module.BUSY_S = self._busy_s
        self.folder.cleanup()


TestDaemons = Daemons.TestCase
TestDaemons.settings = settings(max_examples=60, stateful_step_count=40)
