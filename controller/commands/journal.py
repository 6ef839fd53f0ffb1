"""`leadtime journal export`: the decisions of a journal, while a daemon writes it or after."""

import csv
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import IO, Any

from controller.adapters.store.file import JournalError, foreign
from controller.commands.recordings import LoadError, duration_s
from controller.loop import wall_clock_s
from controller.settings import SettingsError, load

COLUMNS = (
    "at_s",
    "application",
    "deployment",
    "reason",
    "wanted",
    "requested",
    "ready",
    "setpoint",
    "action",
    "applied",
    "detail",
    "demand_rps",
    "lead_s",
    "capacity_rps",
    "epoch",
)


def export(
    config: Path | None,
    journal: Path | None,
    since: str | None,
    target: str | None,
    style: str,
    out: Path | None,
) -> int:
    """Write decisions, oldest first, as JSON lines with everything or as CSV with the numbers."""
    path = journal or load(config).journal.path
    since_s = float("-inf") if since is None else wall_clock_s() - _seconds(since)
    application, slash, deployment = (target or "").partition("/")
    if target is not None and not (application and slash and deployment):
        raise SettingsError(f"--deployment: write it as APP/DEPLOYMENT, not {target!r}")
    if style not in ("jsonl", "csv"):
        raise SettingsError(f"--format: jsonl or csv, not {style!r}")
    if not path.is_file() or foreign(path):
        raise JournalError(f"journal {path}: is none; name one by --journal or journal.path")
    chosen = (since_s, application, deployment) if target else (since_s,)
    try:
        with out.open("w", encoding="utf-8", newline="") if out else nullcontext(sys.stdout) as to:
            count = _write(_decisions(path, chosen), style, to)
    except sqlite3.Error as error:
        raise JournalError(f"journal {path}: {error}") from error
    if out is not None:
        print(f"wrote {count} decisions to {out}", file=sys.stderr)
    return 0


def _seconds(since: str) -> float:
    try:
        return duration_s("--since", since)
    except LoadError as error:
        raise SettingsError(str(error)) from error


def _decisions(path: Path, chosen: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """Read as they are written out: a journal of a month does not go into memory."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(decisions)")]
        epoch = "epoch" if "epoch" in columns else "0"
        where = "at_s >= ?" + " AND application = ? AND deployment = ?" * (len(chosen) > 1)
        query = f"SELECT body, {epoch} FROM decisions WHERE {where} ORDER BY at_s, rowid"
        for body, by in db.execute(query, chosen):
            yield {**json.loads(body), "epoch": by}


def _write(decisions: Iterator[dict[str, Any]], style: str, to: IO[str]) -> int:
    count = 0
    table = csv.DictWriter(to, COLUMNS, extrasaction="ignore")
    if style == "csv":
        table.writeheader()
    for count, decision in enumerate(decisions, 1):  # noqa: B007
        if style == "csv":
            table.writerow({**decision, **decision.get("inputs", {})})
        else:
            to.write(json.dumps(decision) + "\n")
    return count
