"""The command line as a user meets it: help, exit codes, errors without tracebacks."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from controller.cli import app
from controller.settings import Settings, load

runner = CliRunner()


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A command's log goes to the runner's stderr, which is closed when it ends."""
    yield
    structlog.reset_defaults()


NOWHERE = "serve: {url: 'http://127.0.0.1:1'}\nprometheus: {url: 'http://127.0.0.1:1'}\n"


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    path = tmp_path / "leadtime.yaml"
    path.write_text(NOWHERE + f"journal: {{path: {tmp_path / 'j.db'}}}\n")
    return path


def test_help_names_every_command() -> None:
    shown = runner.invoke(app, ["--help"]).output
    for command in ("run", "plan", "check", "demo", "init"):
        assert command in shown


@pytest.mark.parametrize("command", ["run", "plan", "check", "demo", "init"])
def test_every_command_has_help_with_exit_codes_or_options(command: str) -> None:
    result = runner.invoke(app, [command, "--help"])
    assert result.exit_code == 0


@pytest.mark.parametrize("command", ["run", "plan", "check"])
def test_a_wrong_setting_ends_with_2_and_a_line(command: str, tmp_path: Path) -> None:
    path = tmp_path / "leadtime.yaml"
    path.write_text("tik_s: 3")
    result = runner.invoke(app, [command, "--config", str(path)])
    assert result.exit_code == 2
    assert "tik_s: is no setting" in result.output
    assert "Traceback" not in result.output


def test_a_missing_file_ends_with_2(tmp_path: Path) -> None:
    result = runner.invoke(app, ["check", "--config", str(tmp_path / "none.yaml")])
    assert result.exit_code == 2
    assert "cannot be read" in result.output


def test_init_writes_the_defaults_once(tmp_path: Path) -> None:
    path = tmp_path / "leadtime.yaml"
    assert runner.invoke(app, ["init", str(path)]).exit_code == 0
    assert load(path) == Settings()
    path.write_text("mine")
    assert runner.invoke(app, ["init", str(path)]).exit_code == 2
    assert path.read_text() == "mine"
    assert runner.invoke(app, ["init", str(path), "--force"]).exit_code == 0


def test_check_says_what_does_not_answer(nowhere: Path) -> None:
    result = runner.invoke(app, ["check", "--config", str(nowhere), "--json"])
    assert result.exit_code == 1
    found = json.loads(result.output)
    assert not found["ok"]
    errors = [f["where"] for f in found["findings"] if f["severity"] == "error"]
    assert [where.split()[0] for where in errors] == ["serve.url", "prometheus.url"]


def test_plan_without_sources_ends_with_1_and_says_why(nowhere: Path) -> None:
    result = runner.invoke(app, ["plan", "--config", str(nowhere), "--json"])
    assert result.exit_code == 1
    said = json.loads(result.output)
    assert said["decisions"] == []
    assert "serve" in said["failures"][0]


def test_an_unusable_journal_ends_with_2(tmp_path: Path) -> None:
    path = tmp_path / "leadtime.yaml"
    path.write_text(NOWHERE + "journal: {path: /nowhere/at/all.db}\n")
    result = runner.invoke(app, ["run", "--config", str(path)])
    assert result.exit_code == 2
    assert "journal.path" in result.output


def test_the_daemon_imports_nothing_heavy() -> None:
    """numba, plotly, matplotlib, pandas, ray and scikit-learn stay out of the daemon."""
    code = (
        "import sys; import controller.wiring, controller.commands.run; "
        "heavy = {'numba', 'plotly', 'matplotlib', 'pandas', 'ray', 'torch', 'sklearn', 'scipy'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
