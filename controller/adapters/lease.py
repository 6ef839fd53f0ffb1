"""Who leads among the daemons of one host: a row in the journal that runs out.

A lock would be held for ever by a paused holder; a row that must be renewed is not. Deadlines are
read from the monotonic clock and belong to one boot, so that no step of the wall clock matters.
"""

import contextlib
import os
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

LEASE_S = 10.0
BUSY_S = 0.5
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TABLES = """
CREATE TABLE IF NOT EXISTS lease (
    cluster TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    deadline_s REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS standbys (
    cluster TEXT NOT NULL,
    holder TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    deadline_s REAL NOT NULL,
    healthy INTEGER NOT NULL,
    PRIMARY KEY (cluster, holder)
);
"""


class Process(NamedTuple):
    """A process so named that no other is meant, even after its number is used again. Processes
    of other PID namespaces cannot be seen from ours."""

    host: str
    namespace: str
    pid: int
    started: str

    @classmethod
    def own(cls) -> "Process":
        """This one."""
        return cls(socket.gethostname(), _namespace(), os.getpid(), _started(os.getpid()))

    @classmethod
    def of(cls, text: str) -> "Process":
        """From its text; raises ValueError."""
        host, namespace, pid, started = text.rsplit("|", 3)
        return cls(host, namespace, int(pid), started)

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended; False where that cannot be told."""
        if not self.started or not self.namespace or self.namespace != _namespace():
            return False
        return _started(self.pid) != self.started

    def __str__(self) -> str:
        return "|".join(map(str, self))


class JournalLease:
    """The lease on one cluster, in the journal's file; `cluster` is what its daemons agree on.

    Every method may be called at any time and raises nothing: where the file cannot be used, who
    leads goes on leading while it is awake, as nobody else can have taken the lease, and `problem`
    says why.
    """

    def __init__(
        self,
        path: Path,
        cluster: str,
        clock: Callable[[], float],
        lease_s: float = LEASE_S,
        holder: str | None = None,
    ) -> None:
        self.lease_s = lease_s
        self.problem = ""
        self.epoch = 0
        self.inherited = False
        self._path = path
        self._cluster = cluster
        self._clock = clock
        self._holder = holder or str(Process.own())
        self._boot = _boot_id()
        self._deadline_s = float("-inf")
        self._db: sqlite3.Connection | None = None
        self._inode = 0

    def renew(self, healthy: bool = True) -> bool:
        """Take the lease or keep it, if that is possible; whether we lead. Who is not healthy
        leaves it to a standby that is."""
        now_s = self._clock()
        leading = now_s < self._deadline_s
        try:
            leads = self._transact(healthy)
            self.problem = ""
        except sqlite3.Error as error:
            self._close()
            self.problem = f"lease cannot be written: {error}"
            leads = leading and self._unclaimed()
        self._deadline_s = now_s + self.lease_s if leads else float("-inf")
        return leads

    def left_s(self) -> float:
        """Seconds for which we may still write, checked against the file; 0 if we may not."""
        left_s = self._deadline_s - self._clock()
        if left_s <= 0:
            return 0.0
        if not self._unclaimed():
            self._deadline_s = float("-inf")
            return 0.0
        return left_s

    def release(self) -> None:
        """Give the lease up, so that a standby need not wait."""
        self._deadline_s = float("-inf")
        with contextlib.suppress(sqlite3.Error), self._open() as db:
            db.execute(
                "UPDATE lease SET deadline_s = 0 WHERE cluster = ? AND holder = ? AND epoch = ?",
                (self._cluster, self._holder, self.epoch),
            )
            db.execute("DELETE FROM standbys WHERE holder = ?", (self._holder,))

    def leader(self) -> str:
        """Who holds the lease; empty if nobody, or if the file cannot be read."""
        with contextlib.suppress(sqlite3.Error):
            row = self._row()
            if row is not None and not self._free(*row):
                return row[0]
        return ""

    def close(self) -> None:
        """Give the lease up and close the file."""
        self.release()
        self._close()

    def _transact(self, healthy: bool) -> bool:
        db = self._open()
        with db:
            db.execute("BEGIN IMMEDIATE")
            row = self._row()
            now_s = self._clock()
            ours = row is not None and row[:2] == (self._holder, self.epoch)
            others = self._healthy_standby(now_s)
            if ours and not healthy and others:
                self._standby(db, now_s, healthy)
                db.execute("UPDATE lease SET deadline_s = 0 WHERE cluster = ?", (self._cluster,))
                return False
            free = row is None or self._free(*row)
            if not ours and not (free and (healthy or not others)):
                self._standby(db, now_s, healthy)
                return False
            if not ours:
                self.epoch = (row[1] if row is not None else 0) + 1
                self.inherited = row is None or row[0] != self._holder
            db.execute(
                "INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?, ?)",
                (self._cluster, self._holder, self.epoch, self._boot, now_s + self.lease_s),
            )
            db.execute("DELETE FROM standbys WHERE holder = ?", (self._holder,))
        return True

    def _unclaimed(self) -> bool:
        """Whether nobody else has taken the lease, as far as the file can be read."""
        try:
            row = self._row()
        except sqlite3.Error as error:
            self._close()
            self.problem = f"lease cannot be read: {error}"
            return True
        return row is None or row[:2] == (self._holder, self.epoch)

    def _row(self) -> tuple[str, int, str, float] | None:
        found: tuple[str, int, str, float] | None = (
            self._open()
            .execute(
                "SELECT holder, epoch, boot_id, deadline_s FROM lease WHERE cluster = ?",
                (self._cluster,),
            )
            .fetchone()
        )
        return found

    def _free(self, holder: str, _: int, boot: str, deadline_s: float) -> bool:
        """A deadline of another boot, or further off than any lease, means nothing."""
        left_s = deadline_s - self._clock()
        if boot != self._boot or not 0 < left_s <= 2 * self.lease_s:
            return True
        try:
            return Process.of(holder).ended
        except ValueError:
            return False

    def _standby(self, db: sqlite3.Connection, now_s: float, healthy: bool) -> None:
        row = (self._cluster, self._holder, self._boot, now_s + self.lease_s, healthy)
        db.execute("INSERT OR REPLACE INTO standbys VALUES (?, ?, ?, ?, ?)", row)
        db.execute("DELETE FROM standbys WHERE deadline_s < ? OR boot_id != ?", (now_s, self._boot))

    def _healthy_standby(self, now_s: float) -> bool:
        row = (
            self._open()
            .execute(
                "SELECT 1 FROM standbys WHERE cluster = ? AND holder != ? AND boot_id = ? "
                "AND healthy AND deadline_s > ? AND deadline_s <= ?",
                (self._cluster, self._holder, self._boot, now_s, now_s + 2 * self.lease_s),
            )
            .fetchone()
        )
        return row is not None

    def _open(self) -> sqlite3.Connection:
        """The file that stands at the path now: a damaged journal is replaced by a new one."""
        if self._db is not None and self._at_path() != self._inode:
            self._close()
        if self._db is None:
            db = sqlite3.connect(
                self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            # A lease need not outlive the machine: what it loses then, a new boot ignores anyway.
            db.execute("PRAGMA synchronous = NORMAL")
            with contextlib.suppress(sqlite3.OperationalError):
                db.execute("PRAGMA journal_mode = WAL")
                db.executescript(TABLES)
            self._db, self._inode = db, self._at_path()
        return self._db

    def _at_path(self) -> int:
        with contextlib.suppress(OSError):
            return self._path.stat().st_ino
        return 0

    def _close(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return BOOT_ID.read_text().strip()
    return ""


def _namespace() -> str:
    with contextlib.suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def _started(pid: int) -> str:
    """When a process started, in ticks since boot; empty if there is none (a zombie is none)."""
    with contextlib.suppress(OSError, IndexError):
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if after_name[0] in "ZX" else after_name[19]
    return ""
