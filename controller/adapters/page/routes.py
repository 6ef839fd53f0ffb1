"""The page's routes: `/`, `/deployment`, its style and script, and /api/v1/explain."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from controller.adapters.page.chart import load_chart, replica_chart
from controller.adapters.page.history import Decisions, History, changes
from controller.core import words
from controller.core.explain import Promise, explained
from controller.core.overrides import Override
from controller.core.types import DeploymentId

REFRESH_S = 2.0
MOST_CHANGES = 8
MOST_TRAIL = 40
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


@dataclass(frozen=True, slots=True)
class View:
    """Where the page finds what it shows."""

    status: Callable[[], Mapping[str, Any]]
    history: History
    decisions: Decisions
    alerts: Callable[[], Sequence[Mapping[str, Any]]]
    overrides: Callable[[DeploymentId], Sequence[Override]]
    promise: Callable[[DeploymentId], Promise]
    clock: Callable[[], float]


def routes(view: View) -> list[BaseRoute]:
    """Every one of them only reads."""
    pages = _environment()

    # They run in the event loop, as the journal may be used from one thread at a time.
    async def overview(_: Request) -> Response:
        now_s, status = view.clock(), view.status()
        cards = [_card(view, latest, now_s) for latest in status["deployments"]]
        cards.sort(key=lambda card: (card["application"], card["deployment"]))
        shown = {"state": status, "cards": cards, "alerts": view.alerts()}
        return _page(pages, "overview.html", shown)

    async def deployment(request: Request) -> Response:
        try:
            target = _target(request)
        except ValueError as error:
            return _page(pages, "missing.html", {"said": str(error)}, 400)
        now_s, status = view.clock(), view.status()
        found = [d for d in status["deployments"] if _id(d) == target]
        if not found:
            said = f"There is no deployment {target}."
            return _page(pages, "missing.html", {"said": said}, 404)
        shown = {
            "state": status,
            "card": _card(view, found[0], now_s),
            "why": explained(found[0], now_s, view.promise(target)),
            "trail": changes(view.history.points(target), MOST_TRAIL),
            "alerts": [a for a in view.alerts() if _concerns(a["labels"], target)],
        }
        return _page(pages, "deployment.html", shown)

    async def explain(request: Request) -> Response:
        try:
            target, at_s = _target(request), _time(request)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        found = view.decisions(target, 1, at_s)
        if not found:
            return JSONResponse({"error": f"the journal holds no decision on {target} then"}, 404)
        asked_s = view.clock() if at_s is None else at_s
        return JSONResponse(explained(found[0], asked_s, view.promise(target)))

    return [
        Route("/", overview),
        Route("/deployment", deployment),
        Route("/page.css", _asset("page.css", "text/css")),
        Route("/page.js", _asset("page.js", "text/javascript")),
        Route("/api/v1/explain", explain),
    ]


def _environment() -> Environment:
    """Templates that escape whatever is put into them."""
    pages = Environment(
        loader=PackageLoader("controller.adapters.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {
        "number": _number,
        "percent": _percent,
        "seconds": _seconds,
        "clock": _clock,
        "in_words": words.in_words,
        "link": _link,
    }
    pages.globals["refresh_s"] = REFRESH_S
    return pages


def _page(pages: Environment, name: str, shown: Mapping[str, Any], status: int = 200) -> Response:
    html = pages.get_template(name).render(shown)
    return Response(html, status, HEADERS, "text/html; charset=utf-8")


def _asset(name: str, kind: str) -> Callable[[Request], Response]:
    content = files("controller.adapters.page").joinpath(name).read_bytes()

    def answer(_: Request) -> Response:
        return Response(content, headers={**HEADERS, "cache-control": "no-cache"}, media_type=kind)

    return answer


def _card(view: View, latest: Mapping[str, Any], now_s: float) -> dict[str, Any]:
    """What is shown of a deployment on both pages."""
    target = _id(latest)
    promise = view.promise(target)
    points = view.history.points(target)
    return {
        **latest,
        "age_s": now_s - latest["at_s"],
        "ttft_s": promise.ttft_s,
        "attainment": promise.attainment,
        "slo": view.history.slo(target, promise.attainment),
        "load": load_chart(points, now_s, latest["lead_s"]),
        "replicas": replica_chart(points, now_s),
        "changes": changes(points, MOST_CHANGES),
        "overrides": view.overrides(target),
        "now_s": now_s,
    }


def _id(latest: Mapping[str, Any]) -> DeploymentId:
    return DeploymentId(latest["application"], latest["deployment"])


def _concerns(labels: Mapping[str, str], target: DeploymentId) -> bool:
    application, deployment = labels.get("application"), labels.get("deployment")
    return application in (None, target.application) and deployment in (None, target.deployment)


def _target(request: Request) -> DeploymentId:
    asked = request.query_params
    unknown = asked.keys() - {"application", "deployment", "at_s"}
    if unknown:
        raise ValueError(f"{sorted(unknown)[0]}: no such parameter")
    if not {"application", "deployment"} <= asked.keys():
        raise ValueError("application and deployment must be said")
    return DeploymentId(asked["application"], asked["deployment"])


def _time(request: Request) -> float | None:
    text = request.query_params.get("at_s")
    try:
        return None if text is None else float(text)
    except ValueError:
        raise ValueError("at_s must be a number: seconds since the epoch") from None


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None, digits: int = 1) -> str:
    return "not measured" if value is None else f"{100 * value:.{digits}f} %"


def _seconds(value: float | None) -> str:
    if value is None:
        return "until it is over"
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def _clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S")


def _link(latest: Mapping[str, Any]) -> str:
    named = {key: latest[key] for key in ("application", "deployment")}
    return f"deployment?{urlencode(named)}"
