"""Notifications from Alertmanager: taken once, revoked, and refused without any effect."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from controller.adapters.alertmanager import PATH, AlertDesk, route
from controller.adapters.overrides import Overrides
from controller.core.overrides import Effect
from controller.core.reactions import Reaction
from controller.core.types import DeploymentId
from tests.core.worlds import TARGET

TOKEN = "s3cret-t0ken"
NOW_S = 1_760_000_000.0
OTHER = DeploymentId("other", "llm")


def notification(status: str = "firing", **changes: Any) -> dict[str, Any]:
    """As Alertmanager 0.25 sends it."""
    alert = {
        "status": status,
        "labels": {
            "alertname": "QueueWaitHigh",
            "application": TARGET.application,
            "deployment": TARGET.deployment,
        },
        "annotations": {"summary": "first tokens wait 12 s"},
        "startsAt": "2025-10-09T08:50:00.123Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus:9090/graph",
        "fingerprint": "3f1a9cb2d4e5f607",
        **changes,
    }
    return {
        "receiver": "leadtime",
        "status": status,
        "alerts": [alert],
        "groupLabels": {"alertname": "QueueWaitHigh"},
        "commonLabels": alert["labels"],
        "commonAnnotations": {},
        "externalURL": "http://alertmanager:9093",
        "version": "4",
        "groupKey": '{}:{alertname="QueueWaitHigh"}',
        "truncatedAlerts": 0,
    }


class Desk:
    """The endpoint over a file, and what it did."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.overrides = Overrides(path)
        reactions = [
            Reaction("queue", {"alertname": "QueueWaitHigh"}, Effect.BOOST, 600.0, replicas=2),
            Reaction("all", {"alertname": "GcsDown"}, Effect.HOLD, 600.0),
        ]
        self.desk = AlertDesk(path, reactions, self.overrides)
        self.token: str | None = TOKEN
        self.known: list[DeploymentId] | None = [TARGET, OTHER]
        self.now_s = NOW_S
        self.told: list[tuple[str, str]] = []
        endpoint = route(
            self.desk,
            lambda: self.token,
            lambda: self.known,
            lambda: self.now_s,
            lambda verdict, detail: self.told.append((verdict, detail)),
            10_000,
        )
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(Starlette(routes=[endpoint])), base_url="http://leadtime"
        )

    async def post(self, body: object, **headers: str) -> httpx.Response:
        sent = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json", **headers}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        raw = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
        return await self.client.post(PATH, content=content, headers=raw)

    def state(self) -> object:
        """Everything that a notification could change."""
        return self.overrides.all(self.now_s), self.desk.alerts(0.0), self.overrides.past(TARGET)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield Desk(tmp_path / "leadtime.db")


async def test_an_alert_boosts_until_it_is_resolved(desk: Desk) -> None:
    answer = await desk.post(notification())
    assert answer.status_code == 200
    assert answer.json()["alerts"][0]["verdict"] == "fired"
    (boost,) = desk.overrides.of(TARGET, NOW_S)
    assert (boost.effect, boost.replicas, boost.until_s) == (Effect.BOOST, 2, NOW_S + 600)
    assert desk.overrides.of(OTHER, NOW_S) == ()
    desk.now_s += 30
    assert (await desk.post(notification("resolved"))).json()["alerts"][0]["verdict"] == "resolved"
    assert desk.overrides.of(TARGET, desk.now_s) == ()
    assert desk.overrides.past(TARGET)[0]["ended_why"] == "alert resolved"


async def test_told_again_it_changes_nothing_and_lasts_no_longer(desk: Desk) -> None:
    await desk.post(notification())
    before = desk.overrides.of(TARGET, NOW_S)
    desk.now_s += 300
    again = await desk.post(notification())
    assert again.status_code == 200
    assert again.json()["alerts"][0] == {
        "fingerprint": "3f1a9cb2d4e5f607",
        "verdict": "repeated",
        "done": [],
    }
    assert desk.overrides.of(TARGET, desk.now_s) == before
    assert desk.overrides.of(TARGET, NOW_S + 600) == ()


async def test_it_is_remembered_over_a_restart(desk: Desk) -> None:
    await desk.post(notification())
    await desk.post(notification("resolved"))
    again = Desk(desk.path)
    assert (await again.post(notification())).status_code == 409
    assert again.overrides.of(TARGET, NOW_S) == ()


async def test_a_replayed_notification_is_refused(desk: Desk) -> None:
    await desk.post(notification())
    await desk.post(notification("resolved"))
    before = desk.state()
    assert (await desk.post(notification())).status_code == 409
    assert (await desk.post(notification(startsAt="2025-10-01T00:00:00Z"))).status_code == 409
    assert desk.state() == before
    assert desk.told[-1][0] == "replayed"


