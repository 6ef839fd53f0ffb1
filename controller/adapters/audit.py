"""The record of changing requests: who asked for what, and what became of it."""

import sqlite3
from pathlib import Path
from typing import Any

KEPT = 100_000
TABLE = """
CREATE TABLE IF NOT EXISTS audit (
    at_s REAL NOT NULL,
    client TEXT NOT NULL,
    token TEXT NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    status INTEGER NOT NULL
)
"""
COLUMNS = ("at_s", "client", "token", "method", "path", "status")


class AuditTrail:
    """Rows in the journal's file. Of a token the begin of its hash is kept, never the token."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, timeout=2.0)
        self._db.execute(TABLE)

    def add(
        self, at_s: float, client: str, token: str, method: str, path: str, status: int
    ) -> None:
        """Keep one row; raises sqlite3.Error."""
        row = (at_s, client, token, method, path, status)
        self._db.execute("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?)", row)
        self._db.execute(
            "DELETE FROM audit WHERE rowid <= (SELECT max(rowid) FROM audit) - ?", (KEPT,)
        )

    def latest(self, limit: int = 100) -> list[dict[str, Any]]:
        """The latest rows, newest first."""
        chosen = f"SELECT {', '.join(COLUMNS)} FROM audit ORDER BY rowid DESC LIMIT ?"
        rows = self._db.execute(chosen, (limit,))
        return [dict(zip(COLUMNS, row, strict=True)) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._db.close()
