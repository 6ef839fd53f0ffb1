"""The overrides in force and those that were, kept in the journal's file."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from controller.core.overrides import Effect, Override, boosted_by
from controller.core.types import DeploymentId, Tick

BUSY_S = 5.0
HOUR_S = 3600.0
BUDGET_HOURS = 24
LONGEST_TICK_S = 60.0
TABLES = """
CREATE TABLE IF NOT EXISTS overrides (
    application TEXT NOT NULL,
    deployment TEXT NOT NULL,
    id TEXT NOT NULL,
    from_s REAL NOT NULL,
    until_s REAL NOT NULL,
    body TEXT NOT NULL,
    ended_s REAL,
    ended_why TEXT
);
CREATE INDEX IF NOT EXISTS overrides_by_end ON overrides (ended_s, until_s);
CREATE TABLE IF NOT EXISTS boosts (hour INTEGER PRIMARY KEY, replica_s REAL NOT NULL);
"""


class Overrides:
    """Overrides by deployment, durable before a call returns; use from one thread at a time.

    Every one stays in the file, with when and why it ended, until `prune`. All methods raise
    sqlite3.Error where the file cannot be used; nothing has changed then. As a recorder it adds
    up what boosts cost; once they have had `boost_budget_s` replica-seconds in 24 hours they are
    given out no more, until they are below it again.
    """

    def __init__(self, path: Path, boost_budget_s: float = float("inf")) -> None:
        self._boost_budget_s = boost_budget_s
        self._ticked_s: float | None = None
        self.boosted_s = 0.0
        self._db = sqlite3.connect(
            path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(TABLES)
        self._live: dict[tuple[DeploymentId, str], Override] = {}
        self.reload()

    def reload(self) -> None:
        """Read again what another process may have changed."""
        self._live.clear()
        rows = self._db.execute(
            "SELECT application, deployment, id, body FROM overrides WHERE ended_s IS NULL"
        )
        for application, deployment, key, body in rows:
            override = Override.of(json.loads(body))
            self._live[DeploymentId(application, deployment), key] = override
        newest = self._db.execute("SELECT max(hour) FROM boosts").fetchone()[0]
        if newest is not None:
            self.boosted_s = self._boosted_s(newest)

    @property
    def boosts_spent(self) -> bool:
        """Whether boosts have had their budget."""
        return self.boosted_s >= self._boost_budget_s

    def record(self, tick: Tick) -> None:
        """Add up what boosts cost since the tick before."""
        before_s, self._ticked_s = self._ticked_s, tick.at_s
        elapsed_s = 0.0 if before_s is None else min(tick.at_s - before_s, LONGEST_TICK_S)
        extra = sum(boosted_by(decision.plan) for decision, _ in tick.decisions)
        hour = int(tick.at_s // HOUR_S)
        if extra > 0 and elapsed_s > 0:
            self._db.execute(
                "INSERT INTO boosts VALUES (?, ?) ON CONFLICT (hour) "
                "DO UPDATE SET replica_s = replica_s + excluded.replica_s",
                (hour, extra * elapsed_s),
            )
        if self.boosted_s or extra:
            self.boosted_s = self._boosted_s(hour)

    def put(self, target: DeploymentId, override: Override) -> None:
        """Have an override; one of the same id is replaced."""
        row = (*target, override.id, override.from_s, override.until_s)
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._end(target, override.id, override.from_s, "replaced")
            self._db.execute(
                "INSERT INTO overrides VALUES (?, ?, ?, ?, ?, ?, NULL, NULL)",
                (*row, json.dumps(override.plain())),
            )
        self._live[target, override.id] = override

    def revoke(self, target: DeploymentId, key: str, at_s: float, why: str) -> bool:
        """End an override now; False if there is none of that id in force."""
        if (target, key) not in self._live:
            return False
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._end(target, key, at_s, why)
        ended = self._live.pop((target, key))
        return at_s < ended.until_s

    def of(self, target: DeploymentId, at_s: float) -> tuple[Override, ...]:
        """Those of a deployment that have not ended at `at_s`; no boosts once these are spent."""
        return tuple(
            override
            for (owner, _), override in self._live.items()
            if owner == target
            and at_s < override.until_s
            and not (self.boosts_spent and override.effect is Effect.BOOST)
        )

    def bearers(self, key: str) -> list[DeploymentId]:
        """The deployments that have an override of that id."""
        return [owner for owner, each in self._live if each == key]

    def all(self, at_s: float) -> dict[DeploymentId, tuple[Override, ...]]:
        """Those that have not ended, by deployment."""
        return {target: self.of(target, at_s) for target in {owner for owner, _ in self._live}}

    def past(self, target: DeploymentId, limit: int = 100) -> list[dict[str, Any]]:
        """Overrides of a deployment, ended ones included, newest first, as plain values with
        `ended_s` and `ended_why`."""
        rows = self._db.execute(
            "SELECT body, ended_s, ended_why FROM overrides WHERE application = ? AND "
            "deployment = ? ORDER BY from_s DESC, rowid DESC LIMIT ?",
            (*target, limit),
        )
        return [
            {**json.loads(body), "ended_s": ended_s, "ended_why": why}
            for body, ended_s, why in rows
        ]

    def prune(self, at_s: float, retention_s: float) -> None:
        """Note those that have run out as ended, and drop what ended long ago."""
        self._live = {
            key: override for key, override in self._live.items() if at_s < override.until_s
        }
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                "UPDATE overrides SET ended_s = until_s, ended_why = 'ran out' "
                "WHERE ended_s IS NULL AND until_s <= ?",
                (at_s,),
            )
            self._db.execute("DELETE FROM overrides WHERE ended_s < ?", (at_s - retention_s,))
            self._db.execute("DELETE FROM boosts WHERE hour < ?", (at_s // HOUR_S - BUDGET_HOURS,))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _boosted_s(self, hour: int) -> float:
        row = self._db.execute(
            "SELECT coalesce(sum(replica_s), 0) FROM boosts WHERE hour > ?", (hour - BUDGET_HOURS,)
        ).fetchone()
        return float(row[0])

    def _end(self, target: DeploymentId, key: str, at_s: float, why: str) -> None:
        self._db.execute(
            "UPDATE overrides SET ended_s = min(?, until_s), ended_why = ? WHERE "
            "application = ? AND deployment = ? AND id = ? AND ended_s IS NULL",
            (at_s, why, *target, key),
        )
