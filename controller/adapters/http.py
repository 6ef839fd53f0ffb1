"""Our own HTTP server: health, metrics and a read-only API, on loopback by default."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from controller.core.records import record
from controller.core.signals import blindness
from controller.core.types import DeploymentId, Tick

MOST_DECISIONS = 10_000
MOST_CONNECTIONS = 256
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Decisions = Callable[[DeploymentId | None, int, float | None], list[dict[str, Any]]]


class Board:
    """What the last tick found and decided, for those who ask."""

    def __init__(self, mode: str, stale_s: float) -> None:
        self._mode = mode
        self._stale_s = stale_s
        self._latest: dict[DeploymentId, dict[str, Any]] = {}
        self._blind: dict[DeploymentId, str] = {}
        self._failures: tuple[str, ...] = ("no tick yet",)
        self._ticked_s: float | None = None

    def record(self, tick: Tick) -> None:
        """Take one tick's decisions, and what could not be read in it."""
        self._latest = {d.target: record(d, outcome) for d, outcome in tick.decisions}
        reasons = {d.target: blindness(d.observation) for d, _ in tick.decisions}
        self._blind = {target: why.value for target, why in reasons.items() if why is not None}
        self._ticked_s, self._failures = tick.at_s, tick.failures

    @property
    def targets(self) -> list[DeploymentId] | None:
        """The deployments of the last tick; None before the first."""
        return None if self._ticked_s is None else list(self._latest)

    def readiness(self, now_s: float) -> list[str]:
        """Why we are not ready: nothing when the data are fresh and Serve answers."""
        problems = list(self._failures)
        problems += [f"{target}: {why}" for target, why in sorted(self._blind.items())]
        if self._ticked_s is not None and now_s - self._ticked_s > self._stale_s:
            problems.append(f"last tick {now_s - self._ticked_s:.0f} s ago")
        if not self._latest and not problems:
            problems.append("no deployment found to scale")
        return problems

    def status(self, now_s: float) -> dict[str, Any]:
        """Everything known now."""
        problems = self.readiness(now_s)
        return {
            "mode": self._mode,
            "ready": not problems,
            "problems": problems,
            "ticked_s": self._ticked_s,
            "deployments": list(self._latest.values()),
        }

    def forecast(self) -> list[dict[str, Any]]:
        """The forecasts in force."""
        keys = ("at_s", "application", "deployment", "near", "ahead", "lead_s", "capacity_rps")
        return [{key: latest[key] for key in keys} for latest in self._latest.values()]


def application(
    board: Board,
    metrics_page: Callable[[], bytes],
    decisions: Decisions,
    clock: Callable[[], float],
    more: Sequence[BaseRoute] = (),
) -> Starlette:
    """The routes, which only read, and `more`."""

    def healthz(_: Request) -> Response:
        return JSONResponse({"alive": True})

    def readyz(_: Request) -> Response:
        problems = board.readiness(clock())
        return JSONResponse({"ready": not problems, "problems": problems}, 503 if problems else 200)

    def metrics(_: Request) -> Response:
        return Response(metrics_page(), media_type=METRICS_TYPE)

    def status(_: Request) -> Response:
        return JSONResponse(board.status(clock()))

    def forecast(_: Request) -> Response:
        return JSONResponse({"forecasts": board.forecast()})

    def history(request: Request) -> Response:
        try:
            target, limit, until_s = _asked(request)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({"decisions": decisions(target, limit, until_s)})

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Route("/api/v1/status", status),
            Route("/api/v1/forecast", forecast),
            Route("/api/v1/decisions", history),
            *more,
        ]
    )


class HttpServer:
    """Serves an application from the running event loop."""

    def __init__(self, app: Any, host: str, port: int, **tls: Any) -> None:
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                lifespan="off",
                server_header=False,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=5,
                **tls,
            )
        )
        self._address = host, port
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen; returns the port. Raises OSError when the address is taken."""
        host, port = self._address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # uvicorn exits the process when it cannot bind, so it is given a bound socket.
        try:
            listening = socket.create_server(self._address, family=family)
        except OSError as error:
            raise OSError(
                f"cannot listen on {host}:{port} ({error.strerror}); set http.host and http.port"
            ) from error
        self._task = asyncio.create_task(self._server.serve([listening]))
        return int(listening.getsockname()[1])

    async def stop(self) -> None:
        """Stop listening; open requests get a second."""
        self._server.should_exit = True
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                await asyncio.wait_for(self._task, 1.0)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the daemon's business."""
        yield


def _asked(request: Request) -> tuple[DeploymentId | None, int, float | None]:
    asked = request.query_params
    unknown = asked.keys() - {"application", "deployment", "limit", "until_s"}
    if unknown:
        raise ValueError(f"{sorted(unknown)[0]}: no such parameter")
    if ("application" in asked) != ("deployment" in asked):
        raise ValueError("application and deployment go together")
    target = (
        DeploymentId(asked["application"], asked["deployment"]) if "deployment" in asked else None
    )
    try:
        limit = int(asked.get("limit", "100"))
        until_s = float(asked["until_s"]) if "until_s" in asked else None
    except ValueError:
        raise ValueError("limit and until_s must be numbers") from None
    if not 1 <= limit <= MOST_DECISIONS:
        raise ValueError(f"limit must be from 1 to {MOST_DECISIONS}")
    return target, limit, until_s
