"""Who may ask our HTTP server, how often and how much: a layer around every endpoint."""

import asyncio
import hashlib
import hmac
import json
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Receive = Callable[[], Any]
Send = Callable[[Any], Any]
App = Callable[[Any, Receive, Send], Any]

OPEN = frozenset({"/healthz", "/readyz"})
READING = frozenset({"GET", "HEAD", "OPTIONS"})
MOST_CLIENTS = 1_000
WINDOW_S = 60.0
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
)
GUESSED = 429, "too many refused requests; wait a minute"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what one client may ask: bytes of a body, seconds a request may take to come in,
    refused and changing requests a minute."""

    body_bytes: int = 4 * 2**20
    request_s: float = 10.0
    refusals: int = 10
    changes: int = 60


@dataclass(frozen=True, slots=True)
class Audit:
    """One changing request: when, from where, with which token (the begin of its hash; empty
    without one), what, and what became of it."""

    at_s: float
    client: str
    token: str
    method: str
    path: str
    status: int


class Access:
    """Reading needs the read token where there is one (health does not: probes have none);
    changing needs an Authorization, which the endpoint judges. Too many refusals or changes a
    minute are 429 wherever a token is judged (what anyone may read stays readable), a body too
    large 413, one that trickles 408. Every changing request, refused or not, is told to
    `audit`."""

    def __init__(
        self,
        app: App,
        read_token: Callable[[], str | None],
        audit: Callable[[Audit], None],
        clock: Callable[[], float],
        limits: Limits = Limits(),
    ) -> None:
        self._app = app
        self._read_token = read_token
        self._audit = audit
        self._clock = clock
        self._limits = limits
        self._refused: OrderedDict[str, deque[float]] = OrderedDict()
        self._changed: OrderedDict[str, deque[float]] = OrderedDict()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """One request, as ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        client = (scope.get("client") or ("unknown",))[0]
        offered = _bearer(scope)
        changing = scope["method"] not in READING
        try:
            refusal = self._refusal(scope, client, offered, changing)
            if refusal is not None:
                await answer.say(*refusal)
            else:
                await self._pass(scope, receive, answer)
        finally:
            if answer.status in (401, 403):
                _note(self._refused, client, self._clock())
            if changing:
                self._tell(scope, client, offered, answer.status)

    def _refusal(
        self, scope: Any, client: str, offered: str, changing: bool
    ) -> tuple[int, str] | None:
        now_s = self._clock()
        guessed = _count(self._refused, client, now_s) >= self._limits.refusals
        if changing:
            _note(self._changed, client, now_s)
            if guessed:
                return GUESSED
            if _count(self._changed, client, now_s) > self._limits.changes:
                return 429, "too many changes; wait a minute"
            return None if offered else (401, "a changing request needs a bearer token")
        if scope["path"] in OPEN:
            return None
        try:
            expected = self._read_token()
        except OSError as error:
            return 503, f"http.read_token_file cannot be read: {error.strerror}"
        if expected and guessed:
            return GUESSED
        if expected and not hmac.compare_digest(offered.encode(), expected.encode()):
            return 401, "reading needs the bearer token of http.read_token_file"
        return None

    async def _pass(self, scope: Any, receive: Receive, answer: "_Answer") -> None:
        try:
            async with asyncio.timeout(self._limits.request_s):
                body = await _body(receive, self._limits.body_bytes)
        except TimeoutError:
            await answer.say(408, "the request did not come in in time")
            return
        if body is None:
            await answer.say(413, f"a body has at most {self._limits.body_bytes} bytes")
            return
        await self._app(scope, _given(body, receive), answer)

    def _tell(self, scope: Any, client: str, offered: str, status: int) -> None:
        shown = hashlib.sha256(offered.encode()).hexdigest()[:12] if offered else ""
        at_s, path = self._clock(), scope["path"]
        self._audit(Audit(at_s, client, shown, scope["method"], path[:200], status))


class _Answer:
    """What is sent, with our headers; remembers the status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            there = {name.lower() for name, _ in message.get("headers", ())}
            more = [header for header in HEADERS if header[0] not in there]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await self._send(message)

    async def say(self, status: int, error: str) -> None:
        body = json.dumps({"error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        headers.append((b"content-length", str(len(body)).encode()))
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if status == 429:
            headers.append((b"retry-after", b"60"))
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def _bearer(scope: Any) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if kind.lower() == "bearer" else ""
    return ""


async def _body(receive: Receive, most: int) -> bytes | None:
    """The whole body; None when it is larger than `most`."""
    parts, held, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            break
        parts.append(message.get("body", b""))
        held += len(parts[-1])
        if held > most:
            return None
        more = message.get("more_body", False)
    return b"".join(parts)


def _given(body: bytes, receive: Receive) -> Receive:
    """The body once, then whatever comes (that the client is gone)."""
    told = False

    async def give() -> Any:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give


def _note(times: OrderedDict[str, deque[float]], client: str, now_s: float) -> None:
    seen = times.setdefault(client, deque(maxlen=1_000))
    seen.append(now_s)
    times.move_to_end(client)
    while len(times) > MOST_CLIENTS:
        times.popitem(last=False)


def _count(times: OrderedDict[str, deque[float]], client: str, now_s: float) -> int:
    seen = times.get(client)
    if seen is None:
        return 0
    while seen and seen[0] < now_s - WINDOW_S:
        seen.popleft()
    return len(seen)
