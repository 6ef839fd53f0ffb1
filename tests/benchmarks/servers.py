"""Prometheus and Ray's dashboard, imitated for ten deployments, in a process of their own.

Series, labels and sizes are those of Ray Serve 2.60; counters grow with the clock. Run as
`python -m tests.benchmarks.servers DEPLOYMENTS REPLICAS`; prints the port.
"""

import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

BEGAN_S = time.monotonic()
RAY = {
    "Component": "core_worker",
    "NodeAddress": "10.0.0.2",
    "SessionName": "session_2026-11-29_17-41-48_754244_7997",
    "Version": "2.60.0",
    "otel_scope_name": "ray._private.telemetry.open_telemetry_metric_recorder",
    "otel_scope_schema_url": "",
    "otel_scope_version": "",
    "instance": "10.0.0.2:8091",
    "job": "ray",
}
AUTOSCALING = {
    "min_replicas": 1,
    "max_replicas": 16,
    "target_ongoing_requests": 8.0,
    "initial_replicas": None,
}


class Cluster:
    """So many deployments with so many replicas each, four requests a second a replica."""

    def __init__(self, deployments: int, replicas: int) -> None:
        self.names = [f"llm{number}" for number in range(deployments)]
        self.replicas = replicas

    def query(self, query: str, now_s: float) -> list[dict[str, Any]]:
        """The answer to one of the daemon's instant queries."""
        if query.startswith("sum by") or query.startswith("group by"):
            return self._histogram(query, now_s)
        names = re.match(r'\{__name__=~"([^"]+)"', query)
        wanted = names[1].split("|") if names else []
        return [entry for name in wanted for entry in self._series(name, now_s)]

    def rates(self, start_s: float, end_s: float, step_s: float) -> list[dict[str, Any]]:
        """A fortnight of load, the same for every deployment."""
        count = int((end_s - start_s) / step_s) + 1
        values = [
            [start_s + place * step_s, str(4.0 * self.replicas * (1 + 0.3 * (place % 97) / 97))]
            for place in range(count)
        ]
        labels = [{"application": name, "deployment": "LLM"} for name in self.names]
        return [{"metric": label, "values": values} for label in labels]

    def applications(self) -> dict[str, Any]:
        """GET /api/serve/applications/."""
        return {
            "target_capacity": None,
            "applications": {name: self._application(name) for name in self.names},
        }

    def _series(self, name: str, now_s: float) -> list[dict[str, Any]]:
        served = (time.monotonic() - BEGAN_S) * 4.0
        per_replica = {
            "ray_serve_deployment_request_counter_total": served,
            "ray_serve_replica_processing_queries": 3.0,
        }
        per_router = {
            "ray_serve_num_router_requests_total": served * self.replicas,
            "ray_serve_deployment_queued_queries": 0.0,
        }
        found = []
        for app in self.names:
            labels = {**RAY, "__name__": name, "application": app, "deployment": "LLM"}
            if name in per_router:
                found.append(self._entry({**labels, "handle": "h"}, per_router[name], now_s))
            if name in per_replica:
                for number in range(self.replicas):
                    own = {**labels, "replica": f"{app}-{number}", "WorkerId": f"{number:056d}"}
                    found.append(self._entry(own, per_replica[name], now_s))
            if name.startswith("ray_vllm"):
                for number in range(self.replicas):
                    own = {**RAY, "__name__": name, "ReplicaId": f"{app}-{number}", "engine": "0"}
                    found.append(self._entry(own, served, now_s))
        return found

    def _entry(self, labels: dict[str, str], value: float, now_s: float) -> dict[str, Any]:
        samples = [[now_s - 10 * back - 1, str(max(value - 40 * back, 0))] for back in (2, 1, 0)]
        return {"metric": labels, "values": samples}

    def _histogram(self, query: str, now_s: float) -> list[dict[str, Any]]:
        if "client_ttft" not in query:
            return []
        bounds = ("0.1", "0.25", "0.5", "1.0", "2.0", "5.0", "+Inf")
        return [
            {
                "metric": {"application": app, "deployment": "LLM", "le": bound},
                "value": [now_s, str(10.0 * place)],
            }
            for app in self.names
            for place, bound in enumerate(bounds)
        ]

    def _application(self, name: str) -> dict[str, Any]:
        entry = {"name": "LLM", "autoscaling_config": AUTOSCALING}
        replicas = [
            {
                "replica_id": f"{name}-{number}",
                "state": "RUNNING",
                "start_time_s": 1.7e9,
                "pid": 1000 + number,
                "node_ip": "10.0.0.2",
                "node_id": "n" * 56,
                "actor_id": "a" * 32,
                "worker_id": "w" * 56,
                "actor_name": f"SERVE_REPLICA::{name}#LLM#{number}",
                "log_file_path": "/serve/replica.log",
            }
            for number in range(self.replicas)
        ]
        deployment = {
            "name": "LLM",
            "status": "HEALTHY",
            "message": "",
            "target_num_replicas": self.replicas,
            "required_resources": {"CPU": 1.0, "GPU": 1.0},
            "deployment_config": {"autoscaling_config": AUTOSCALING, "max_ongoing_requests": 16},
            "replicas": replicas,
        }
        return {
            "name": name,
            "status": "RUNNING",
            "message": "",
            "last_deployed_time_s": 1.7e9,
            "deployed_app_config": {"name": name, "import_path": "x:y", "deployments": [entry]},
            "source": "declarative",
            "external_scaler_enabled": False,
            "deployments": {"LLM": deployment},
        }


def serve(cluster: Cluster) -> None:
    """Answer until killed; the port is the first line printed."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            path = urlparse(self.path)
            asked = {key: values[0] for key, values in parse_qs(path.query).items()}
            body = json.dumps(_reply(cluster, path.path, asked)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def _reply(cluster: Cluster, path: str, asked: dict[str, str]) -> Any:
    now_s = time.clock_gettime(time.CLOCK_REALTIME)
    if path == "/api/v1/query":
        result = cluster.query(asked["query"], now_s)
        return {"status": "success", "data": {"result": result}}
    if path == "/api/v1/query_range":
        span = (float(asked[name]) for name in ("start", "end", "step"))
        return {"status": "success", "data": {"result": cluster.rates(*span)}}
    if path == "/api/serve/applications/":
        return cluster.applications()
    if path == "/nodes":
        return {"data": {"nodeLogicalResources": {"n": "4.0/512.0 CPU\n40.0/256.0 GPU"}}}
    if path == "/api/v0/placement_groups":
        return {"data": {"result": {"result": []}}}
    return {"ray_version": "2.60.0"}


if __name__ == "__main__":
    serve(Cluster(int(sys.argv[1]), int(sys.argv[2])))
