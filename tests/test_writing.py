"""Who may ask for floors, who leads, and what an end leaves behind."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from controller.adapters.serve.view import Actuation
from controller.adapters.store import Journal
from controller.core.planning import Planner
from controller.core.types import Outcome, Tick
from controller.loop import wall_clock_s
from controller.settings import HttpSettings, Settings
from controller.writing import Writing, leave, permit, writing
from tests.adapters.fake_server import Fake, serving
from tests.adapters.test_serve import APPLICATIONS, EXTERNAL, dashboard, writes
from tests.core.worlds import World, planner


def settings_of(url: str, folder: Path, **slo: Any) -> Settings:
    entry = {"application": EXTERNAL.application, "deployment": EXTERNAL.deployment, **slo}
    values = {
        "mode": "active",
        "serve": {"url": url},
        "journal": {"path": folder / "leadtime.db"},
        "deployments": [entry],
    }
    return Settings.model_validate(values)


def journal_wanting(folder: Path, *wanted: tuple[float, int]) -> Journal:
    """A journal whose decisions wanted so many replicas, so many seconds ago."""
    journal = Journal(folder / "leadtime.db", 30 * 86_400.0)
    for ago_s, count in wanted:
        live = World.with_replicas(count, at_s=wall_clock_s() - ago_s)
        decision = live.step(Planner(EXTERNAL, planner().settings))
        assert decision.plan.wanted == count
        journal.record(Tick(live.at_s, ((decision, Outcome(decision.action, True, "")),), {}))
    return journal


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving(dashboard()) as made:
        yield made


CURRENT = APPLICATIONS["applications"]["ext"]["deployments"]["Model"]["target_num_replicas"]


@pytest.mark.parametrize(
    ("slo", "left"),
    [
        ({}, CURRENT + 4),
        ({"on_exit": "hold"}, None),
        ({"max_replicas": CURRENT + 2}, CURRENT + 2),
        ({"max_replicas": max(1, CURRENT - 1)}, None),
    ],
    ids=["peak", "hold", "peak within bounds", "never fewer than there are"],
)
async def test_an_end_leaves_the_peak_of_a_day_where_nothing_scales_after_us(
    fake: Fake, tmp_path: Path, slo: dict[str, Any], left: int | None
) -> None:
    settings = settings_of(fake.url, tmp_path, **slo)
    journal = journal_wanting(tmp_path, (90_000, CURRENT + 9), (3600, CURRENT + 4), (60, CURRENT))
    made = writing(settings)
    assert made.lease.renew()
    said = await leave(settings, made, journal, lambda _: settings.deployments[0])
    written = [json.loads(each["body"])["target_num_replicas"] for each in writes(fake)]
    assert written == ([] if left is None else [left])
    assert len(said) == len(written)


async def test_a_standby_leaves_nothing(fake: Fake, tmp_path: Path) -> None:
    settings = settings_of(fake.url, tmp_path)
    journal = journal_wanting(tmp_path, (60, CURRENT + 4))
    leader, standby = writing(settings), writing(settings)
    assert leader.lease.renew()
    assert await leave(settings, standby, journal, lambda _: settings.deployments[0]) == []
    assert writes(fake) == []


async def test_an_end_without_serve_is_said(fake: Fake, tmp_path: Path) -> None:
    settings = settings_of("http://127.0.0.1:9", tmp_path)
    made, journal = writing(settings), journal_wanting(tmp_path, (60, CURRENT + 4))
    made.lease.renew()
    said = await leave(settings, made, journal, lambda _: settings.deployments[0])
    assert "on_exit could not be carried out" in said[0]


def asked(authorization: str | None) -> Request:
    headers = [(b"authorization", authorization.encode())] if authorization else []
    return Request({"type": "http", "headers": headers})


@pytest.mark.parametrize(
    ("authorization", "allowed"),
    [("Bearer secret", True), ("bearer secret", True), ("Bearer other", False), (None, False)],
)
def test_the_token_is_asked_for_and_may_change(
    tmp_path: Path, authorization: str | None, allowed: bool
) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    may = permit(HttpSettings(token_file=token))
    assert (may(asked(authorization)) is None) is allowed
    token.write_text("another\n")
    assert may(asked("Bearer secret")) is not None
    assert may(asked("Bearer another")) is None
    token.unlink()
    assert "cannot be read" in str(may(asked("Bearer another")))


def test_without_a_token_nothing_can_be_changed() -> None:
    assert "http.token_file" in str(permit(HttpSettings())(asked(None)))


@pytest.mark.parametrize(("mode", "may"), [("active", True), ("shadow", False)])
def test_only_who_acts_offers_floors(tmp_path: Path, mode: str, may: bool) -> None:
    settings = settings_of("http://127.0.0.1:9", tmp_path)
    made: Writing = writing(settings.model_copy(update={"mode": mode}))
    made.lease.renew()
    made.floors.record(Tick(100.0, (), {}))
    answer = made.route().endpoint(asked_floors())
    assert answer.status_code == (200 if may else 503)
    assert made.source.actuation(EXTERNAL) is Actuation.FLOOR


def asked_floors() -> Request:
    return Request({"type": "http", "headers": [], "query_string": b""})
