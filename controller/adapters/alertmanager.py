"""Alertmanager's notifications in: POST /webhooks/alertmanager, payload version 4."""

import asyncio
import hmac
import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import AwareDatetime, BaseModel, Field, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from controller.core.overrides import Override
from controller.core.reactions import Alert, Episode, Reaction, Verdict, judged
from controller.core.types import DeploymentId

PATH = "/webhooks/alertmanager"
BODY_TIMEOUT_S = 5.0
MOST_AHEAD_S = 300.0
MOST_ALERTS = 1000
TABLES = """
CREATE TABLE IF NOT EXISTS alerts (
    fingerprint TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    summary TEXT NOT NULL,
    labels TEXT NOT NULL,
    starts_s REAL NOT NULL,
    firing INTEGER NOT NULL,
    over_s REAL,
    received_s REAL NOT NULL
);
"""

Text = Annotated[str, Field(max_length=10_000)]
Labels = Annotated[dict[Annotated[str, Field(max_length=1000)], Text], Field(max_length=200)]


class _AlertBody(BaseModel):
    status: Literal["firing", "resolved"]
    labels: Labels
    annotations: Labels = {}
    startsAt: AwareDatetime
    fingerprint: str = Field(pattern=r"^[0-9a-f]{1,32}$")


class _Notification(BaseModel):
    version: Literal["4"]
    alerts: Annotated[list[_AlertBody], Field(min_length=1, max_length=MOST_ALERTS)]


class KeepsOverrides(Protocol):
    """Where overrides are kept."""

    def put(self, target: DeploymentId, override: Override) -> None:
        """Have an override; one of the same id is replaced."""

    def revoke(self, target: DeploymentId, key: str, at_s: float, why: str) -> bool:
        """End an override now."""
        ...

    def bearers(self, key: str) -> list[DeploymentId]:
        """The deployments that have an override of that id."""
        ...


class RefusedBody(ValueError):
    """A notification that is not taken: the status to answer and what is wrong with it."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


def parsed(body: bytes, now_s: float) -> list[Alert]:
    """The alerts of a notification; raises RefusedBody that names the field."""
    try:
        notification = _Notification.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise RefusedBody(400, f"{where}: {first['msg']}") from None
    alerts = [_alert(entry) for entry in notification.alerts]
    for at, alert in enumerate(alerts):
        if alert.starts_s > now_s + MOST_AHEAD_S:
            ahead_s = alert.starts_s - now_s
            raise RefusedBody(400, f"alerts.{at}.startsAt: {ahead_s:.0f} s ahead of our clock")
    return alerts


def _alert(entry: _AlertBody) -> Alert:
    summary = entry.annotations.get("summary", "")
    firing = entry.status == "firing"
    return Alert(entry.fingerprint, firing, entry.startsAt.timestamp(), entry.labels, summary)


class AlertDesk:
    """Turns alerts into overrides and remembers every alert, in the journal's file."""

    def __init__(
        self, path: Path, reactions: Sequence[Reaction], overrides: KeepsOverrides
    ) -> None:
        self._reactions = reactions
        self._overrides = overrides
        self._db = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(TABLES)

    def take(
        self, alerts: Iterable[Alert], known: Sequence[DeploymentId], now_s: float
    ) -> list[tuple[Alert, Verdict, list[str]]]:
        """Act on alerts; returns each with its verdict and what was done. Raises sqlite3.Error:
        sent again, the notification then has the effect that it would have had."""
        return [(alert, *self._take(alert, known, now_s)) for alert in alerts]

    def alerts(self, since_s: float, limit: int = 100) -> list[dict[str, Any]]:
        """The alerts that fire, or were told about since `since_s`; firing first, then newest."""
        rows = self._db.execute(
            "SELECT fingerprint, name, summary, labels, starts_s, firing, received_s FROM alerts "
            "WHERE firing OR received_s >= ? ORDER BY firing DESC, received_s DESC LIMIT ?",
            (since_s, limit),
        )
        keys = ("fingerprint", "name", "summary", "labels", "starts_s", "firing", "received_s")
        found = [dict(zip(keys, row, strict=True)) for row in rows]
        return [
            {**row, "labels": json.loads(row["labels"]), "firing": bool(row["firing"])}
            for row in found
        ]

    def prune(self, before_s: float) -> None:
        """Forget alerts last heard of before a time."""
        self._db.execute("DELETE FROM alerts WHERE received_s < ?", (before_s,))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _take(
        self, alert: Alert, known: Sequence[DeploymentId], now_s: float
    ) -> tuple[Verdict, list[str]]:
        verdict, episode = judged(alert, self._last(alert.fingerprint))
        done: list[str] = []
        # Overrides first: were we to end in between, the alert would come again and be news still.
        if verdict is Verdict.FIRED:
            done = self._raise(alert, known, now_s)
        elif verdict is Verdict.RESOLVED:
            done = self._revoke(alert, now_s)
        if verdict is not Verdict.REPLAYED:
            self._remember(alert, episode, now_s)
        return verdict, done

    def _raise(self, alert: Alert, known: Sequence[DeploymentId], now_s: float) -> list[str]:
        done = []
        for reaction in self._reactions:
            if not reaction.answers(alert):
                continue
            override = reaction.override(alert, now_s)
            for target in reaction.targets(alert, known):
                self._overrides.put(target, override)
                done.append(f"{reaction.effect} {target} by {reaction.name}")
        return done

    def _revoke(self, alert: Alert, now_s: float) -> list[str]:
        keys = {reaction.name: reaction.key(alert) for reaction in self._reactions}
        return [
            f"revoked {target} by {name}"
            for name, key in keys.items()
            for target in self._overrides.bearers(key)
            if self._overrides.revoke(target, key, now_s, "alert resolved")
        ]

    def _last(self, fingerprint: str) -> Episode | None:
        row = self._db.execute(
            "SELECT starts_s, firing, over_s FROM alerts WHERE fingerprint = ?", (fingerprint,)
        ).fetchone()
        if row is None:
            return None
        over_s = float("-inf") if row[2] is None else row[2]
        return Episode(row[0], bool(row[1]), over_s)

    def _remember(self, alert: Alert, episode: Episode, now_s: float) -> None:
        over_s = None if episode.over_s == float("-inf") else episode.over_s
        labels = json.dumps(dict(alert.labels))
        about = alert.fingerprint, alert.name, alert.summary, labels
        self._db.execute(
            "INSERT OR REPLACE INTO alerts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*about, episode.starts_s, episode.firing, over_s, now_s),
        )


