"""The floors that the policy inside Serve asks for: served over HTTP, or written to a file."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from controller.core.types import DeploymentId, Tick

PATH = "/api/v1/floors"

Fence = Callable[[], float]


class FloorBoard:
    """The floor of each deployment that is scaled by way of `policy`.

    `concerns` tells which those are. A floor is as old as the tick that decided it, so that a
    daemon whose ticks have stopped is as good as dead; it holds for `ttl_s`.
    """

    def __init__(
        self,
        concerns: Callable[[DeploymentId], bool],
        ttl_s: float,
        clock: Callable[[], float],
        file: Path | None = None,
    ) -> None:
        self._concerns = concerns
        self._ttl_s = ttl_s
        self._clock = clock
        self._file = file
        self._floors: dict[DeploymentId, tuple[int, float]] = {}
        self._asked_s: dict[DeploymentId, float] = {}
        self._first_s: dict[DeploymentId, float] = {}
        self._ticked = False

    @property
    def ticked(self) -> bool:
        """Whether there was a tick: before, no floor does not mean that there is none."""
        return self._ticked

    def publish(self, target: DeploymentId, replicas: int) -> None:
        """Have a floor from now on."""
        now_s = self._clock()
        self._first_s.setdefault(target, now_s)
        self._floors[target] = replicas, now_s

    def floor(self, target: DeploymentId) -> int | None:
        """The floor last published."""
        held = self._floors.get(target)
        return None if held is None else held[0]

    def record(self, tick: Tick) -> None:
        """Publish what a tick wants, changed or not; raises OSError if the file cannot be
        written."""
        self._ticked = True
        for decision, _ in tick.decisions:
            if self._concerns(decision.target):
                self.publish(decision.target, decision.plan.wanted)
        if self._file is not None and self._floors:
            self._write(self._file, tick.at_s)

    def document(self, target: DeploymentId | None = None) -> dict[str, Any]:
        """What the policy reads: the time to live, the age of the oldest floor, the floors."""
        now_s = self._clock()
        floors: dict[str, dict[str, int]] = {}
        age_s = 0.0
        for each, (replicas, at_s) in self._floors.items():
            if target in (None, each) and now_s - at_s < self._ttl_s:
                floors.setdefault(each.application, {})[each.deployment] = replicas
                age_s = max(age_s, now_s - at_s)
        return {"ttl_s": self._ttl_s, "age_s": round(age_s, 3), "floors": floors}

    def asked(self, target: DeploymentId) -> None:
        """Note that a deployment's policy has asked."""
        self._asked_s[target] = self._clock()

    def unread(self) -> list[str]:
        """Deployments whose policy has not asked for its floor for a time to live. A file tells
        nobody who reads it."""
        if self._file is not None:
            return []
        now_s = self._clock()
        return [
            f"{target}: its policy has not asked for a floor for {now_s - last_s:.0f} s; does its "
            "url reach us, and has Serve's controller the token?"
            for target, first_s in self._first_s.items()
            if now_s - (last_s := self._asked_s.get(target, first_s)) > self._ttl_s
        ]

    def _write(self, path: Path, at_s: float) -> None:
        """Whole or not at all: a reader never sees half a file."""
        new = path.with_name(path.name + ".new")
        new.write_text(json.dumps({**self.document(), "at_s": at_s}), encoding="utf-8")
        new.replace(path)


def floor_route(board: FloorBoard, fence: Fence) -> Route:
    """GET /api/v1/floors?application=...&deployment=...: 503 while another daemon leads (`fence`
    returns no seconds), and before the first tick."""

    def floors(request: Request) -> Response:
        asked: Mapping[str, str] = request.query_params
        target = None
        if "application" in asked and "deployment" in asked:
            target = DeploymentId(asked["application"], asked["deployment"])
            board.asked(target)
        if fence() <= 0:
            return JSONResponse({"error": "standby: not the one that leads"}, 503)
        if not board.ticked:
            return JSONResponse({"error": "no tick yet"}, 503)
        return JSONResponse(board.document(target))

    return Route(PATH, floors)