async def test_an_alert_without_a_deployment_acts_on_all(desk: Desk) -> None:
    await desk.post(notification(labels={"alertname": "GcsDown"}, fingerprint="00ff"))
    held = desk.overrides.all(NOW_S)
    assert set(held) == {TARGET, OTHER}
    await desk.post(notification("resolved", labels={"alertname": "GcsDown"}, fingerprint="00ff"))
    assert not any(desk.overrides.all(NOW_S).values())


async def test_an_alert_without_a_reaction_is_shown_and_does_nothing(desk: Desk) -> None:
    await desk.post(notification(labels={"alertname": "DiskFull"}))
    assert not any(desk.overrides.all(NOW_S).values())
    assert [(a["name"], a["firing"]) for a in desk.desk.alerts(NOW_S)] == [("DiskFull", True)]


def changed(**changes: Any) -> dict[str, Any]:
    return {**notification(), **changes}


@pytest.mark.parametrize(
    ("body", "headers", "status", "said"),
    [
        pytest.param(notification(), {"authorization": ""}, 401, "bearer", id="no token"),
        pytest.param(
            notification(), {"authorization": "Bearer wrong"}, 401, "bearer", id="a wrong token"
        ),
        pytest.param(
            notification(), {"authorization": f"Basic {TOKEN}"}, 401, "bearer", id="a wrong scheme"
        ),
        pytest.param(
            notification(), {"authorization": "Bearer tök"}, 401, "bearer", id="no ASCII token"
        ),
        pytest.param(
            notification(), {"content-type": "text/plain"}, 415, "content-type", id="no JSON type"
        ),
        pytest.param(b"{", {}, 400, "JSON", id="truncated"),
        pytest.param(b"\xff\xfe", {}, 400, "JSON", id="no text"),
        pytest.param(b"[" * 5000, {}, 400, "JSON", id="deeply nested"),
        pytest.param([], {}, 400, "body", id="a list"),
        pytest.param(changed(version="3"), {}, 400, "version", id="another version"),
        pytest.param(changed(alerts=[]), {}, 400, "alerts", id="no alert"),
        pytest.param(notification("pending"), {}, 400, "alerts.0.status", id="a status not known"),
        pytest.param(notification(startsAt="now"), {}, 400, "alerts.0.startsAt", id="no time"),
        pytest.param(
            notification(startsAt="2025-10-09T08:50:00"), {}, 400, "startsAt", id="no time zone"
        ),
        pytest.param(
            notification(startsAt="2026-10-09T08:50:00Z"), {}, 400, "ahead", id="from the future"
        ),
        pytest.param(notification(fingerprint="../x"), {}, 400, "fingerprint", id="a path"),
        pytest.param(notification(labels={"a": 1}), {}, 400, "labels.a", id="a label is no text"),
        pytest.param(
            notification(annotations={"summary": "x" * 9_950}), {}, 413, "larger", id="too large"
        ),
        pytest.param(
            {
                **notification(),
                "alerts": [notification()["alerts"][0], {"status": "firing"}],
            },
            {},
            400,
            "alerts.1",
            id="the second alert is malformed",
        ),
    ],
)
async def test_what_is_refused_changes_nothing(
    desk: Desk, body: object, headers: dict[str, str], status: int, said: str
) -> None:
    await desk.post(notification(fingerprint="aaaa"))
    before = desk.state()
    answer = await desk.post(body, **headers)
    assert answer.status_code == status
    assert said in answer.json()["error"]
    assert desk.state() == before
    assert desk.told[-1][0] == "refused"
    assert TOKEN not in str(desk.told)


async def test_a_body_without_an_end_is_cut_off(desk: Desk) -> None:
    async def endless() -> Any:
        while True:
            yield b" " * 1000

    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    answer = await desk.client.post(PATH, content=endless(), headers=headers)
    assert answer.status_code == 413


async def test_without_a_token_of_ours_nothing_is_taken(desk: Desk) -> None:
    desk.token = None
    assert (await desk.post(notification(), authorization="Bearer ")).status_code == 403
    assert not any(desk.overrides.all(NOW_S).values())


async def test_before_the_first_tick_it_is_to_be_sent_again(desk: Desk) -> None:
    desk.known = None
    answer = await desk.post(notification())
    assert answer.status_code == 503
    assert "retry-after" in answer.headers
    desk.known = [TARGET]
    assert (await desk.post(notification())).json()["alerts"][0]["verdict"] == "fired"


async def test_only_post_is_allowed(desk: Desk) -> None:
    for method in ("GET", "PUT", "DELETE"):
        assert (await desk.client.request(method, PATH)).status_code == 405


async def test_when_the_journal_fails_it_is_to_be_sent_again(desk: Desk) -> None:
    desk.overrides.close()
    assert (await desk.post(notification())).status_code == 503
    desk.overrides = Overrides(desk.path)
    desk.desk = AlertDesk(desk.path, (), desk.overrides)
    assert desk.desk.alerts(0.0) == []