def route(
    desk: AlertDesk,
    token: Callable[[], str | None],
    known: Callable[[], Sequence[DeploymentId] | None],
    clock: Callable[[], float],
    told: Callable[[str, str], None],
    max_body_bytes: int,
) -> Route:
    """The endpoint. `token` reads the bearer token, None where there is none; `known` gives the
    deployments, None before the first tick and where another daemon leads; `told` hears verdict
    and detail of each alert."""

    async def take(request: Request) -> Response:
        try:
            _authorize(request, token())
            body = await _body(request, max_body_bytes)
            now_s, targets = clock(), known()
            alerts = parsed(body, now_s)
            if targets is None:
                raise RefusedBody(503, "no tick yet, or another daemon leads: send it again")
            taken = desk.take(alerts, targets, now_s)
        except RefusedBody as refused:
            told("refused", f"{refused.status}: {refused}")
            return _answer(refused.status, {"error": str(refused)})
        except sqlite3.Error as error:
            told("failed", f"journal: {error}")
            return _answer(503, {"error": "the journal cannot be written: send it again"})
        for alert, verdict, done in taken:
            told(verdict.value, f"{alert.name} {alert.fingerprint}: {', '.join(done) or 'nothing'}")
        return _told(taken)

    return Route(PATH, take, methods=["POST"])


def _told(taken: list[tuple[Alert, Verdict, list[str]]]) -> Response:
    verdicts = {verdict for _, verdict, _ in taken}
    shown = [
        {"fingerprint": alert.fingerprint, "verdict": verdict.value, "done": done}
        for alert, verdict, done in taken
    ]
    news = verdicts & {Verdict.FIRED, Verdict.RESOLVED}
    if Verdict.REPLAYED in verdicts and not news:
        return _answer(409, {"error": "a notification of what is over already", "alerts": shown})
    return _answer(200, {"alerts": shown})


def _authorize(request: Request, token: str | None) -> None:
    if not token:
        raise RefusedBody(403, "set webhooks.token or webhooks.token_file to take notifications")
    given = request.headers.get("authorization", "")
    scheme, _, offered = given.partition(" ")
    right = hmac.compare_digest(offered.strip().encode(), token.encode())
    if scheme.lower() != "bearer" or not right:
        raise RefusedBody(401, "the bearer token is wrong or missing")


async def _body(request: Request, most: int) -> bytes:
    """The body, read only as far as it may be long."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise RefusedBody(415, "content-type must be application/json")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > most:
        raise RefusedBody(413, f"larger than webhooks.max_body_bytes ({most})")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise RefusedBody(413, f"larger than webhooks.max_body_bytes ({most})")
    except TimeoutError:
        raise RefusedBody(408, f"the body took longer than {BODY_TIMEOUT_S:.0f} s") from None
    except ClientDisconnect:
        raise RefusedBody(400, "the body ended early") from None
    return bytes(body)


def _answer(status: int, content: dict[str, Any]) -> Response:
    headers = {"www-authenticate": "Bearer"} if status == 401 else {}
    if status == 503:
        headers["retry-after"] = "5"
    return JSONResponse(content, status, headers)
