"""`leadtime journal export`."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.adapters.store import Journal
from controller.cli import app
from controller.core.types import Outcome, Tick
from controller.loop import wall_clock_s
from tests.core.worlds import TARGET, World, planner


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Four decisions of two hours ago and two of now, by a daemon that has the file open."""
    path = tmp_path / "leadtime.db"
    kept = Journal(path, 1e12, epoch=lambda: 3)
    live, made = World.with_replicas(3, at_s=wall_clock_s() - 7300), planner()
    for number in range(6):
        live.at_s += 7200 if number == 4 else 0
        decision = live.step(made)
        kept.record(Tick(live.at_s, ((decision, Outcome(decision.action, True, "")),), {}))
    return path


def exported(*arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["journal", "export", *arguments])
    return ran.exit_code, ran.output


def test_every_decision_comes_out_with_everything_oldest_first(journal: Path) -> None:
    code, output = exported("--journal", str(journal))
    rows = [json.loads(line) for line in output.splitlines()]
    assert (code, len(rows)) == (0, 6)
    assert [row["at_s"] for row in rows] == sorted(row["at_s"] for row in rows)
    assert rows[0]["epoch"] == 3
    assert rows[-1]["inputs"]["signals"]["arrivals"]["trust"] == "present"


def test_as_csv_into_a_file(journal: Path, tmp_path: Path) -> None:
    out = tmp_path / "decisions.csv"
    code, output = exported("--journal", str(journal), "--format", "csv", "--out", str(out))
    assert (code, "wrote 6 decisions" in output) == (0, True)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert {row["deployment"] for row in rows} == {TARGET.deployment}
    assert float(rows[2]["demand_rps"]) == pytest.approx(5.0)


def test_only_what_was_asked_for(journal: Path) -> None:
    mine = ("--deployment", str(TARGET))
    assert len(exported("--journal", str(journal), "--since", "1h")[1].splitlines()) == 2
    assert len(exported("--journal", str(journal), *mine)[1].splitlines()) == 6
    assert exported("--journal", str(journal), "--deployment", "app/other")[1] == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--since", "soon"), "is no duration"),
        (("--deployment", "llm"), "APP/DEPLOYMENT"),
        (("--format", "xml"), "jsonl or csv"),
        (("--journal", "/nowhere.db"), "is none"),
    ],
)
def test_a_wrong_option_is_named(journal: Path, arguments: tuple[str, str], said: str) -> None:
    code, output = exported("--journal", str(journal), *arguments)
    assert (code, said in output) == (2, True)
