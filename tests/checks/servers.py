"""Ray's dashboard and Prometheus as recorded, changed at will: an application a mistake.

The recording: a real Ray Serve 2.60 with two GPUs (as resources) on which
`tests/e2e/misconfigured.py` and the served application, its ingress throttled, had been deployed,
and three requests of 2.5 s sent to `hasty`.
"""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controller.settings import Settings
from tests.adapters.fake_server import Answer, serving, vector

RECORDED = Path(__file__).parent.parent / "adapters/recorded"
SERVE: dict[str, Any] = json.loads((RECORDED / "check-serve.json").read_text())
PROMETHEUS: dict[str, Any] = json.loads((RECORDED / "check-prometheus.json").read_text())
PATHS = {
    "/api/serve/applications/": "applications",
    "/nodes": "nodes",
    "/api/v0/placement_groups": "placement_groups",
}
QUERIES = {
    "num_control_loops": "loops",
    "processing_latency": "stay",
    "ray_resources": "versions",
}
Change = Callable[[dict[str, Any]], object]


def ok(body: Any) -> Answer:
    return 200, "application/json", json.dumps(body).encode()


def unchanged(_: dict[str, Any]) -> None:
    """As recorded."""


@contextmanager
def recorded(
    change_serve: Change = unchanged, change_metrics: Change = unchanged
) -> Iterator[Settings]:
    """Both servers, and the settings that lead to them."""
    serve, metrics = copy.deepcopy(SERVE), copy.deepcopy(PROMETHEUS)
    change_serve(serve)
    change_metrics(metrics)

    def dashboard(path: str, _: dict[str, str]) -> Answer:
        if path == "/api/version":
            return ok({"ray_version": "2.60.0"})
        return ok(serve[PATHS[path]])

    def prometheus(_: str, parameters: dict[str, str]) -> Answer:
        query = parameters["query"]
        name = next((n for part, n in QUERIES.items() if part in query), None)
        if name is not None and metrics[name] is None:
            return 422, "application/json", b'{"status": "error", "error": "query is too large"}'
        return vector(metrics[name] if name else [])

    with serving(dashboard) as ray, serving(prometheus) as store:
        yield Settings.model_validate(
            {
                "serve": {"url": ray.url},
                "prometheus": {"url": store.url, "scrape_s": 1},
                "tick_s": 1,
            }
        )
