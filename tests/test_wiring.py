"""What the settings say reaches the planners."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest

from controller.adapters.overrides import Overrides
from controller.adapters.prometheus.client import PrometheusClient
from controller.adapters.rehearser import Rehearser
from controller.adapters.store import Journal
from controller.adapters.telemetry import Telemetry
from controller.cluster import ClusterSource
from controller.connections import (
    backfill,
    metrics_source,
    prometheus_options,
    serve_api,
    serve_source,
)
from controller.core.choosing import DEFAULT, LAST_VALUE, Trial
from controller.core.events import KnownEvent
from controller.core.planning import Planner
from controller.core.types import Outcome, Readings, Reason, Tick
from controller.planners import (
    EVENTS_AHEAD_S,
    EVENTS_EVERY_S,
    DeploymentPlanners,
    calendar_of,
    planner_settings,
)
from controller.settings import DeploymentSettings, EventSettings, PrometheusSettings, Settings
from controller.wiring import WatchedJournal, build
from tests.adapters.fake_server import Answer, serving, vector
from tests.core.test_overrides import override
from tests.core.worlds import START_S, TARGET, World, planner

SUNDAY_S = 1_774_738_800.0  # 2026-03-29 00:00 in Berlin, two hours before its clocks change


def nightly(**changes: object) -> EventSettings:
    """Every morning at six in Berlin, half an hour, three times the load."""
    values = {
        "name": "morning",
        "cron": "0 6 * * *",
        "time_zone": "Europe/Berlin",
        "duration_s": 1800,
        "multiple": 3,
    }
    return EventSettings.model_validate({**values, **changes})


def test_a_deployment_has_the_events_of_all_and_its_own() -> None:
    mine = DeploymentSettings(
        application=TARGET.application,
        deployment=TARGET.deployment,
        events=[nightly(name="mine", multiple=None, rate_rps=40)],
    )
    other = DeploymentSettings(
        application="other", deployment="llm", events=[nightly(name="other")]
    )
    settings = Settings(events=[nightly()], deployments=[mine, other])
    found = calendar_of(settings, TARGET).events(SUNDAY_S, SUNDAY_S + 86_400)
    begins_s = SUNDAY_S + 5 * 3600
    assert [(e.name, e.start_s, e.end_s, e.multiple, e.rate_rps) for e in found] == [
        ("mine", begins_s, begins_s + 1800, None, 40),
        ("morning", begins_s, begins_s + 1800, 3, None),
    ]


@pytest.fixture
def planners(tmp_path: Path) -> DeploymentPlanners:
    """Those of a daemon without history, whose only event is every day."""
    settings = Settings(events=[nightly()], history_seasons=0)
    client = PrometheusClient(prometheus_options(PrometheusSettings()))
    journal = Journal(tmp_path / "journal.db", 86_400.0)
    overrides = Overrides(tmp_path / "journal.db")
    return DeploymentPlanners(
        settings, journal, overrides, backfill(settings, client), Telemetry(False)
    )


async def test_planners_hear_of_overrides_at_every_tick(
    tmp_path: Path, planners: DeploymentPlanners
) -> None:
    made = await planners.prepare([TARGET])
    planners.overrides = kept = Overrides(tmp_path / "journal.db")
    kept.put(TARGET, override("pin", replicas=7, until_s=START_S + 100))
    await planners.refill(made, START_S + 1)
    assert made[TARGET].tick(Readings(START_S + 1)).plan.reason is Reason.PINNED
    await planners.refill(made, START_S + 101)
    assert made[TARGET].tick(Readings(START_S + 101)).plan.reason is not Reason.PINNED


async def test_planners_hear_of_the_coming_days_again_and_again(
    planners: DeploymentPlanners,
) -> None:
    heard: list[tuple[float, ...]] = []

    class Hearing(Planner):
        def expect(self, events: Iterable[KnownEvent]) -> None:
            heard.append(tuple(event.start_s for event in events))

    hearing = Hearing(TARGET, planner().settings)
    for elapsed_s in (0.0, 10.0, EVENTS_EVERY_S - 1, EVENTS_EVERY_S, EVENTS_AHEAD_S):
        await planners.refill({TARGET: hearing}, SUNDAY_S + elapsed_s)
    begins_s = SUNDAY_S + 5 * 3600
    first = (begins_s, begins_s + 86_400)
    assert heard == [first, first, tuple(begins_s + day * 86_400 for day in (2, 3))]


async def test_a_new_planner_is_ready_for_the_event_that_is_near(
    planners: DeploymentPlanners, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins_s = SUNDAY_S + 5 * 3600
    monkeypatch.setattr("controller.planners.wall_clock_s", lambda: begins_s - 1000)
    made = (await planners.prepare([TARGET]))[TARGET]
    live = World.with_replicas(3, at_s=begins_s - 1000)
    assert Reason.EVENT not in {decision.plan.reason for decision in live.run(made, 80)}
    assert Reason.EVENT in {decision.plan.reason for decision in live.run(made, 15)}
    assert live.at_s < begins_s


def test_a_journal_that_fails_is_counted_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.adapters.store.file.BUSY_S", 0.0)
    telemetry = Telemetry(False)
    journal = Journal(tmp_path / "journal.db", 86_400.0)
    lock = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    watched = WatchedJournal(journal, telemetry)
    live, made = World.with_replicas(3), planner()
    decision = live.step(made)
    watched.record(Tick(live.at_s, ((decision, Outcome(decision.action, False, "")),), {}))
    lock.close()
    assert b"leadtime_journal_errors_total 1.0" in telemetry.page()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (vector([{"metric": {}, "value": [SUNDAY_S, f"{SUNDAY_S - 3}"]}]), b" 3.0"),
        ((500, "text/plain", b"broken"), None),
        (vector([{"metric": {}, "value": [SUNDAY_S, "soon"]}]), None),
        (vector([]), None),
    ],
    ids=["told by Prometheus", "not told", "no number", "empty"],
)
async def test_the_skew_of_the_clocks(
    answer: Answer, expected: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.cluster.wall_clock_s", lambda: SUNDAY_S)
    with serving(lambda *_: answer) as fake:
        settings = Settings(prometheus=PrometheusSettings(url=fake.url))
        telemetry = Telemetry(False)
        client = PrometheusClient(prometheus_options(settings.prometheus))
        serve = serve_api(settings.serve)
        metrics = metrics_source(settings, client)
        source = ClusterSource(settings, serve_source(settings, serve), metrics, telemetry)
        await source.readings(SUNDAY_S, {})
        await serve.close()
        client.close()
    shown = b"leadtime_clock_skew_seconds" in telemetry.page()
    assert shown == (expected is not None)
    if expected is not None:
        assert b"\nleadtime_clock_skew_seconds" + expected in telemetry.page()


@pytest.mark.parametrize(
    ("changes", "chooses"),
    [
        ({}, True),
        ({"season_s": 3600.0}, True),
        ({"season_s": 1800.0}, False),
        ({"choice": {"enabled": False}}, False),
    ],
    ids=["by default", "an hour", "a compressed day", "switched off"],
)
def test_model_and_price_are_chosen_unless_days_are_compressed_or_it_is_switched_off(
    changes: dict[str, object], chooses: bool
) -> None:
    settings = Settings.model_validate(changes)
    assert planner_settings(settings, TARGET).chooses is chooses
    made = Planner(TARGET, planner_settings(Settings(), TARGET))
    made.weigh([Trial(DEFAULT, 100.0, 0.004), Trial(LAST_VALUE, 80.0, 0.004)])
    made.reconfigure(planner_settings(settings, TARGET))
    found = made.learned().choice
    assert (found is not None and found.candidate == LAST_VALUE) is chooses
    restarted = Planner(TARGET, planner_settings(settings, TARGET))
    restarted.restore(made.state())
    again = restarted.learned().choice
    assert again == found


def test_the_daemon_has_a_worker_for_replays(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {"journal": {"path": tmp_path / "journal.db"}, "choice": {"cpu_s": 60}}
    )
    daemon = build(settings)
    assert isinstance(daemon.loop.chooser, Rehearser)
    assert daemon.loop.chooser.idle
    daemon.journal.close()
