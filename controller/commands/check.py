"""`leadtime check`: whether everything is there to scale, and fit for production."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from controller.checks.findings import SEVERITIES, Finding
from controller.checks.inspect import inspect
from controller.checks.rules import judge
from controller.settings import load

STYLE = {"error": "bold red", "warning": "yellow", "info": "green"}


def check_all(config: Path | None, as_json: bool, strict: bool = False) -> int:
    """Print every finding; 1 if one of them is an error (or, strict, a warning), else 0."""
    found = list(judge(asyncio.run(inspect(load(config)))))
    found.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    failing = ("error", "warning") if strict else ("error",)
    failed = any(finding.severity in failing for finding in found)
    if as_json:
        print(json.dumps({"ok": not failed, "findings": [asdict(f) for f in found]}, indent=2))
    else:
        _show(found)
    return int(failed)


def _show(findings: Sequence[Finding]) -> None:
    table = Table("", "where", "rule", "why", "fix", show_lines=False)
    for finding in findings:
        style = STYLE[finding.severity]
        cells = (finding.where, finding.rule, finding.reason, finding.fix)
        table.add_row(f"[{style}]{finding.severity}[/]", *map(_plain, cells))
    console = Console()
    console.print(table)
    counts = {s: sum(finding.severity == s for finding in findings) for s in SEVERITIES}
    console.print(", ".join(f"{count} {severity}" for severity, count in counts.items()))


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
