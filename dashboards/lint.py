"""Our own rules for dashboards. A broken one fails the build and is named with its panel."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from dashboards.build import as_dict
from dashboards.model import Dashboard

RANGED = re.compile(r"\b(?:rate|increase|irate|delta|deriv)\(")
WINDOW = re.compile(r"\[([^\]:]+)(?::[^\]]*)?\]")
WINDOWS = ("$__rate_interval", "$__range", "$__interval")
FIXED = re.compile(
    r"\b(application|deployment|replica|model_name|instance|job|ip|node|ReplicaId|SessionName)"
    r'\s*=~?\s*"([^"$]*)"'
)
FILLED = re.compile(r"\bvector\(\s*0\s*\)")
SUM = re.compile(r"\bray_[a-z0-9_]+_sum\b")
UNITS = frozenset(
    {
        "short", "reqps", "s", "percent", "percentunit", "bytes", "decmbytes", "watt", "watth",
    }
)  # fmt: skip


def problems(board: Dashboard) -> list[str]:
    """What breaks a rule in a dashboard, each as `uid / panel: what`."""
    made = as_dict(board)
    found = [f"{board.uid}: {said}" for said in _of_dashboard(made)]
    for panel in made["panels"]:
        if panel["type"] != "row":
            found += [f"{board.uid} / {panel['title']}: {said}" for said in _of_panel(panel)]
    return found


def of_query(expr: str) -> Iterator[str]:
    """What is wrong with one query."""
    if FILLED.search(expr):
        yield "vector(0): an absent series is not zero"
    if SUM.search(expr):
        yield "Ray's _sum is not exact; take quantiles from buckets"
    for label, value in FIXED.findall(expr):
        yield f'{label}="{value}" is written into the query; use a variable'
    for window in WINDOW.findall(expr):
        if window not in WINDOWS:
            yield f"[{window}] is a fixed window; use [$__rate_interval]"
    for at in RANGED.finditer(expr):
        window = WINDOW.search(expr, at.end())
        if window is None or window[1] not in ("$__rate_interval", "$__range"):
            yield "rate and increase need [$__rate_interval]"


def _of_dashboard(made: dict[str, Any]) -> Iterator[str]:
    ids = [panel["id"] for panel in made["panels"]]
    if len(ids) != len(set(ids)):
        yield "panel ids are not unique"
    titles = [panel["title"] for panel in made["panels"]]
    for title in sorted({title for title in titles if titles.count(title) > 1}):
        yield f"two panels are called {title!r}"
    if not made.get("description"):
        yield "has no description"
    variables = made["templating"]["list"]
    if not variables or variables[0]["type"] != "datasource":
        yield "has no variable for the datasource"
    for query in (v for v in variables if v["type"] == "query"):
        if query["datasource"]["uid"] != "${datasource}":
            yield f"variable {query['name']} does not use the datasource variable"
    yield from _overlaps(made["panels"])


def _overlaps(panels: Iterable[dict[str, Any]]) -> Iterator[str]:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place = panel["gridPos"]
        if place.get("x", 0) + place["w"] > 24:
            yield f"{panel['title']} reaches beyond the right edge"
        for x in range(place.get("x", 0), place.get("x", 0) + place["w"]):
            for y in range(place.get("y", 0), place.get("y", 0) + place["h"]):
                other = taken.setdefault((x, y), panel["title"])
                if other != panel["title"]:
                    yield f"{panel['title']} lies on {other}"
                    return


def _of_panel(panel: dict[str, Any]) -> Iterator[str]:
    if len(panel.get("description", "")) < 15:
        yield "has no description"
    unit = panel["fieldConfig"]["defaults"].get("unit")
    if unit not in UNITS:
        yield f"unit {unit!r} is not one of ours"
    if panel["datasource"]["uid"] != "${datasource}":
        yield "does not use the datasource variable"
    if not panel.get("targets"):
        yield "has no query"
    for target in panel.get("targets", ()):
        if target["datasource"]["uid"] != "${datasource}":
            yield "a query does not use the datasource variable"
        if not target.get("legendFormat"):
            yield "a query has no legend"
        yield from of_query(target["expr"])
