"""Operators' words over HTTP: with the token, bounded, kept with who and why."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from controller.adapters.overrides import Overrides
from controller.adapters.overriding import Desk, override_route
from controller.core.types import DeploymentId
from tests.core.worlds import TARGET

PIN = {
    "application": TARGET.application,
    "deployment": TARGET.deployment,
    "effect": "pin",
    "replicas": 6,
    "for_s": 7200,
    "why": "launch",
    "by": "ada@host",
}


class Office:
    """The endpoint over real overrides, with a clock moved by hand."""

    def __init__(self, path: Path) -> None:
        self.kept = Overrides(path)
        self.at_s, self.left_s = 1000.0, 9.0
        self.said: list[str] = []
        desk = Desk(
            self.kept, lambda: [TARGET], lambda: self.at_s, lambda: self.left_s, self.said.append
        )
        app = Starlette(routes=[override_route(desk, self.permit)])
        transport = httpx.ASGITransport(app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://leadtime")

    def permit(self, request: Request) -> str | None:
        return None if request.headers.get("authorization") == "Bearer right" else "token"

    async def ask(self, token: str = "right", **changes: Any) -> httpx.Response:
        body = {key: value for key, value in {**PIN, **changes}.items() if value is not None}
        headers = {"Authorization": f"Bearer {token}"}
        return await self.client.post("/api/v1/overrides", json=body, headers=headers)

    async def shown(self) -> list[dict[str, Any]]:
        answer = await self.client.get("/api/v1/overrides")
        found: list[dict[str, Any]] = answer.json()["overrides"]
        return found


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    made = Office(tmp_path / "leadtime.db")
    yield made
    await made.client.aclose()


async def test_a_pin_is_kept_with_who_and_why_and_ends(office: Office) -> None:
    assert (await office.ask()).status_code == 200
    (shown,) = await office.shown()
    assert (shown["effect"], shown["replicas"], shown["left_s"]) == ("pin", 6, 7200)
    assert shown["why"] == "launch (by ada@host)"
    assert "launch (by ada@host)" in office.said[0]
    office.at_s += 7200
    assert await office.shown() == []


async def test_a_pause_holds_and_the_newest_word_counts(office: Office) -> None:
    await office.ask()
    await office.ask(effect="pause", replicas=None, why="incident")
    assert [each["effect"] for each in await office.shown()] == ["hold"]


async def test_resuming_ends_it(office: Office) -> None:
    await office.ask()
    resume: dict[str, Any] = {"effect": "resume", "replicas": None, "for_s": None}
    assert (await office.ask(**resume)).json() == {"resumed": True}
    assert (await office.ask(**resume)).json() == {"resumed": False}
    assert await office.shown() == []
    assert office.kept.past(TARGET)[0]["ended_why"] == "launch (by ada@host)"


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"token": "wrong"}, 401, "token"),
        ({"deployment": "other"}, 404, str(TARGET)),
        ({"effect": "explode"}, 400, "pin, pause or resume"),
        ({"effect": "pause"}, 400, "replicas"),
        ({"replicas": None}, 400, "replicas"),
        ({"replicas": -1}, 400, "replicas"),
        ({"replicas": 2.5}, 400, "replicas"),
        ({"replicas": True}, 400, "replicas"),
        ({"for_s": 0}, 400, "for_s"),
        ({"for_s": "2h"}, 400, "for_s"),
        ({"for_s": 8 * 86_400}, 400, "for_s"),
        ({"why": " "}, 400, "why"),
        ({"why": "x" * 501}, 400, "why"),
        ({"by": None}, 400, "by"),
        ({"extra": 1}, 400, "keys"),
        ({"why": "x" * 20_000}, 413, "bytes"),
    ],
)
async def test_what_is_wrong_is_said_and_changes_nothing(
    office: Office, changes: dict[str, Any], status: int, said: str
) -> None:
    answer = await office.ask(**changes)
    assert answer.status_code == status
    assert said in answer.json()["error"]
    assert (await office.shown(), office.said) == ([], [])


async def test_no_json_is_no_request(office: Office) -> None:
    headers = {"Authorization": "Bearer right"}
    for body in (b"", b"{", b"[]", b"\xff"):
        answer = await office.client.post("/api/v1/overrides", content=body, headers=headers)
        assert answer.status_code == 400


async def test_a_standby_sends_to_the_one_that_leads(office: Office) -> None:
    office.left_s = 0.0
    assert (await office.ask()).status_code == 503
    assert await office.shown() == []


async def test_what_the_journal_cannot_keep_is_not_done(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: DeploymentId, __: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(office.kept, "put", full)
    answer = await office.ask()
    assert (answer.status_code, "disk is full" in answer.json()["error"]) == (503, True)
    assert office.said == []
