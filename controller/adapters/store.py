"""The journal: every decision with its inputs and outcome, and what was learned. SQLite, WAL."""

import json
import sqlite3
from pathlib import Path
from typing import Any, Protocol

from controller.core.records import record
from controller.core.types import Decision, DeploymentId, Outcome, Tick

SCHEMA = 1
PRUNE_EVERY_S = 3600.0
TABLES = """
CREATE TABLE IF NOT EXISTS decisions (
    at_s REAL NOT NULL,
    application TEXT NOT NULL,
    deployment TEXT NOT NULL,
    reason TEXT NOT NULL,
    wanted INTEGER NOT NULL,
    applied INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS decisions_by_deployment ON decisions (application, deployment, at_s);
CREATE INDEX IF NOT EXISTS decisions_by_time ON decisions (at_s);
CREATE TABLE IF NOT EXISTS learned (
    application TEXT NOT NULL,
    deployment TEXT NOT NULL,
    at_s REAL NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (application, deployment)
);
"""


class JournalError(RuntimeError):
    """The journal cannot be used; the message names the file and what to do."""


class Companion(Protocol):
    """Whoever keeps something of a tick in the same transaction."""

    def within(self, journal: sqlite3.Connection, tick: Tick) -> None:
        """Write it, in the open transaction."""

    def kept(self) -> None:
        """The transaction was committed."""


class Journal:
    """One open journal file; made if it is not there. Use from one thread at a time. What
    `companion` keeps of a tick is there exactly if the tick's decisions are."""

    def __init__(self, path: Path, retention_s: float, companion: Companion | None = None) -> None:
        self.companion = companion
        self._path = path
        self._retention_s = retention_s
        self._pruned_s = float("-inf")
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            self._db.executescript(TABLES)
            self._db.execute(f"PRAGMA user_version = {SCHEMA}")
        except sqlite3.Error as error:
            raise JournalError(
                f"journal {path}: {error}; journal.path must be a file in a folder we may write to"
            ) from error
        if version > SCHEMA:
            raise JournalError(
                f"journal {path} was written by a newer version (schema {version}, ours {SCHEMA}); "
                "use that version, or another journal.path"
            )

    def record(self, tick: Tick) -> None:
        """Keep a tick's decisions and what is learned so far, all or nothing; raises
        JournalError."""
        at_s = tick.at_s
        try:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany(
                    "INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?)",
                    [_row(decision, outcome) for decision, outcome in tick.decisions],
                )
                self._db.executemany(
                    "INSERT OR REPLACE INTO learned VALUES (?, ?, ?, ?)",
                    [(*target, at_s, json.dumps(body)) for target, body in tick.learned.items()],
                )
                if self.companion is not None:
                    self.companion.within(self._db, tick)
                if at_s - self._pruned_s >= PRUNE_EVERY_S:
                    self._db.execute(
                        "DELETE FROM decisions WHERE at_s < ?", (at_s - self._retention_s,)
                    )
                    self._pruned_s = at_s
        except sqlite3.Error as error:
            raise JournalError(f"journal {self._path}: {error}") from error
        if self.companion is not None:
            self.companion.kept()

    def learned(self, target: DeploymentId) -> dict[str, Any] | None:
        """What was last learned of a deployment, or None."""
        row = self._db.execute(
            "SELECT body FROM learned WHERE application = ? AND deployment = ?", target
        ).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def decisions(
        self, target: DeploymentId | None = None, limit: int = 100, until_s: float | None = None
    ) -> list[dict[str, Any]]:
        """The latest decisions up to `until_s`, newest first."""
        wanted, values = ["at_s <= ?"], [9e99 if until_s is None else until_s]
        arguments: list[Any] = list(values)
        if target is not None:
            wanted.append("application = ? AND deployment = ?")
            arguments += target
        rows = self._db.execute(
            f"SELECT body FROM decisions WHERE {' AND '.join(wanted)} "
            "ORDER BY at_s DESC, rowid DESC LIMIT ?",
            (*arguments, limit),
        ).fetchall()
        return [json.loads(row[0]) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _row(decision: Decision, outcome: Outcome) -> tuple[Any, ...]:
    body = record(decision, outcome)
    return (
        body["at_s"],
        *decision.target,
        body["reason"],
        body["wanted"],
        int(outcome.applied),
        json.dumps(body),
    )
