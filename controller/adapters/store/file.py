"""The journal's file: opened, checked, brought up to date, and replaced where it is damaged."""

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

BUSY_S = 2.0
CHECK_PATIENCE_S = 10.0
CHECK_STEPS = 100_000
FULL_BYTES = 200_000
MAGIC = b"SQLite format 3\x00"
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
SALVAGED = ("learned", "overrides", "boosts", "outbox", "audit")
SALVAGED_DECISIONS = 10_000

# A step a schema version, never changed once released.
MIGRATIONS: tuple[Sequence[str], ...] = (
    (
        "CREATE TABLE IF NOT EXISTS decisions (at_s REAL NOT NULL, application TEXT NOT NULL, "
        "deployment TEXT NOT NULL, reason TEXT NOT NULL, wanted INTEGER NOT NULL, "
        "applied INTEGER NOT NULL, body TEXT NOT NULL)",
        "CREATE INDEX IF NOT EXISTS decisions_by_deployment ON decisions "
        "(application, deployment, at_s)",
        "CREATE INDEX IF NOT EXISTS decisions_by_time ON decisions (at_s)",
        "CREATE TABLE IF NOT EXISTS learned (application TEXT NOT NULL, deployment TEXT NOT NULL, "
        "at_s REAL NOT NULL, body TEXT NOT NULL, PRIMARY KEY (application, deployment))",
    ),
    ("ALTER TABLE decisions ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0",),
)
SCHEMA = len(MIGRATIONS)


class JournalError(RuntimeError):
    """The journal cannot be used; the message names the file and what to do."""


def damaged(error: sqlite3.Error) -> bool:
    """Whether the file itself is broken, and not only full, locked or read-only."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in DAMAGE


def cause(path: Path, error: Exception) -> str:
    """What stands in the way, in words that help: SQLite says "disk I/O error" of much."""
    with contextlib.suppress(OSError):
        disk = os.statvfs(path.parent)
        if disk.f_flag & os.ST_RDONLY:
            return f"its disk is mounted read-only ({error})"
        if disk.f_bavail * disk.f_frsize < FULL_BYTES:
            return f"its disk is full ({error})"
    return str(error)


def connected(path: Path) -> sqlite3.Connection:
    """The file at `path`, made if it is not there, at our schema; raises sqlite3.Error, or
    JournalError where a newer version wrote it."""
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        migrate(db, path)
    except BaseException:
        db.close()
        raise
    return db


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to ours, whole or not at all."""
    if _version(db) == SCHEMA:
        return
    with db:
        db.execute("BEGIN IMMEDIATE")
        version = _version(db)
        if version > SCHEMA:
            raise JournalError(
                f"journal {path} was written by a newer version (schema {version}, ours {SCHEMA}); "
                "use that version, or another journal.path"
            )
        for step in MIGRATIONS[version:]:
            for statement in step:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA}")


def problem_of(path: Path) -> str:
    """What an integrity check finds wrong with the file; empty if nothing, or if it is not there.

    It is given 10 s: a journal of a month is checked in less.
    """
    if not path.exists() or path.stat().st_size == 0:
        return ""
    db = sqlite3.connect(path, timeout=BUSY_S)
    deadline_s = monotonic() + CHECK_PATIENCE_S
    db.set_progress_handler(lambda: int(monotonic() > deadline_s), CHECK_STEPS)
    try:
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        return "" if found == "ok" else str(found)
    except sqlite3.Error as error:
        return str(error) if damaged(error) else ""
    finally:
        db.close()


def inode(path: Path) -> int | None:
    """Which file is at the path; None if none is."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


def foreign(path: Path) -> bool:
    """Whether the file is something else than a journal, damaged or not: it is not touched."""
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
    except OSError:
        return False
    return bool(head.strip(b"\x00")) and head != MAGIC


def replace_damaged(path: Path, suffix: str) -> tuple[sqlite3.Connection, Path]:
    """Move a damaged journal aside, begin a new one and take over what can be read of the old:
    what was learned, overrides, waiting events and the latest decisions."""
    aside = path.with_name(f"{path.name}.damaged-{suffix}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{suffix}-{number}")
    path.rename(aside)
    for extra in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + extra).rename(aside.with_name(aside.name + extra))
    db = connected(path)
    for table in SALVAGED:
        _salvage(aside, db, table, f"SELECT * FROM {table}")
    latest = f"SELECT * FROM decisions ORDER BY rowid DESC LIMIT {SALVAGED_DECISIONS}"
    _salvage(aside, db, "decisions", f"SELECT * FROM ({latest}) ORDER BY at_s")
    return db, aside


def _salvage(aside: Path, db: sqlite3.Connection, table: str, query: str) -> None:
    """Copy rows one by one, up to the first that cannot be read."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(aside)) as old:
        made = old.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
        ).fetchone()
        if made is not None:
            with contextlib.suppress(sqlite3.OperationalError):
                db.execute(made[0])
        rows = old.execute(query)
        names = [column[0] for column in rows.description]
        places = ", ".join("?" * len(names))
        insert = f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({places})"
        with db:
            db.execute("BEGIN IMMEDIATE")
            with contextlib.suppress(sqlite3.DatabaseError):
                for row in rows:
                    db.execute(insert, row)


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
