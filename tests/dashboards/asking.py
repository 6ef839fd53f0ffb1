"""Ask a real Prometheus what the panels ask, and say who got no answer."""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from dashboards.proof import PanelQuery, filled


@dataclass(frozen=True)
class Span:
    """A time range in seconds since the epoch, looked at every `step_s`."""

    start_s: float
    end_s: float
    step_s: float = 1.0


def unanswered(
    url: str, queries: Iterable[PanelQuery], values: Mapping[str, str], span: Span
) -> list[str]:
    """Panels with a query that gave no finite value in the span, each with its query."""
    found = []
    with httpx.Client(base_url=url, timeout=30) as client:
        for query in queries:
            expr = filled(query.expr, values)
            if not answered(client, expr, span):
                found.append(f"{query.dashboard} / {query.panel}: {expr}")
    return found


def answered(client: httpx.Client, expr: str, span: Span) -> bool:
    """Whether a query has a finite value somewhere in the span; a wrong one is an error."""
    answer = client.get(
        "/api/v1/query_range",
        params={"query": expr, "start": span.start_s, "end": span.end_s, "step": span.step_s},
    )
    body: dict[str, Any] = answer.json()
    assert body["status"] == "success", f"{expr}: {body.get('error')}"
    return any(
        math.isfinite(float(value))
        for series in body["data"]["result"]
        for _, value in series["values"]
    )


def wait_answered(url: str, expr: str, within_s: float = 20.0) -> None:
    """Wait until an instant query has an answer."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        answer = httpx.get(f"{url}/api/v1/query", params={"query": expr}, timeout=10)
        if answer.status_code == 200 and answer.json()["data"]["result"]:
            return
        time.sleep(0.2)
    raise AssertionError(f"no answer to {expr} within {within_s:.0f} s")
