"""Events out: kept with the decision, delivered at least once, each sink on its own."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from cloudevents.v1.http import from_http
from standardwebhooks.webhooks import Webhook

from controller.adapters.outbox import Filter, Letter, Outbox
from controller.adapters.sinks import Mailer, Sink, cloud_event, signature, slack_message
from controller.adapters.store import Journal, JournalError
from controller.core.notices import Kind, Notice, made
from controller.core.types import DeploymentId, Tick
from tests.core.worlds import TARGET

NOW_S = 1_760_000_000.0
SECRET = "whsec_bGVhZHRpbWUtdGVzdC1rZXktMDEyMzQ1Njc4OQ=="


def notice(number: int = 0, kind: Kind = Kind.SCALED, at_s: float = NOW_S) -> Notice:
    return made(kind, at_s + number, f"app/llm: {number} -> 5", TARGET, {"after": 5})


class Tells:
    """Notices that a tick is to tell."""

    def __init__(self) -> None:
        self.next: list[Notice] = []

    def __call__(self, _: Tick) -> list[Notice]:
        told, self.next = self.next, []
        return told


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leadtime.db"


@pytest.fixture
def tells() -> Tells:
    return Tells()


@pytest.fixture
def box(path: Path, tells: Tells) -> Iterator[Outbox]:
    made_box = Outbox(path, [Filter("ops"), Filter("quiet", frozenset({Kind.CONFLICT}))], tells)
    yield made_box
    made_box.close()


def test_notices_are_kept_with_the_decisions_or_not_at_all(
    path: Path, box: Outbox, tells: Tells
) -> None:
    journal = Journal(path, 3600.0, box)
    tells.next = [notice(1)]
    with pytest.raises((JournalError, TypeError)):
        journal.record(Tick(NOW_S, (), {TARGET: {"not json": object()}}))
    assert box.next("ops", NOW_S + 9) is None
    journal.record(Tick(NOW_S + 1, (), {}))
    letter = box.next("ops", NOW_S + 9)
    assert letter is not None
    assert letter.notice == notice(1)


def test_a_sink_gets_what_its_filter_lets_through(box: Outbox) -> None:
    elsewhere = made(Kind.SCALED, NOW_S, "", DeploymentId("other", "llm"))
    everyone = made(Kind.LEADER_CHANGED, NOW_S, "")
    only_app = Filter("one", applications=frozenset({"app"}))
    assert only_app.passes(notice())
    assert not only_app.passes(elsewhere)
    assert only_app.passes(everyone)
    box.publish([notice(), notice(1, Kind.CONFLICT)])
    assert box.waiting("ops") == (2, 0)
    assert box.waiting("quiet") == (1, 0)


def test_the_same_notice_is_kept_once(box: Outbox) -> None:
    box.publish([notice()])
    box.publish([notice()])
    assert box.waiting("ops") == (1, 0)


def test_dead_letters_and_those_of_former_sinks_are_dropped_in_time(
    path: Path, box: Outbox, tells: Tells
) -> None:
    box.publish([notice(), notice(1)])
    letter = box.next("ops", NOW_S + 9)
    assert letter is not None
    box.bury(letter, "gone")
    assert box.waiting("ops") == (1, 1)
    box.prune(NOW_S + 100)
    assert box.waiting("ops") == (1, 0)
    other = Outbox(path, [Filter("new")], tells)
    other.prune(NOW_S + 100)
    assert box.waiting("ops") == (0, 0)
    other.close()


def test_a_cloud_event_is_what_the_sdk_reads() -> None:
    headers = {"content-type": "application/cloudevents+json"}
    event = from_http(headers, cloud_event(notice()))
    attributes = dict(event.get_attributes())
    assert attributes["specversion"] == "1.0"
    assert attributes["type"] == "leadtime.scaled"
    assert attributes["subject"] == "app/llm"
    assert attributes["time"].startswith("2025-10-09T08:53:20")
    assert event.get_data() == {
        "text": "app/llm: 0 -> 5",
        "after": 5,
        "application": "app",
        "deployment": "llm",
    }


def test_the_signature_is_what_standard_webhooks_verify() -> None:
    body, timestamp = cloud_event(notice()), str(int(time.time()))  # noqa: TID251
    headers = {
        "webhook-id": "id",
        "webhook-timestamp": timestamp,
        "webhook-signature": signature(SECRET, "id", timestamp, body),
    }
    Webhook(SECRET).verify(body, headers)
    with pytest.raises(Exception, match="signature"):
        Webhook(SECRET).verify(body + b" ", headers)
    with pytest.raises(ValueError, match="base64"):
        signature("whsec_!", "id", timestamp, body)


def test_a_name_cannot_become_a_mention() -> None:
    evil = made(Kind.SCALED, NOW_S, "<!channel> & <b>", TARGET, {"after": 5, "before": None})
    message = json.loads(slack_message(evil))
    assert message["text"] == "Leadtime: &lt;!channel&gt; &amp; &lt;b&gt;"
    assert message["blocks"][1]["elements"][0]["text"] == "after 5"


class Post:
    """Two sinks behind a fake network, a clock, and what was told."""

    def __init__(self, box: Outbox, answer: Callable[[httpx.Request], Any]) -> None:
        self.box, self.answer = box, answer
        self.now_s = NOW_S + 10
        self.news = asyncio.Event()
        self.seen: list[httpx.Request] = []
        self.told: list[tuple[str, str]] = []
        self.shown: dict[str, int] = {}
        client = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        self.sinks = [
            Sink(name, f"http://{name}/", name == "slack", lambda: SECRET, 3600.0, client)
            for name in ("ops", "quiet")
        ]
        chance = np.random.default_rng(1)
        self.mailer: Mailer[Letter] = Mailer(box, self.sinks, lambda: self.now_s, self, chance)
        box.wake = self.mailer.wake

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        self.news.set()
        answer = self.answer(request)
        answered: httpx.Response = await answer if asyncio.iscoroutine(answer) else answer
        return answered

    def event(self, sink: str, outcome: str, detail: str) -> None:
        self.told.append((sink, outcome))
        self.news.set()
        assert "bGVhZHRpbWU" not in detail

    def events_waiting(self, sink: str, waiting: int) -> None:
        self.shown[sink] = waiting

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self.news.clear()
                await self.news.wait()


async def test_a_letter_is_delivered_signed_and_once(box: Outbox) -> None:
    post = Post(box, lambda _: httpx.Response(204))
    post.mailer.start()
    box.publish([notice()])
    await post.until(lambda: bool(post.told))
    await post.mailer.stop()
    assert post.told == [("ops", "delivered")]
    assert box.waiting("ops") == (0, 0)
    (request,) = post.seen
    assert request.headers["webhook-id"] == notice().id
    timestamp = request.headers["webhook-timestamp"]
    expected = signature(SECRET, notice().id, timestamp, request.content)
    assert request.headers["webhook-signature"] == expected


async def test_a_sink_that_is_down_is_tried_later_and_later_and_nothing_is_lost(
    box: Outbox,
) -> None:
    down = True
    post = Post(box, lambda _: httpx.Response(503 if down else 200))
    box.publish([notice()])
    post.mailer.start()
    pauses = []
    for tries in range(1, 8):
        await post.until(lambda tries=tries: len(post.told) == tries)  # type: ignore[misc]
        due_s = box.due_s("ops")
        assert due_s is not None
        pauses.append(due_s - post.now_s)
        post.now_s = due_s
        post.mailer.wake()
    whole_s = [min(2.0**n, 60.0) for n in range(len(pauses))]
    assert all(whole / 2 <= pause <= whole for whole, pause in zip(whole_s, pauses, strict=True))
    assert len({round(p / whole, 6) for p, whole in zip(pauses, whole_s, strict=True)}) > 1
    await post.until(lambda: len(post.told) == 8)
    down = False
    post.now_s += 400
    post.mailer.wake()
    await post.until(lambda: post.told[-1] == ("ops", "delivered"))
    await post.mailer.stop()
    assert post.shown["ops"] == 0


async def test_a_sink_that_is_back_gets_at_once_what_waited(box: Outbox) -> None:
    down = True
    post = Post(box, lambda _: httpx.Response(503 if down else 200))
    box.publish([notice(), notice(1)])
    post.mailer.start()
    await post.until(lambda: len(post.told) == 2)
    down = False
    box.publish([notice(2)])
    await post.until(lambda: post.told.count(("ops", "delivered")) == 3)
    await post.mailer.stop()


async def test_a_letter_that_cannot_be_delivered_is_dead_in_the_end(box: Outbox) -> None:
    post = Post(box, lambda _: httpx.Response(500))
    box.publish([notice()])
    post.now_s = NOW_S + 3601
    post.mailer.start()
    await post.until(lambda: bool(post.told))
    await post.mailer.stop()
    assert post.told == [("ops", "dead")]
    assert box.waiting("ops") == (0, 1)


async def test_a_daemon_that_does_not_lead_delivers_nothing(box: Outbox) -> None:
    post = Post(box, lambda _: httpx.Response(200))
    leading = False
    post.mailer = Mailer(
        box, post.sinks, lambda: post.now_s, post, np.random.default_rng(1), lambda: leading
    )
    box.wake = post.mailer.wake
    box.publish([notice()])
    post.mailer.start()
    for _ in range(3):
        await asyncio.sleep(0)
    assert post.seen == []
    leading = True
    post.mailer.wake()
    await post.until(lambda: post.told == [("ops", "delivered")])
    await post.mailer.stop()


async def test_a_sink_that_is_gone_is_not_asked_again(box: Outbox) -> None:
    post = Post(box, lambda _: httpx.Response(410))
    box.publish([notice()])
    post.mailer.start()
    await post.until(lambda: bool(post.told))
    await post.mailer.stop()
    assert post.told == [("ops", "dead")]


async def test_what_was_under_way_at_the_end_is_delivered_after_a_restart(
    path: Path, box: Outbox, tells: Tells
) -> None:
    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(3600)
        raise AssertionError

    post = Post(box, never)
    box.publish([notice()])
    post.mailer.start()
    await post.until(lambda: bool(post.seen))
    await post.mailer.stop()
    again = Post(Outbox(path, [Filter("ops")], tells), lambda _: httpx.Response(200))
    again.mailer.start()
    await again.until(lambda: bool(again.told))
    await again.mailer.stop()
    assert again.told == [("ops", "delivered")]


async def test_a_slow_sink_delays_neither_another_nor_a_tick(
    path: Path, box: Outbox, tells: Tells
) -> None:
    async def slow(request: httpx.Request) -> httpx.Response:
        if request.url.host == "ops":
            await asyncio.sleep(3600)
        return httpx.Response(200)

    post = Post(box, slow)
    journal = Journal(path, 3600.0, box)
    post.mailer.start()
    took_s = []
    for number in range(20):
        tells.next = [notice(number, Kind.CONFLICT)]
        began_s = time.monotonic()
        journal.record(Tick(NOW_S + number, (), {}))
        took_s.append(time.monotonic() - began_s)
        post.now_s = NOW_S + number
    await post.until(lambda: post.told.count(("quiet", "delivered")) == 20)
    assert box.waiting("ops")[0] == 20
    await post.mailer.stop()
    assert sorted(took_s)[10] < 0.5


async def test_a_broken_journal_ends_no_delivery(path: Path, box: Outbox) -> None:
    post = Post(box, lambda _: httpx.Response(200))
    other = sqlite3.connect(path)
    other.execute("ALTER TABLE outbox RENAME TO gone")
    post.mailer.start()
    await post.until(lambda: bool(post.told))
    assert post.told[0][1] == "failed"
    other.execute("ALTER TABLE gone RENAME TO outbox")
    other.close()
    box.publish([notice()])
    await post.until(lambda: ("ops", "delivered") in post.told)
    await post.mailer.stop()
