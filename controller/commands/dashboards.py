"""What `leadtime dashboards` does."""

import json
import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import typer

from controller.adapters.grafana import Grafana, GrafanaError

DIFF_LINES = 40


def push(
    grafana: str,
    prometheus: str | None,
    runbook: str | None,
    token_file: Path | None,
    dry_run: bool,
) -> int:
    """Put the shipped dashboards into a Grafana; with `dry_run` say what would change.

    Returns 0 when done, 1 when Grafana refused or does not answer, 2 for wrong input.
    """
    try:
        token = _token(token_file)
        target = Grafana(grafana, token)
    except (GrafanaError, OSError) as error:
        typer.echo(str(error), err=True)
        return 2
    try:
        changes = target.changes([*shipped(runbook)], prometheus)
        for change in changes:
            typer.echo(f"{'would change' if dry_run else 'changing'} {change.what}")
            if dry_run:
                _tell(change.diff)
            else:
                change.carry_out()
    except GrafanaError as error:
        typer.echo(str(error), err=True)
        return 1
    typer.echo(f"{len(changes)} to change" if dry_run else f"{len(changes)} changed")
    return 0


def shipped(runbook: str | None = None) -> Iterator[dict[str, Any]]:
    """The dashboards of this version, with links to where you keep the runbook."""
    folder = resources.files("dashboards") / "json"
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        dashboard: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for variable in dashboard["templating"]["list"]:
            if runbook is not None and variable["name"] == "runbook":
                variable["query"] = runbook
        yield dashboard


def _token(token_file: Path | None) -> str | None:
    if token_file is not None:
        return token_file.read_text(encoding="utf-8").strip()
    return os.environ.get("GRAFANA_TOKEN")


def _tell(diff: tuple[str, ...]) -> None:
    for line in diff[:DIFF_LINES]:
        typer.echo(f"  {line}")
    if len(diff) > DIFF_LINES:
        typer.echo(f"  … {len(diff) - DIFF_LINES} more lines")
