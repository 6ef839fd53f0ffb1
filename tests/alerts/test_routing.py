"""Alertmanager: amtool accepts it, each alert reaches who it should, causes silence followers."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import generate
from alerts.generate import ALERTS

needs_amtool = pytest.mark.skipif(
    shutil.which("amtool") is None, reason="amtool is not installed: make setup"
)
NAMES = {alert.name for alert in ALERTS}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "alertmanager.yml"
    path.write_text(generate.render_alertmanager())
    return path


def amtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["amtool", *arguments], capture_output=True, text=True, check=False)


@needs_amtool
@pytest.mark.parametrize("scale", [1, 60])
def test_amtool_accepts_it(scale: int, tmp_path: Path) -> None:
    path = tmp_path / "alertmanager.yml"
    path.write_text(generate.render_alertmanager(scale))
    done = amtool("check-config", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_amtool
@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        (("layer=slo", "severity=page"), "leadtime,pager"),
        (("layer=serving", "severity=ticket"), "leadtime,tickets"),
        (("layer=controller", "severity=page"), "pager"),
        (("layer=cluster", "severity=ticket"), "tickets"),
    ],
    ids=["SLO pages", "serving tickets", "controller pages", "cluster tickets"],
)
def test_who_hears_of_it(labels: tuple[str, ...], receivers: str, config: Path) -> None:
    done = amtool(
        "config", "routes", "test", f"--config.file={config}", f"--verify.receivers={receivers}",
        *labels,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_follows_from_a_cause_names_a_real_one() -> None:
    for alert in ALERTS:
        assert set(alert.follows_from) <= NAMES - {alert.name}


def test_gcs_down_silences_what_follows_and_not_what_does_not() -> None:
    rules = yaml.safe_load(generate.render_alertmanager())["inhibit_rules"]
    silenced = silenced_by(rules, "RayGcsDown")
    assert {"LeadtimeServeUnreachable", "LeadtimeBlind", "RayDashboardDown"} <= silenced
    assert not {"LeadtimeJournalFailing", "SloBurnFast", "LeadtimeAbsent"} & silenced


def test_a_conflict_silences_only_its_own_deployment() -> None:
    rules = yaml.safe_load(generate.render_alertmanager())["inhibit_rules"]
    of_conflict = [r for r in rules if r["source_matchers"] == ['alertname = "LeadtimeConflict"']]
    assert [r["equal"] for r in of_conflict] == [["application", "deployment"]]


def test_at_a_sixtieth_it_groups_within_a_second() -> None:
    route = yaml.safe_load(generate.render_alertmanager(60))["route"]
    assert route["group_wait"] == "1s"
    assert route["routes"][0]["group_wait"] == route["routes"][0]["group_interval"] == "1s"


def test_the_token_stands_in_a_file() -> None:
    text = generate.render_alertmanager(token_file="/run/token")
    hooks = {r["name"]: r["webhook_configs"][0] for r in yaml.safe_load(text)["receivers"]}
    assert hooks["leadtime"]["http_config"]["authorization"]["credentials_file"] == "/run/token"
    assert "credentials:" not in text
    assert json.dumps(hooks["pager"]).count("http_config") == 0


def silenced_by(rules: list[dict[str, Any]], cause: str) -> set[str]:
    found: set[str] = set()
    for rule in rules:
        if rule["source_matchers"] == [f'alertname = "{cause}"']:
            (target,) = rule["target_matchers"]
            found |= set(target.split('"')[1].split("|"))
    return found
