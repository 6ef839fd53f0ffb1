"""Pushing dashboards: against a local server that follows Grafana's HTTP API."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from controller.adapters.grafana import Grafana, GrafanaError
from controller.cli import app
from controller.commands.dashboards import shipped
from tests.adapters.fake_server import Answer, Fake, serving

TOKEN = "glsa_secret"
PROMETHEUS = "http://prometheus:9090"
BOARDS = 5


class GrafanaStandIn:
    """Folders, datasources and dashboards as Grafana keeps them: it gives ids and counts versions,
    refuses a second folder or datasource of one uid, and a stale write without `overwrite`."""

    def __init__(self) -> None:
        self.folders: dict[str, dict[str, Any]] = {}
        self.datasources: dict[str, dict[str, Any]] = {}
        self.dashboards: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.status: int | None = None
        self.fake: Fake

    def answer(self, path: str, parameters: dict[str, str]) -> Answer:
        asked = self.fake.asked[-1]
        if self.fake.headers and self.fake.headers[-1].get("authorization") != f"Bearer {TOKEN}":
            return said(401, {"message": "Invalid API key"})
        if self.status is not None:
            return said(self.status, {"message": "told to"})
        method, body = asked["method"], json.loads(asked.get("body", "{}"))
        kind, _, uid = path.removeprefix("/api/").partition("/")
        if method == "GET":
            return self._get(kind, uid.removeprefix("uid/"))
        self.writes += 1
        return self._put(kind, uid.removeprefix("uid/"), body, method)

    def _get(self, kind: str, uid: str) -> Answer:
        kept = {"folders": self.folders, "datasources": self.datasources}.get(kind, self.dashboards)
        if uid not in kept:
            return said(404, {"message": "not found"})
        return said(200, kept[uid])

    def _put(self, kind: str, uid: str, body: dict[str, Any], method: str) -> Answer:
        if kind == "folders":
            if body["uid"] in self.folders:
                return said(412, {"message": "a folder with that uid exists"})
            self.folders[body["uid"]] = {**body, "id": 1, "version": 1}
            return said(200, self.folders[body["uid"]])
        if kind == "datasources":
            if method == "POST" and body["uid"] in self.datasources:
                return said(409, {"message": "data source with the same uid already exists"})
            self.datasources[body["uid"]] = {**body, "id": 7, "readOnly": False}
            return said(200, {"datasource": self.datasources[body["uid"]]})
        return self._dashboard(body)

    def _dashboard(self, body: dict[str, Any]) -> Answer:
        if body["folderUid"] not in self.folders:
            return said(400, {"message": "folder not found"})
        made, uid = body["dashboard"], body["dashboard"]["uid"]
        before = self.dashboards.get(uid)
        if before is not None and not body.get("overwrite"):
            return said(412, {"message": "The dashboard has been changed by someone else"})
        version = before["dashboard"]["version"] + 1 if before else 1
        kept = {**made, "id": len(self.dashboards) + 1, "version": version}
        self.dashboards[uid] = {"dashboard": kept, "meta": {"folderUid": body["folderUid"]}}
        return said(200, {"uid": uid, "version": version, "status": "success"})


def said(status: int, body: dict[str, Any]) -> Answer:
    return status, "application/json", json.dumps(body).encode()


@contextmanager
def _grafana() -> Iterator[GrafanaStandIn]:
    stand_in = GrafanaStandIn()
    with serving(stand_in.answer) as fake:
        stand_in.fake = fake
        yield stand_in


@pytest.fixture
def grafana(monkeypatch: pytest.MonkeyPatch) -> Iterator[GrafanaStandIn]:
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    with _grafana() as stand_in:
        yield stand_in


def push(grafana: GrafanaStandIn, *more: str) -> tuple[int, str]:
    command = ["dashboards", "push", "--grafana", grafana.fake.url, *more]
    done = CliRunner().invoke(app, command)
    return done.exit_code, done.output


def test_a_first_push_puts_folder_datasource_and_dashboards_there(grafana: GrafanaStandIn) -> None:
    code, output = push(grafana, "--prometheus", PROMETHEUS)
    assert code == 0, output
    assert output.endswith(f"{BOARDS + 2} changed\n")
    assert set(grafana.folders) == {"leadtime"}
    assert grafana.datasources["leadtime-prometheus"]["url"] == PROMETHEUS
    assert set(grafana.dashboards) == {board["uid"] for board in shipped()}


def test_a_second_push_writes_nothing(grafana: GrafanaStandIn) -> None:
    push(grafana, "--prometheus", PROMETHEUS)
    writes = grafana.writes
    assert push(grafana, "--prometheus", PROMETHEUS) == (0, "0 changed\n")
    assert grafana.writes == writes


def test_a_dry_run_shows_the_difference_and_writes_nothing(grafana: GrafanaStandIn) -> None:
    push(grafana)
    writes = grafana.writes
    changed = grafana.dashboards["leadtime-serving"]["dashboard"]
    changed["title"] = "edited by hand"
    code, output = push(grafana, "--dry-run")
    assert code == 0
    assert "would change dashboard Leadtime / Serving" in output
    assert '-"title": "edited by hand"' in output.replace("  - ", "-").replace("- ", "-")
    assert output.endswith("1 to change\n")
    assert grafana.writes == writes
    assert changed["title"] == "edited by hand"
    push(grafana)
    assert grafana.dashboards["leadtime-serving"]["dashboard"]["title"] == "Leadtime / Serving"


def test_a_dashboard_that_was_moved_comes_back(grafana: GrafanaStandIn) -> None:
    push(grafana)
    grafana.dashboards["leadtime-serving"]["meta"]["folderUid"] = "other"
    assert push(grafana)[1].endswith("1 changed\n")
    assert grafana.dashboards["leadtime-serving"]["meta"]["folderUid"] == "leadtime"


def test_another_prometheus_is_written_and_what_was_added_to_the_datasource_is_kept(
    grafana: GrafanaStandIn,
) -> None:
    push(grafana, "--prometheus", PROMETHEUS)
    grafana.datasources["leadtime-prometheus"]["jsonData"] = {"timeInterval": "5s"}
    push(grafana, "--prometheus", "http://other:9090")
    kept = grafana.datasources["leadtime-prometheus"]
    assert kept["url"] == "http://other:9090"
    assert kept["jsonData"] == {"timeInterval": "5s"}


def test_without_a_prometheus_datasources_are_left_alone(grafana: GrafanaStandIn) -> None:
    push(grafana)
    assert grafana.datasources == {}


def test_the_runbook_is_linked_where_it_is_kept(grafana: GrafanaStandIn) -> None:
    push(grafana, "--runbook", "https://git.example.com/runbook.md")
    for kept in grafana.dashboards.values():
        variables = {v["name"]: v for v in kept["dashboard"]["templating"]["list"]}
        assert variables["runbook"]["query"] == "https://git.example.com/runbook.md"


def test_the_token_may_stand_in_a_file(
    grafana: GrafanaStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRAFANA_TOKEN")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert push(grafana, "--token-file", str(tmp_path / "token"))[0] == 0
    code, output = push(grafana, "--token-file", str(tmp_path / "none"))
    assert code == 2
    assert "none" in output


@pytest.mark.parametrize(
    ("status", "advice"),
    [(401, "GRAFANA_TOKEN"), (403, "Editor"), (412, "run again"), (500, "told to")],
)
def test_a_refusal_says_what_to_mend(status: int, advice: str, grafana: GrafanaStandIn) -> None:
    grafana.status = status
    code, output = push(grafana)
    assert code == 1
    assert advice in output
    assert TOKEN not in output
    assert grafana.writes == 0


def test_no_grafana_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    with _grafana() as gone:
        url = gone.fake.url
    done = CliRunner().invoke(app, ["dashboards", "push", "--grafana", url])
    assert done.exit_code == 1
    assert "no usable answer" in done.output


@pytest.mark.parametrize(
    "url", ["grafana:3000", "ftp://grafana", "https://", "https://user:secret@grafana"]
)
def test_a_wrong_url_is_said_before_anything_is_sent(url: str) -> None:
    with pytest.raises(GrafanaError) as wrong:
        Grafana(url, TOKEN)
    assert "secret@" not in str(wrong.value)


def test_a_path_in_front_of_grafana_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = GrafanaStandIn()

    def behind_a_proxy(path: str, parameters: dict[str, str]) -> Answer:
        assert path.startswith("/grafana/api/")
        return stand_in.answer(path.removeprefix("/grafana"), parameters)

    with serving(behind_a_proxy) as fake:
        stand_in.fake = fake
        changes = Grafana(f"{fake.url}/grafana", TOKEN).changes([*shipped()], None)
    assert len(changes) == BOARDS + 1
