"""The outbox: notices waiting to be delivered, in the journal's file, one row a sink."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.core.notices import Kind, Notice
from controller.core.types import Tick

MOST_WAITING = 10_000
TABLES = """
CREATE TABLE IF NOT EXISTS outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    sink TEXT NOT NULL,
    id TEXT NOT NULL,
    body TEXT NOT NULL,
    created_s REAL NOT NULL,
    due_s REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    UNIQUE (sink, id)
);
CREATE INDEX IF NOT EXISTS outbox_by_due ON outbox (sink, dead, due_s);
"""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which notices a sink gets; empty sets let all through."""

    sink: str
    kinds: frozenset[Kind] = frozenset()
    applications: frozenset[str] = frozenset()

    def passes(self, notice: Notice) -> bool:
        """Whether the sink gets it. What concerns no deployment passes every application."""
        application = None if notice.target is None else notice.target.application
        return (not self.kinds or notice.kind in self.kinds) and (
            not self.applications or application is None or application in self.applications
        )


@dataclass(frozen=True, slots=True)
class Letter:
    """A notice on its way to one sink."""

    seq: int
    notice: Notice
    created_s: float
    tries: int


class Outbox:
    """Notices of each tick, kept in the same transaction as its decisions, until delivered.

    `wake` is called when something was put in. Methods raise sqlite3.Error.
    """

    def __init__(
        self,
        path: Path,
        filters: Sequence[Filter],
        notices: Callable[[Tick], list[Notice]],
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._filters = filters
        self._notices = notices
        self.wake = wake
        self._untold: list[Notice] = []
        self._db = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.executescript(TABLES)

    def within(self, journal: sqlite3.Connection, tick: Tick) -> None:
        """Put a tick's notices in, in the journal's open transaction. What such a transaction
        could not keep goes into the next."""
        self._untold += self._notices(tick)
        self._put(journal, self._untold)

    def kept(self) -> None:
        """The transaction was committed."""
        if self._untold:
            self._untold.clear()
            self.wake()

    def publish(self, notices: Iterable[Notice]) -> None:
        """Put in notices that come from no tick."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._put(self._db, notices)
        self.wake()

    def next(self, sink: str, now_s: float) -> Letter | None:
        """The oldest letter that is due."""
        row = self._db.execute(
            "SELECT seq, body, created_s, tries FROM outbox WHERE sink = ? AND NOT dead AND "
            "due_s <= ? ORDER BY seq LIMIT 1",
            (sink, now_s),
        ).fetchone()
        if row is None:
            return None
        return Letter(row[0], Notice.of(json.loads(row[1])), row[2], row[3])

    def due_s(self, sink: str) -> float | None:
        """When the next letter is due; None without one."""
        row = self._db.execute(
            "SELECT min(due_s) FROM outbox WHERE sink = ? AND NOT dead", (sink,)
        ).fetchone()
        return None if row[0] is None else float(row[0])

    def delivered(self, letter: Letter) -> None:
        """Take a letter out."""
        self._db.execute("DELETE FROM outbox WHERE seq = ?", (letter.seq,))

    def failed(self, letter: Letter, due_s: float, error: str) -> None:
        """Try a letter again at `due_s`."""
        self._db.execute(
            "UPDATE outbox SET tries = tries + 1, due_s = ?, error = ? WHERE seq = ?",
            (due_s, error, letter.seq),
        )

    def revive(self, sink: str, now_s: float) -> None:
        """Have all that waits for a sink due now."""
        self._db.execute(
            "UPDATE outbox SET due_s = ? WHERE sink = ? AND NOT dead AND due_s > ?",
            (now_s, sink, now_s),
        )

    def bury(self, letter: Letter, error: str) -> None:
        """Try a letter no more; it stays in the file until `prune`."""
        self._db.execute(
            "UPDATE outbox SET tries = tries + 1, dead = 1, error = ? WHERE seq = ?",
            (error, letter.seq),
        )

    def waiting(self, sink: str) -> tuple[int, int]:
        """Letters waiting, and dead ones."""
        row = self._db.execute(
            "SELECT count(*), coalesce(sum(dead), 0) FROM outbox WHERE sink = ?", (sink,)
        ).fetchone()
        return row[0] - row[1], row[1]

    def prune(self, before_s: float) -> None:
        """Drop dead letters made before a time, and letters of sinks that are no more."""
        sinks = [each.sink for each in self._filters]
        marks = ", ".join("?" for _ in sinks)
        self._db.execute(
            f"DELETE FROM outbox WHERE created_s < ? AND (dead OR sink NOT IN ({marks}))",
            (before_s, *sinks),
        )

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _put(self, db: sqlite3.Connection, notices: Iterable[Notice]) -> None:
        rows = [
            (each.sink, notice.id, json.dumps(notice.plain()), notice.at_s, notice.at_s)
            for notice in notices
            for each in self._filters
            if each.passes(notice)
        ]
        if not rows:
            return
        db.executemany(
            "INSERT OR IGNORE INTO outbox (sink, id, body, created_s, due_s) "
            "VALUES (?, ?, ?, ?, ?)",
            rows,
        )
        for sink in {row[0] for row in rows}:
            db.execute(
                "UPDATE outbox SET dead = 1, error = 'too many waiting' WHERE sink = ? AND "
                "NOT dead AND seq <= (SELECT max(seq) FROM outbox) - ?",
                (sink, MOST_WAITING * len(self._filters)),
            )
