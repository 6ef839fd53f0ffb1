"""New settings while the daemon runs: whole or not at all, and said."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.reloading import Reloading, changes, refusal
from controller.settings import Settings, SettingsError, load


def settings(**values: Any) -> Settings:
    return Settings.model_validate(values)


def test_what_changed_is_named_with_before_and_after() -> None:
    entry = {"application": "chat", "deployment": "llm", "max_replicas": 4}
    before = settings(slo={"max_replicas": 8}, deployments=[entry])
    after = settings(slo={"max_replicas": 12}, deployments=[{**entry, "max_replicas": 6}])
    assert changes(before, after) == {
        "slo.max_replicas": "8 -> 12",
        "deployments.0.max_replicas": "4 -> 6",
    }
    assert changes(before, before) == {}


def test_secrets_are_compared_and_never_shown(tmp_path: Path) -> None:
    before = settings(serve={"token": "old-canary"}, prometheus={"password": "same"})
    after = settings(serve={"token": "new-canary"}, prometheus={"password": "same"})
    assert changes(before, after) == {"serve.token": "changed"}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"tick_s": 20}, "tick_s"),
        ({"season_s": 3600}, "season_s"),
        ({"http": {"port": 1}}, "http.port"),
        ({"journal": {"path": "other.db"}}, "journal.path"),
        ({"prometheus": {"scrape_s": 15}}, "prometheus.scrape_s"),
    ],
)
def test_what_cannot_change_while_it_runs_is_refused(values: dict[str, Any], named: str) -> None:
    said = refusal(changes(settings(), settings(**values)))
    assert named in said
    assert "restart" in said
    assert refusal(changes(settings(), settings(slo={"max_replicas": 3}))) == ""


class Made:
    """A file, and what comes of reading it again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write(slo={"max_replicas": 8})
        self.used: list[Mapping[str, str]] = []
        self.refused: list[str] = []
        self.broken = ""
        self.reloading = Reloading(path, load(path), self.use, self.refused.append)

    def write(self, **values: Any) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(yaml.safe_dump(values))
        new.replace(self.path)

    def use(self, _: Settings, changed: Mapping[str, str]) -> None:
        if self.broken:
            raise SettingsError(self.broken)
        self.used.append(changed)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "leadtime.yaml")


def test_a_changed_file_is_taken_once(made: Made) -> None:
    made.reloading.look()
    assert made.used == []
    made.write(slo={"max_replicas": 12})
    made.reloading.look()
    made.reloading.look()
    assert made.used == [{"slo.max_replicas": "8 -> 12"}]
    assert made.reloading.settings.slo.max_replicas == 12


def test_a_file_that_is_wrong_is_refused_whole_and_once(made: Made) -> None:
    made.write(slo={"max_replicas": 12, "ttft_s": -1})
    made.reloading.look()
    made.reloading.look()
    assert len(made.refused) == 1
    assert "slo.ttft_s" in made.refused[0]
    assert (made.used, made.reloading.settings.slo.max_replicas) == ([], 8)


def test_one_setting_that_needs_a_restart_refuses_them_all(made: Made) -> None:
    made.write(slo={"max_replicas": 12}, tick_s=5)
    made.reloading.look()
    assert "tick_s" in made.refused[0]
    assert made.used == []


def test_what_cannot_be_built_is_refused(made: Made) -> None:
    made.broken = "serve.ca_file: holds no certificate"
    made.write(slo={"max_replicas": 12})
    made.reloading.look()
    assert made.refused == [made.broken]
    assert made.reloading.settings.slo.max_replicas == 8


def test_a_file_that_is_gone_changes_nothing(made: Made) -> None:
    made.path.unlink()
    made.reloading.look()
    assert (made.used, made.refused) == ([], [])


def test_asked_to_it_reads_an_unchanged_file_too(made: Made) -> None:
    made.reloading.ask()
    made.reloading.look()
    assert made.used == [{}]
    made.path.unlink()
    made.reloading.ask()
    made.reloading.look()
    assert "cannot be read" in made.refused[0]
