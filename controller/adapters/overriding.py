"""Operators pin, pause and resume a deployment over HTTP; with the token, or not at all."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from controller.core.overrides import Effect, Override, Source
from controller.core.types import DeploymentId

PATH = "/api/v1/overrides"
KEY = "operator"
LONGEST_S = 7 * 86_400.0
MOST_BYTES = 10_000
KEYS = frozenset({"application", "deployment", "effect", "replicas", "for_s", "why", "by"})

Permit = Callable[[Request], str | None]


class Kept(Protocol):
    """Where overrides are kept; sqlite3.Error where they cannot be."""

    def put(self, target: DeploymentId, override: Override) -> None:
        """Have one, in place of that of the same id."""
        ...

    def revoke(self, target: DeploymentId, key: str, at_s: float, why: str) -> bool:
        """End one; False if there is none."""
        ...

    def all(self, at_s: float) -> Mapping[DeploymentId, tuple[Override, ...]]:
        """Those in force, by deployment."""
        ...


class Wrong(ValueError):
    """A request that changes nothing; its status and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Desk:
    """Takes what operators ask. One override of an operator's is in force for a deployment: a
    new one replaces it. `targets` tells the deployments known, `fence` for how many seconds we
    lead, `said` hears of each change."""

    def __init__(
        self,
        kept: Kept,
        targets: Callable[[], Sequence[DeploymentId]],
        clock: Callable[[], float],
        fence: Callable[[], float],
        said: Callable[[str], None],
    ) -> None:
        self._kept = kept
        self._targets = targets
        self._clock = clock
        self._fence = fence
        self._said = said

    def change(self, body: Any) -> dict[str, Any]:
        """Put or end an override as `body` says; raises Wrong, and nothing has changed then."""
        if not isinstance(body, dict) or not body.keys() <= KEYS:
            raise Wrong(400, f"must be an object with keys among {', '.join(sorted(KEYS))}")
        target = self._target(body)
        effect, why = body.get("effect"), _text(body, "why")
        reason = f"{why} (by {_text(body, 'by')})"
        if self._fence() <= 0:
            raise Wrong(503, "standby: another daemon leads; ask that one")
        now_s = self._clock()
        try:
            if effect == "resume":
                ended = self._kept.revoke(target, KEY, now_s, reason)
                self._said(f"{target} resumed: {reason}" if ended else f"{target}: nothing to end")
                return {"resumed": ended}
            override = _override(body, effect, reason, now_s)
            self._kept.put(target, override)
        except sqlite3.Error as error:
            raise Wrong(
                503, f"cannot be kept in the journal, nothing has changed: {error}"
            ) from None
        until = f"for {override.until_s - now_s:.0f} s"
        self._said(f"{target}: {effect} {override.replicas or ''} {until}: {reason}")
        return override.plain()

    def shown(self) -> list[dict[str, Any]]:
        """Every override in force, an alert's too."""
        now_s = self._clock()
        return [
            {
                "application": target.application,
                "deployment": target.deployment,
                **each.plain(),
                "left_s": round(each.until_s - now_s, 1),
            }
            for target, found in sorted(self._kept.all(now_s).items())
            for each in found
        ]

    def _target(self, body: Mapping[str, Any]) -> DeploymentId:
        target = DeploymentId(_text(body, "application"), _text(body, "deployment"))
        known = self._targets()
        if target not in known:
            there = ", ".join(map(str, known)) or "none yet"
            raise Wrong(404, f"{target} is no deployment that we scale; there are: {there}")
        return target


def override_route(desk: Desk, permit: Permit) -> Route:
    """GET shows what is in force; POST, with the token, changes it."""

    async def overrides(request: Request) -> Response:
        if request.method == "GET":
            return JSONResponse({"overrides": desk.shown()})
        refused = permit(request)
        if refused is not None:
            return JSONResponse({"error": refused}, 401)
        try:
            return JSONResponse(desk.change(await _body(request)))
        except Wrong as error:
            return JSONResponse({"error": str(error)}, error.status)

    return Route(PATH, overrides, methods=["GET", "POST"])


async def _body(request: Request) -> Any:
    read = b""
    async for part in request.stream():
        read += part
        if len(read) > MOST_BYTES:
            raise Wrong(413, f"at most {MOST_BYTES} bytes")
    try:
        return json.loads(read)
    except ValueError:
        raise Wrong(400, "the body must be JSON") from None


def _text(body: Mapping[str, Any], key: str) -> str:
    text = body.get(key)
    if not isinstance(text, str) or not text.strip() or len(text) > 500:
        raise Wrong(400, f"{key}: a text of 1 to 500 characters is needed")
    return text.strip()


def _seconds(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not isfinite(value) or not 0 < value <= LONGEST_S:
        raise Wrong(400, f"for_s: seconds, above 0 and at most {LONGEST_S:.0f}")
    return float(value)


def _override(body: Mapping[str, Any], effect: Any, why: str, now_s: float) -> Override:
    effects = {"pin": Effect.PIN, "pause": Effect.HOLD}
    if effect not in effects:
        raise Wrong(400, "effect: pin, pause or resume")
    for_s, replicas = _seconds(body.get("for_s")), body.get("replicas")
    if replicas is not None and type(replicas) is not int:
        raise Wrong(400, "replicas: a whole number")
    try:
        return Override(KEY, effects[effect], Source.OPERATOR, why, now_s, now_s + for_s, replicas)
    except ValueError as error:
        raise Wrong(400, str(error)) from None
