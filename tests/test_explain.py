"""`leadtime explain`: from the journal beside the daemon, or from the daemon."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from controller.adapters.store import Journal
from controller.cli import app
from controller.commands.explain import target_of, time_of
from controller.core.types import DeploymentId, Outcome, Tick
from controller.settings import SettingsError
from tests.adapters.fake_server import Answer, serving
from tests.core.worlds import START_S, TARGET, World, planner

NAME = str(TARGET)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A settings file whose journal holds 90 decisions."""
    path = tmp_path / "leadtime.db"
    journal, live, made = Journal(path, 86_400.0), World.with_replicas(4, rate_rps=12), planner()
    for _ in range(90):
        decision = live.step(made)
        outcome = Outcome(decision.action, True, "target 4")
        journal.record(Tick(live.at_s, ((decision, outcome),), {}))
    journal.close()
    file = tmp_path / "leadtime.yaml"
    file.write_text(yaml.safe_dump({"journal": {"path": str(path), "retention_days": 3650}}))
    return file


def explain(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["explain", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_it_explains_the_latest_decision(config: Path) -> None:
    code, said, _ = explain(NAME, "--config", str(config), "--json")
    assert code == 0
    found = json.loads(said)
    assert found["at_s"] == START_S + 900
    assert found["guards"][-1]["after"] == found["wanted"]


def test_it_explains_a_decision_of_then(config: Path) -> None:
    then = datetime.fromtimestamp(START_S + 455, UTC).isoformat()
    code, said, _ = explain(NAME, "--config", str(config), "--at", then, "--json")
    assert code == 0
    assert (json.loads(said)["at_s"], json.loads(said)["age_s"]) == (START_S + 450, 5.0)


def test_it_can_be_read(config: Path) -> None:
    code, said, _ = explain(NAME, "--config", str(config))
    assert code == 0
    for part in (
        "app/llm at",
        "ready ",
        "kept_for_one_lead",
        "arrivals",
        "A replica carries",
        "Model location_scale",
    ):
        assert part in said
    assert "Model location_scale at 1 x the price: the default" in " ".join(said.split())
    assert "times the expected load" in " ".join(said.split())


def test_what_is_not_there_is_said(config: Path) -> None:
    code, _, said = explain("app/other", "--config", str(config))
    assert code == 1
    assert "no decision on app/other" in " ".join(said.split())
    assert "app/llm" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("llm",), "APPLICATION/DEPLOYMENT", id="no application"),
        pytest.param(("app/llm", "--at", "yesterday"), "--at yesterday", id="no time"),
        pytest.param(("app/llm", "--url", "http://127.0.0.1:1"), "--url", id="no daemon there"),
    ],
)
def test_wrong_input_is_named(config: Path, arguments: tuple[str, ...], said: str) -> None:
    code, _, error = explain(*arguments, "--config", str(config))
    assert code == 2
    assert said in error


def test_a_journal_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "leadtime.yaml"
    file.write_text(yaml.safe_dump({"journal": {"path": str(tmp_path / "none.db")}}))
    code, _, error = explain(NAME, "--config", str(file))
    assert code == 2
    assert "journal.path" in error
    assert not (tmp_path / "none.db").exists()


def test_it_asks_a_daemon(config: Path) -> None:
    _, known, _ = explain(NAME, "--config", str(config), "--json")

    def answer(path: str, asked: dict[str, str]) -> Answer:
        right = path == "/api/v1/explain" and asked["deployment"] == "llm"
        body = known if right else json.dumps({"error": f"no {path}"})
        return (200 if right else 404), "application/json", body.encode()

    with serving(answer) as fake:
        code, said, _ = explain(NAME, "--url", fake.url, "--json")
        assert (code, json.loads(said)) == (0, json.loads(known))
        code, _, error = explain("app/other", "--url", fake.url)
        assert (code, "no /api/v1/explain" in error) == (1, True)


def test_times() -> None:
    assert time_of("10m", 1000.0) == 400.0
    assert time_of("1970-01-01T00:01:00", 0.0) == 60.0
    assert time_of("1970-01-01T01:01:00+01:00", 0.0) == 60.0
    with pytest.raises(SettingsError, match="10m"):
        time_of("10 minutes", 0.0)
    assert target_of("app/a/b") == DeploymentId("app", "a/b")
