"""Floors for the policy inside Serve: as old as the tick that decided them, and guarded."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from controller.adapters.floors import FloorBoard, floor_route
from controller.core.types import DeploymentId, Outcome, Tick
from tests.core.worlds import TARGET, World, planner

OTHER = DeploymentId("app", "other")


class Clock:
    def __init__(self) -> None:
        self.at_s = 500.0

    def __call__(self) -> float:
        return self.at_s


def board_of(clock: Clock, file: Path | None = None) -> FloorBoard:
    return FloorBoard(lambda target: target == TARGET, 30.0, clock, file)


def tick() -> Tick:
    decision = World.with_replicas(3).step(planner())
    return Tick(100.0, ((decision, Outcome(decision.action, True, "")),), {})


def floors(board: FloorBoard) -> Any:
    return board.document()["floors"]


def test_a_tick_publishes_what_is_wanted_changed_or_not() -> None:
    clock = Clock()
    board = board_of(clock)
    assert board.floor(TARGET) is None
    board.record(tick())
    assert floors(board) == {TARGET.application: {TARGET.deployment: 3}}
    assert board.floor(TARGET) == 3


def test_a_floor_is_as_old_as_its_tick_and_ends() -> None:
    clock = Clock()
    board = board_of(clock)
    board.publish(TARGET, 4)
    clock.at_s += 29
    assert board.document() == {
        "ttl_s": 30.0,
        "age_s": 29.0,
        "floors": {TARGET.application: {TARGET.deployment: 4}},
    }
    clock.at_s += 1
    assert floors(board) == {}


def test_deployments_scaled_another_way_have_none() -> None:
    board = FloorBoard(lambda _: False, 30.0, Clock())
    board.record(tick())
    assert floors(board) == {}


def test_the_file_is_whole_and_says_when(tmp_path: Path) -> None:
    path = tmp_path / "floors.json"
    board_of(Clock(), path).record(tick())
    written = json.loads(path.read_text())
    assert (written["at_s"], written["age_s"], written["ttl_s"]) == (100.0, 0.0, 30.0)
    assert written["floors"] == {TARGET.application: {TARGET.deployment: 3}}
    assert [each.name for each in tmp_path.iterdir()] == ["floors.json"]


def test_a_policy_that_does_not_ask_is_named() -> None:
    clock = Clock()
    board = board_of(clock)
    board.publish(TARGET, 4)
    clock.at_s += 30
    assert board.unread() == []
    clock.at_s += 1
    assert str(TARGET) in board.unread()[0]
    board.asked(TARGET)
    assert board.unread() == []


def client(board: FloorBoard, left_s: float) -> httpx.AsyncClient:
    app = Starlette(routes=[floor_route(board, lambda: left_s)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://leadtime")


@pytest.mark.parametrize(("left_s", "status"), [(9.0, 200), (0.0, 503)])
async def test_floors_are_those_of_the_one_that_leads(left_s: float, status: int) -> None:
    board = board_of(Clock())
    board.record(Tick(100.0, (), {}))
    board.publish(TARGET, 4)
    board.publish(OTHER, 7)
    asked = {"application": TARGET.application, "deployment": TARGET.deployment}
    async with client(board, left_s) as reader:
        answer = await reader.get("/api/v1/floors", params=asked)
    assert answer.status_code == status
    expected = {TARGET.application: {TARGET.deployment: 4}} if status == 200 else None
    assert answer.json().get("floors") == expected


async def test_before_the_first_tick_no_floor_is_denied() -> None:
    """A daemon that has just begun anew: the policy keeps the floor that it has."""
    asked = {"application": TARGET.application, "deployment": TARGET.deployment}
    board = board_of(Clock())
    async with client(board, 9.0) as reader:
        assert (await reader.get("/api/v1/floors", params=asked)).status_code == 503
        board.record(Tick(100.0, (), {}))
        assert (await reader.get("/api/v1/floors", params=asked)).json()["floors"] == {}
