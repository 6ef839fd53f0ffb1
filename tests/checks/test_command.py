"""`leadtime check` as a pipeline meets it: its JSON, its table, its exit code."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from controller.cli import app
from controller.settings import Settings
from tests.checks.servers import recorded

runner = CliRunner()


def only_sound(answers: dict[str, Any]) -> None:
    applications = answers["applications"]["applications"]
    for name in set(applications) - {"sound"}:
        del applications[name]
    answers["placement_groups"]["data"]["result"]["result"] = []


def written(settings: Settings, path: Path, **more: Any) -> Path:
    said = settings.model_dump(mode="json", exclude_unset=True)
    config = path / "leadtime.yaml"
    config.write_text(yaml.safe_dump({**said, **more}))
    return config


def test_a_mistake_ends_with_1_and_json_names_it(tmp_path: Path) -> None:
    with recorded() as settings:
        config = written(settings, tmp_path)
        result = runner.invoke(app, ["check", "--config", str(config), "--json"])
    assert result.exit_code == 1
    said = json.loads(result.output)
    assert said["ok"] is False
    [finding] = [f for f in said["findings"] if f["rule"] == "cut_streams"]
    assert finding["severity"] == "error"
    assert finding["where"] == "hasty/Model"
    assert "graceful_shutdown_timeout_s" in finding["fix"]
    ranks = [("error", "warning", "info").index(f["severity"]) for f in said["findings"]]
    assert ranks == sorted(ranks), "the worst come first"


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 1)])
def test_warnings_fail_only_where_asked(tmp_path: Path, options: list[str], code: int) -> None:
    with recorded(only_sound) as settings:
        config = written(settings, tmp_path)
        result = runner.invoke(app, ["check", "--config", str(config), *options])
    assert result.exit_code == code, result.output
    assert "0 error" in result.output


def test_the_table_shows_rule_reason_and_fix(tmp_path: Path) -> None:
    with recorded() as settings:
        config = written(settings, tmp_path)
        result = runner.invoke(app, ["check", "-c", str(config)], env={"COLUMNS": "250"})
    assert "initial_replicas_set" in result.output
    assert "remove initial_replicas" in result.output
