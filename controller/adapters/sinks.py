"""Events out: letters of the outbox as CloudEvents 1.0 or Slack messages, signed, over HTTP POST.

The signature is that of Standard Webhooks: headers webhook-id, webhook-timestamp (seconds) and
webhook-signature, "v1," and the base64 of HMAC-SHA256 over "id.timestamp.body".
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar

import httpx
import numpy as np

from controller.core.notices import Notice

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
IDLE_S = 60.0
STANDBY_S = 1.0
GONE = 410
SECRET_PREFIX = "whsec_"


class Mail(Protocol):
    """One letter."""

    @property
    def notice(self) -> Notice:
        """What it says."""
        ...

    @property
    def created_s(self) -> float:
        """When it was written."""
        ...

    @property
    def tries(self) -> int:
        """How often it was tried."""
        ...


M = TypeVar("M", bound=Mail)


class Box(Protocol[M]):
    """Where letters wait."""

    def next(self, sink: str, now_s: float) -> M | None:
        """The oldest letter that is due."""
        ...

    def due_s(self, sink: str) -> float | None:
        """When the next letter is due."""
        ...

    def delivered(self, letter: M) -> None:
        """Take a letter out."""

    def failed(self, letter: M, due_s: float, error: str) -> None:
        """Try a letter again at a time."""

    def revive(self, sink: str, now_s: float) -> None:
        """Have all that waits for a sink due now."""

    def bury(self, letter: M, error: str) -> None:
        """Try a letter no more."""

    def waiting(self, sink: str) -> tuple[int, int]:
        """Letters waiting, and dead ones."""
        ...


class Told(Protocol):
    """Who hears what became of each try."""

    def event(self, sink: str, outcome: str, detail: str) -> None:
        """A try is over: delivered, failed or dead."""

    def events_waiting(self, sink: str, waiting: int) -> None:
        """So many letters wait."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Where events go, and how; `secret` reads the key of the signature, None for none."""

    name: str
    url: str
    slack: bool
    secret: Callable[[], str | None]
    give_up_s: float
    client: httpx.AsyncClient


def cloud_event(notice: Notice) -> bytes:
    """A notice as a CloudEvent in structured mode."""
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": notice.id,
        "source": "/leadtime",
        "type": f"leadtime.{notice.kind.value}",
        "time": datetime.fromtimestamp(notice.at_s, UTC).isoformat(),
        "datacontenttype": "application/json",
        "data": {"text": notice.text, **notice.data},
    }
    if notice.target is not None:
        event["subject"] = str(notice.target)
        event["data"] |= notice.target._asdict()
    return json.dumps(event).encode()


def slack_message(notice: Notice) -> bytes:
    """A notice as Slack's incoming webhooks take it; names cannot become mentions or links."""
    text = notice.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = [f"{name} {value}" for name, value in notice.data.items() if value is not None]
    context = {"type": "mrkdwn", "text": " · ".join(shown) or notice.kind.value}
    section = {"type": "section", "text": {"type": "mrkdwn", "text": f"*Leadtime* {text}"}}
    blocks = [section, {"type": "context", "elements": [context]}]
    return json.dumps({"text": f"Leadtime: {text}", "blocks": blocks}).encode()


def signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """The value of webhook-signature. A secret that begins with whsec_ is base64 after it."""
    key = secret.encode()
    if secret.startswith(SECRET_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error as error:
            raise ValueError("a secret that begins with whsec_ must be base64 after it") from error
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


class Mailer(Generic[M]):
    """Delivers at least once, each sink on its own; nothing here is waited for by a tick. Of
    several daemons the one that `leads` delivers."""

    def __init__(
        self,
        box: Box[M],
        sinks: Sequence[Sink],
        clock: Callable[[], float],
        told: Told,
        chance: np.random.Generator,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._box = box
        self._sinks = sinks
        self._now = clock
        self._told = told
        self._chance = chance
        self._leads = leads
        self._news = {sink.name: asyncio.Event() for sink in sinks}
        self._tasks: list[asyncio.Task[None]] = []

    def wake(self) -> None:
        """Look again: something was put in."""
        for news in self._news.values():
            news.set()

    def start(self) -> None:
        """Deliver from now on, in the running event loop."""
        self._tasks = [asyncio.create_task(self._serve(sink)) for sink in self._sinks]

    async def stop(self) -> None:
        """Stop; what is under way is tried again after a restart."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for sink in self._sinks:
            await sink.client.aclose()

    def pause_s(self, tries: int) -> float:
        """How long to wait after so many failed tries: doubled each time, at random between half
        and all of it, at most a minute."""
        whole_s = min(FIRST_PAUSE_S * 2.0 ** min(tries, 20), LONGEST_PAUSE_S)
        return float(whole_s * self._chance.uniform(0.5, 1.0))

    async def _serve(self, sink: Sink) -> None:
        news = self._news[sink.name]
        while True:
            news.clear()
            try:
                wait_s = await self._deliver_due(sink)
            except sqlite3.Error as error:
                self._told.event(sink.name, "failed", f"journal: {error}")
                wait_s = IDLE_S
            try:
                async with asyncio.timeout(wait_s):
                    await news.wait()
            except TimeoutError:
                continue

    async def _deliver_due(self, sink: Sink) -> float:
        """Deliver what is due; returns the seconds until more is."""
        if not self._leads():
            return STANDBY_S
        while (letter := self._box.next(sink.name, self._now())) is not None:
            await self._deliver(sink, letter)
            self._told.events_waiting(sink.name, self._box.waiting(sink.name)[0])
        self._told.events_waiting(sink.name, self._box.waiting(sink.name)[0])
        due_s = self._box.due_s(sink.name)
        return IDLE_S if due_s is None else min(max(due_s - self._now(), 0.01), IDLE_S)

    async def _deliver(self, sink: Sink, letter: M) -> None:
        error, gone = await self._post(sink, letter.notice)
        if error is None:
            self._box.delivered(letter)
            # It is back: what waited for it need not wait on.
            self._box.revive(sink.name, self._now())
            self._told.event(sink.name, "delivered", letter.notice.id)
            return
        detail = f"{letter.notice.id}: {error}"
        due_s = self._now() + self.pause_s(letter.tries)
        if gone or due_s > letter.created_s + sink.give_up_s:
            self._box.bury(letter, error)
            self._told.event(sink.name, "dead", detail)
        else:
            self._box.failed(letter, due_s, error)
            self._told.event(sink.name, "failed", detail)

    async def _post(self, sink: Sink, notice: Notice) -> tuple[str | None, bool]:
        """What went wrong, if anything, and whether the sink never wants it."""
        body = slack_message(notice) if sink.slack else cloud_event(notice)
        kind = "application/json" if sink.slack else "application/cloudevents+json"
        headers = {"content-type": kind}
        try:
            secret = sink.secret()
            if secret:
                headers |= _signed(secret, notice.id, self._now(), body)
            answer = await sink.client.post(sink.url, content=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            return type(error).__name__, False
        if answer.is_success:
            return None, False
        return f"answered {answer.status_code}", answer.status_code == GONE


def _signed(secret: str, message_id: str, now_s: float, body: bytes) -> dict[str, str]:
    timestamp = str(int(now_s))
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": signature(secret, message_id, timestamp, body),
    }
