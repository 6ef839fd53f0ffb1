"""Overrides, alerts and events put together as the daemon has them."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from controller.adapters.hook_metrics import HookMetrics
from controller.adapters.lease import JournalLease
from controller.adapters.store import Journal
from controller.core.notices import Kind
from controller.core.notices import made as made_notice
from controller.core.ports import Lease
from controller.core.types import Outcome, Tick
from controller.hooks import Hooks, build_hooks, secret_of
from controller.leading import Alone
from controller.settings import Settings, SettingsError
from controller.settings_hooks import SinkSettings, WebhookSettings
from tests.core.test_overrides import override
from tests.core.worlds import START_S, TARGET, World, planner


def hooks_of(tmp_path: Path, budget_h: float, lease: Lease | None = None) -> tuple[Hooks, Journal]:
    registry = CollectorRegistry()
    settings = Settings.model_validate(
        {
            "journal": {"path": tmp_path / "leadtime.db"},
            "webhooks": WebhookSettings(boost_budget_replica_h=budget_h),
            "sinks": [SinkSettings.model_validate({"name": "ops", "url": "http://ops"})],
        }
    )
    hooks = build_hooks(settings, registry, lambda: START_S, lambda *_: [], lease or Alone())
    journal = Journal(settings.journal.path, 86_400.0, hooks.outbox)
    return hooks, journal


async def test_boosts_end_when_their_budget_is_spent_and_that_is_said_once(tmp_path: Path) -> None:
    """Three replicas more for 10 s a tick: 0.05 replica-hours are spent after 6 of them."""
    hooks, journal = hooks_of(tmp_path, budget_h=0.05)
    live, made = World.with_replicas(4, rate_rps=12), planner()
    before = live.run(made, 60)[-1].plan.wanted
    hooks.overrides.put(TARGET, override("boost", replicas=3))
    wanted = []
    for _ in range(12):
        made.override(hooks.of(TARGET, live.at_s))
        decision = live.step(made)
        tick = Tick(live.at_s, ((decision, Outcome(decision.action, True, "")),), {})
        journal.record(tick)
        hooks.record(tick)
        wanted.append(decision.plan.wanted)
    assert wanted == [before + 3] * 7 + [before] * 5
    found = []
    while (letter := hooks.outbox.next("ops", live.at_s + 1)) is not None:
        found.append(letter.notice.kind)
        hooks.outbox.delivered(letter)
    assert found.count(Kind.BUDGET_EXHAUSTED) == 1
    assert found.count(Kind.SCALED) == 2
    await hooks.close()
    again, _ = hooks_of(tmp_path, budget_h=0.05)
    assert again.of(TARGET, live.at_s) == ()
    again.record(Tick(live.at_s + 90_000, (), {}))
    assert len(again.of(TARGET, live.at_s)) == 1
    await again.close()


def kinds_told(hooks: Hooks) -> list[Kind]:
    """Kinds of the events that wait for the sink, oldest first."""
    found = []
    while (letter := hooks.outbox.next("ops", START_S + 1)) is not None:
        found.append(letter.notice.kind)
        hooks.outbox.delivered(letter)
    return found


async def test_a_new_leader_tells_so_and_one_that_goes_on_does_not(tmp_path: Path) -> None:
    path = tmp_path / "leadtime.db"
    lease = JournalLease(path, "cluster", lambda: START_S, holder="first")
    hooks, _ = hooks_of(tmp_path, 1.0, lease)
    assert lease.renew()
    hooks.take_up()
    assert kinds_told(hooks) == [Kind.LEADER_CHANGED]
    lease.release()
    for holder, told in (("first", []), ("second", [Kind.LEADER_CHANGED])):
        lease = JournalLease(path, "cluster", lambda: START_S, holder=holder)
        hooks.lease = lease
        assert lease.renew()
        hooks.take_up()
        assert kinds_told(hooks) == told
        lease.release()
    await hooks.close()


async def test_a_disk_that_cannot_be_written_costs_the_event_and_not_the_daemon(
    tmp_path: Path,
) -> None:
    lease = JournalLease(tmp_path / "leadtime.db", "cluster", lambda: START_S)
    hooks, _ = hooks_of(tmp_path, 1.0, lease)
    assert lease.renew()
    with closing(sqlite3.connect(tmp_path / "leadtime.db")) as db:
        db.execute("DROP TABLE outbox")
    hooks.take_up()
    hooks.config_changed({"slo.max_replicas": "8 -> 9"})
    with pytest.raises(sqlite3.OperationalError):
        hooks.outbox.publish([made_notice(Kind.HELD, START_S, "as any other")])
    await hooks.close()


def test_a_secret_in_a_file_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "token"
    read = secret_of(None, file)
    assert read() is None
    file.write_text("one\n")
    assert read() == "one"
    file.write_text("two")
    assert read() == "two"


def test_a_file_that_is_no_journal_is_named(tmp_path: Path) -> None:
    (tmp_path / "leadtime.db").write_text("not a database" * 100)
    with pytest.raises(SettingsError, match=r"journal\.path"):
        hooks_of(tmp_path, 1.0)


def test_every_metric_is_named_and_shown() -> None:
    registry = CollectorRegistry()
    metrics = HookMetrics(registry)
    metrics.alert("fired", "QueueWaitHigh")
    metrics.event("ops", "delivered", "id")
    metrics.events_waiting("ops", 3)
    metrics.overridden(TARGET, {"boost": 1})
    metrics.boosted(60.0)
    page = generate_latest(registry).decode()
    for shown in (
        'leadtime_alerts_total{verdict="fired"} 1.0',
        'leadtime_events_total{outcome="delivered",sink="ops"} 1.0',
        'leadtime_events_waiting{sink="ops"} 3.0',
        'leadtime_overrides{application="app",deployment="llm",effect="boost"} 1.0',
        "leadtime_boosted_replica_seconds 60.0",
    ):
        assert shown in page
