"""The journal: every decision with its inputs and outcome, and what was learned. SQLite, WAL."""

import contextlib
import json
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from controller.adapters.store.file import (
    SCHEMA,
    JournalError,
    cause,
    connected,
    damaged,
    foreign,
    inode,
    problem_of,
    replace_damaged,
)
from controller.core.records import record
from controller.core.types import Decision, DeploymentId, Outcome, Tick

__all__ = ["SCHEMA", "Journal", "JournalError"]

PRUNE_EVERY_S = 3600.0
MOST_WAITING = 1000
INSERT = (
    "INSERT INTO decisions (at_s, application, deployment, reason, wanted, applied, body, epoch) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


class Companion(Protocol):
    """Whoever keeps something of a tick in the same transaction."""

    def within(self, journal: sqlite3.Connection, tick: Tick) -> None:
        """Write it, in the open transaction."""

    def kept(self) -> None:
        """The transaction was committed."""


class Journal:
    """One journal file; made if it is not there. Use from one thread at a time.

    Where the file cannot be written for now, ticks wait in memory, the latest thousand of them,
    and are written when it can be again. A file that is damaged is moved aside and replaced, with
    what can be read of it; `replaced` is then where it went. `renewed` tells that another file
    stands at the path than at the start, which whoever else uses it should open anew. Raises
    JournalError at the start if the path can never do. What `companion` keeps of a tick goes into
    the same transaction as the tick's decisions.
    """

    def __init__(
        self,
        path: Path,
        retention_s: float,
        companion: Companion | None = None,
        epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        self.companion = companion
        self.replaced: Path | None = None
        self.renewed = False
        self.problem = ""
        self._path = path
        self._retention_s = retention_s
        self._epoch = epoch
        self._pruned_s = float("-inf")
        self._waiting: deque[tuple[float, list[tuple[Any, ...]]]] = deque(maxlen=MOST_WAITING)
        self._learned: dict[DeploymentId, tuple[float, str]] = {}
        self._opened: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._begin()
        self.renewed = False

    @property
    def waiting(self) -> int:
        """Ticks that could not be written yet."""
        return len(self._waiting)

    def record(self, tick: Tick) -> None:
        """Keep a tick's decisions and what is learned so far, all or nothing, durable on return;
        raises JournalError where they have to wait."""
        rows = [_row(decision, outcome, self._epoch()) for decision, outcome in tick.decisions]
        learned = {target: json.dumps(body) for target, body in tick.learned.items()}
        self._waiting.append((tick.at_s, rows))
        self._learned.update({target: (tick.at_s, body) for target, body in learned.items()})
        try:
            self._write(tick)
        except sqlite3.Error as error:
            if not damaged(error):
                self._close()
                self._fail(error)
            self._replace(tick.at_s, str(error))
            self._retry()
        self.problem = ""

    def learned(self, target: DeploymentId) -> dict[str, Any] | None:
        """What was last learned of a deployment, or None; raises JournalError."""
        with self._read() as db:
            row = db.execute(
                "SELECT body FROM learned WHERE application = ? AND deployment = ?", target
            ).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def peak(self, target: DeploymentId, since_s: float) -> int | None:
        """The largest number wanted since then; None if nothing was decided. Raises
        JournalError."""
        with self._read() as db:
            row = db.execute(
                "SELECT max(wanted) FROM decisions WHERE application = ? AND deployment = ? "
                "AND at_s >= ?",
                (*target, since_s),
            ).fetchone()
        return None if row[0] is None else int(row[0])

    def decisions(
        self, target: DeploymentId | None = None, limit: int = 100, until_s: float | None = None
    ) -> list[dict[str, Any]]:
        """The latest decisions up to `until_s`, newest first; raises JournalError. Without
        `until_s` the last ones made, whatever the wall clock said: it may have been set back."""
        wanted, arguments, order = ["1"], list[str | float](target or ()), "rowid DESC"
        if target is not None:
            wanted.append("application = ? AND deployment = ?")
        if until_s is not None:
            wanted.append("at_s <= ?")
            arguments.append(until_s)
            order = "at_s DESC, rowid DESC"
        with self._read() as db:
            rows = db.execute(
                f"SELECT body FROM decisions WHERE {' AND '.join(wanted)} ORDER BY {order} LIMIT ?",
                (*arguments, limit),
            ).fetchall()
        return [json.loads(row[0]) for row in rows]

    def close(self) -> None:
        """Write what waits, if that is possible, and close the file."""
        with contextlib.suppress(sqlite3.Error, JournalError):
            self._write()
        self._close()

    def _begin(self) -> None:
        """Check and open the file. One that is only full, locked or read-only is tried again at
        each tick."""
        if not self._path.parent.is_dir() or self._path.is_dir() or foreign(self._path):
            raise JournalError(
                f"journal {self._path}: cannot be one; journal.path must be a file of our own in "
                "a folder that is there"
            )
        wrong = problem_of(self._path)
        try:
            if wrong:
                self._replace("start", wrong)
            self._db()
        except sqlite3.Error as error:
            if damaged(error):
                self._replace("start", str(error))
            self.problem = cause(self._path, error)

    def _write(self, tick: Tick | None = None) -> None:
        """Write what waits, and what the companion has of `tick`."""
        if not self._waiting:
            return
        db = self._db()
        with db:
            db.execute("BEGIN IMMEDIATE")
            for _, rows in self._waiting:
                db.executemany(INSERT, rows)
            db.executemany(
                "INSERT OR REPLACE INTO learned VALUES (?, ?, ?, ?)",
                [(*target, *learned) for target, learned in self._learned.items()],
            )
            if self.companion is not None and tick is not None:
                self.companion.within(db, tick)
            at_s = self._waiting[-1][0]
            if abs(at_s - self._pruned_s) >= PRUNE_EVERY_S:
                db.execute("DELETE FROM decisions WHERE at_s < ?", (at_s - self._retention_s,))
                self._pruned_s = at_s
        self._waiting.clear()
        self._learned.clear()
        if self.companion is not None:
            self.companion.kept()

    def _retry(self) -> None:
        try:
            self._write()
        except sqlite3.Error as error:
            self._fail(error)

    def _replace(self, suffix: object, why: str) -> None:
        """Go on with a new file. Raises JournalError where there can be none now."""
        self._close()
        name = suffix if isinstance(suffix, str) else f"{float(str(suffix)):.0f}"
        try:
            self._opened, self.replaced = replace_damaged(self._path, name)
            self._inode, self.renewed = inode(self._path), True
        except (OSError, sqlite3.Error) as error:
            self._fail(error)
        self.problem = f"was damaged ({why}) and is kept as {self.replaced}"

    def _fail(self, error: Exception) -> None:
        self.problem = cause(self._path, error)
        raise JournalError(
            f"journal {self._path}: {self.problem}; {self.waiting} ticks wait to be written"
        ) from error

    @contextlib.contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._db()
        except sqlite3.Error as error:
            raise JournalError(f"journal {self._path}: {error}") from error

    def _db(self) -> sqlite3.Connection:
        """The file that is at the path now: one that was taken away would be written in vain."""
        if self._opened is not None and inode(self._path) != self._inode:
            self._close()
            self.renewed = True
        if self._opened is None:
            self._opened = connected(self._path)
            self._inode = inode(self._path)
        return self._opened

    def _close(self) -> None:
        if self._opened is not None:
            with contextlib.suppress(sqlite3.Error):
                self._opened.close()
            self._opened = None


def _row(decision: Decision, outcome: Outcome, epoch: int) -> tuple[Any, ...]:
    body = record(decision, outcome)
    return (
        body["at_s"],
        *decision.target,
        body["reason"],
        body["wanted"],
        int(outcome.applied),
        json.dumps(body),
        epoch,
    )
