"""The example configuration in a real Alertmanager: routes, groups, silences what follows."""

import shutil
import time
from pathlib import Path

import pytest

from alerts import generate
from alerts.generate import ALERTS
from controller.demo.processes import ProcessGroup
from tests.alerts.servers import AlertmanagerServer, receiver

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(60),
    pytest.mark.skipif(
        shutil.which("prometheus-alertmanager") is None,
        reason="prometheus-alertmanager is not installed: make setup",
    ),
]
TARGET = {"application": "chat", "deployment": "LLM"}


def of(name: str, **more: str) -> dict[str, str]:
    """An alert's labels as Prometheus sends them."""
    (alert,) = (alert for alert in ALERTS if alert.name == name)
    return {"alertname": name, "severity": alert.severity, "layer": alert.layer, **more}


def test_causes_reach_their_receivers_and_what_follows_does_not(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    with ProcessGroup(tmp_path / "logs") as group, receiver() as hooks:
        where = {name: f"{hooks.url}/{name}" for name in ("pager", "tickets", "leadtime")}
        text = generate.render_alertmanager(60, token_file=str(token), **where)
        server = AlertmanagerServer(group, tmp_path / "alertmanager", text)
        server.start()
        server.post(
            of("RayGcsDown"),
            of("LeadtimeServeUnreachable", **TARGET),
            of("LeadtimeBlind", **TARGET),
            of("LeadtimeJournalFailing", instance="leadtime:8199"),
            of("SloBurnFast", **TARGET, window="1h"),
            of("SloBurnSlow", **TARGET, window="3d"),
            of("SloBurnSlow", application="other", deployment="LLM", window="3d"),
        )
        deadline_s = time.monotonic() + 20
        expected = {"RayGcsDown", "SloBurnFast"}
        while time.monotonic() < deadline_s:
            arrived = hooks.names("/pager") >= expected and hooks.names("/tickets")
            if arrived and hooks.names("/leadtime") >= {"SloBurnFast", "SloBurnSlow"}:
                break
            time.sleep(0.1)
        assert hooks.names("/pager") == expected, group.log("alertmanager")
        assert hooks.names("/tickets") == {"LeadtimeJournalFailing", "SloBurnSlow"}
        assert hooks.names("/leadtime") == {"SloBurnFast", "SloBurnSlow"}
        assert {h["authorization"] for h in hooks.headers("/leadtime")} == {"Bearer secret"}
        assert all("authorization" not in h for h in hooks.headers("/pager"))
        silenced = [a for a in server.alerts() if a["status"]["state"] == "suppressed"]
        assert {a["labels"]["alertname"] for a in silenced} == {
            "LeadtimeServeUnreachable",
            "LeadtimeBlind",
            "SloBurnSlow",
        }
        assert {a["labels"].get("application") for a in silenced} == {"chat"}
