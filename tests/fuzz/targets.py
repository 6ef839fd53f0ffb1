"""What is fuzzed: every parser of bytes from outside, each with seeds and with what it may raise.

A target takes any bytes. It raises only what it documents (`allowed`); whatever it lets through
must keep the promises asserted here. Anything else is a crash.
"""

import asyncio
import contextlib
import gzip
import io
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import numpy as np
import requests

from controller.adapters.alertmanager import (
    MOST_AHEAD_S,
    MOST_ALERTS,
    AlertDesk,
    RefusedBody,
    parsed,
)
from controller.adapters.overrides import Overrides
from controller.adapters.prometheus.backfill import Backfill
from controller.adapters.prometheus.client import (
    PrometheusClient,
    PrometheusError,
    PrometheusOptions,
)
from controller.adapters.prometheus.session import BoundedSession
from controller.adapters.prometheus.source import PrometheusSource
from controller.adapters.serve.api import ServeApi, ServeError
from controller.adapters.serve.view import Actuation
from controller.commands.recordings import LoadError, from_file
from controller.core.overrides import Effect
from controller.core.reactions import Reaction, Verdict
from controller.core.signals import Freshness, SignalReader
from controller.settings import SettingsError, load
from serve_app.trace_files import BadTrace, read_trace
from tests.core.worlds import START_S, TARGET, World

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "adapters" / "recorded"


NOTIFIED_S = 1_800_000_000.0
REACTION_S = 900.0
VALID_ALERT = {
    "summary": "Requests wait",
    "alertname": "ServeQueueWaitHigh",
    "application": "app",
    "startsAt": "2026-11-30T03:10:00.5+01:00",
    "fingerprint": "0a1b",
    "status": "firing",
}
REPLICAS = World.with_replicas(2).readings().replicas


@dataclass(frozen=True)
class Target:
    """`run` is given bytes and raises nothing but `allowed`; `seeds` show it what is valid."""

    run: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    allowed: tuple[type[BaseException], ...] = ()


def _answering(body: bytes) -> Any:
    """Every request of the Prometheus client is answered with this body."""

    def request(*_: Any, **__: Any) -> requests.Response:
        answer = requests.Response()
        answer.status_code = 200
        answer.raw = io.BytesIO(body)
        return answer

    return mock.patch.object(BoundedSession, "request", request)


@cache
def _client() -> PrometheusClient:
    return PrometheusClient(PrometheusOptions("http://127.0.0.1:1"))


def _prometheus(body: bytes) -> None:
    """An answer to every query of a tick, judged twice, so that counters are differenced."""
    reader = SignalReader(Freshness.of_scrape(5.0))
    with _answering(body):
        view = PrometheusSource(_client(), {}, 5.0).read(START_S, {TARGET: REPLICAS}, {TARGET: 2.0})
        for at_s in (START_S, START_S + 5):
            seen = reader.observe(replace(view.readings[TARGET], at_s=at_s))
            assert seen.demand is None or 0 <= seen.demand.arrivals < 1e18
            if seen.load is not None:
                assert 0 <= seen.load.queued < 1e18
                assert 0 <= seen.load.ongoing < 1e18
                assert seen.load.late_ratio is None or 0 <= seen.load.late_ratio < 1.01


def _history(body: bytes) -> None:
    """Answers to the queries for the past, and to those of `leadtime check`."""
    with _answering(body):
        Backfill(_client(), {}, 5.0, 10.0, 60.0).read(START_S, 600.0, lambda _: None)
        source = PrometheusSource(_client(), {}, 5.0)
        source.ambiguities()
        source.bounds({TARGET: REPLICAS})


def _serve(body: bytes) -> None:
    """Serve's applications; what is read is planned with."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=body))
    api = ServeApi(httpx.AsyncClient(base_url="http://serve", transport=transport))
    view = asyncio.run(api.view(resources=False))
    for target, deployment in view.deployments.items():
        replicas = view.replicas(target, Actuation.FLOOR, elastic=True)
        assert 0 <= replicas.ready <= len(replicas.members)
        assert replicas.requested >= 0
        deployment.refusal(Actuation.FLOOR)
        deployment.refusal(Actuation.EXTERNAL)


def _nodes(body: bytes) -> None:
    applications = json.dumps({"applications": {}}).encode()

    def answer(request: httpx.Request) -> httpx.Response:
        nodes = request.url.path == "/nodes"
        return httpx.Response(200, content=body if nodes else applications)

    transport = httpx.MockTransport(answer)
    api = ServeApi(httpx.AsyncClient(base_url="http://serve", transport=transport))
    asyncio.run(api.view())


@cache
def _desk() -> tuple[AlertDesk, Overrides]:
    """A desk in memory; one reaction answers every alert."""
    overrides = Overrides(Path(":memory:"))
    reaction = Reaction("any", {}, Effect.BOOST, REACTION_S, replicas=2)
    return AlertDesk(Path(":memory:"), (reaction,), overrides), overrides


def _webhook(body: bytes) -> None:
    """A notification, acted on as if it were the first, then its last alert once more."""
    alerts = parsed(body, NOTIFIED_S)
    assert alerts
    assert all(alert.starts_s <= NOTIFIED_S + MOST_AHEAD_S for alert in alerts)
    desk, overrides = _desk()
    desk.prune(NOTIFIED_S + 1)
    overrides.prune(NOTIFIED_S + REACTION_S, 0.0)
    desk.take(alerts, (TARGET,), NOTIFIED_S)
    told = {alert.fingerprint for alert in alerts}
    assert {row["fingerprint"] for row in desk.alerts(NOTIFIED_S, MOST_ALERTS)} == told
    for override in overrides.of(TARGET, NOTIFIED_S):
        assert override.until_s == NOTIFIED_S + REACTION_S
    again = desk.take(alerts[-1:], (TARGET,), NOTIFIED_S)
    assert {verdict for _, verdict, _ in again} <= {Verdict.REPEATED, Verdict.REPLAYED}


def _webhook_alert(body: bytes) -> None:
    """The same with the lines of an input for the values of a valid alert, where they are not
    empty: few edits of a whole notification are one still."""
    values = [line.decode("utf-8", "replace") for line in body.split(b"\n")]
    given = dict(VALID_ALERT)
    given |= {key: value for key, value in zip(given, values, strict=False) if value}
    alert = {
        "status": given["status"],
        "startsAt": given["startsAt"],
        "fingerprint": given["fingerprint"],
        "annotations": {"summary": given["summary"]},
        "labels": {"alertname": given["alertname"], "application": given["application"]},
    }
    _webhook(json.dumps({"version": "4", "alerts": [alert]}).encode())


def _settings(body: bytes) -> None:
    load(_written(body, ".yaml"))


def _trace(body: bytes) -> None:
    from_file(_written(body, ".csv"), {})


def _mapped_trace(body: bytes) -> None:
    from_file(_written(body, ".csv"), {"arrival_s": "TIMESTAMP", "prompt_tokens": "Context"})


def _packed_trace(body: bytes) -> None:
    from_file(_written(body, ".csv.gz"), {})


def _played_trace(body: bytes) -> None:
    read_trace(_written(body, ".csv"), np.random.default_rng(1))


@cache
def _folder() -> Path:
    room = "/dev/shm" if Path("/dev/shm").is_dir() else None
    return Path(tempfile.mkdtemp(prefix=f"leadtime-fuzz-{os.getpid()}-", dir=room))


def _written(body: bytes, suffix: str) -> Path:
    path = _folder() / f"input{suffix}"
    path.write_bytes(body)
    return path


def _series(name: str, **labels: str) -> dict[str, Any]:
    named = {"__name__": name, "application": "app", "deployment": "llm", **labels}
    return {"metric": named, "values": [[START_S - 6, "3"], [START_S - 1, "7.5"]]}


def _answers() -> list[bytes]:
    series = [
        _series("ray_serve_num_router_requests_total", handle="h", SessionName="s"),
        _series("ray_serve_deployment_request_counter", replica="r0", route="/"),
        _series("ray_serve_num_http_error_requests_total", error_code="500"),
        _series("ray_serve_deployment_queued_queries", handle="h"),
        _series("ray_serve_replica_processing_queries", replica="r0"),
        _series("ray_vllm_num_requests_waiting", ReplicaId="r1"),
        _series("ray_component_gpu_percentage", ip="", pid="0"),
        _series("DCGM_FI_DEV_GPU_UTIL", gpu="0", Hostname="n"),
    ]
    vector = {"metric": {"application": "app", "deployment": "llm", "le": "+Inf"}}
    results: list[Any] = [series, [{**vector, "value": [START_S, "NaN"]}], []]
    bodies = [{"status": "success", "data": {"resultType": "matrix", "result": r}} for r in results]
    return [json.dumps(body).encode() for body in (*bodies, {"status": "error", "data": None})]


def _notifications() -> list[bytes]:
    labels = {"alertname": "ServeQueueWaitHigh", "application": "app", "deployment": "llm"}
    alert = {
        "status": "firing",
        "labels": labels,
        "annotations": {"summary": "Requests wait"},
        "startsAt": "2026-11-30T03:10:00.5+01:00",
        "endsAt": "0001-01-01T00:00:00Z",
        "fingerprint": "0a1b",
    }
    ended = {**alert, "status": "resolved", "labels": {}, "startsAt": "2026-11-30T01:00:00Z"}
    bodies = ([alert], [ended, {**alert, "fingerprint": "2c"}], [ended, alert])
    return [json.dumps({"version": "4", "alerts": alerts}).encode() for alerts in bodies]


def _alert_values() -> list[bytes]:
    return [
        b"\n".join(value.encode() for value in VALID_ALERT.values()),
        b"\n\n\n1790000000\nffff\nresolved",
        b"\xf0\x9f\x94\xa5\na\nother\n0001-01-01T00:00:00-14:00\n0",
    ]


def _csv() -> list[bytes]:
    return [
        b"arrival_s,prompt_tokens,output_tokens\n0,10,20\n1.5,10,20\n",
        b"t_s,requests,prompt_tokens_mean,output_tokens_mean\n0,3,100,10\n60,5,,\n",
        b"TIMESTAMP,Context\n2024-05-10 00:00:00.009930,374\n2024-05-10 00:00:01.1234567,5\n",
    ]


EXAMPLE = ROOT / "controller" / "leadtime.example.yaml"
TARGETS: Mapping[str, Target] = {
    "prometheus": Target(_prometheus, _answers),
    "history": Target(_history, _answers, (PrometheusError,)),
    "serve": Target(
        _serve, lambda: [(RECORDED / "serve-applications.json").read_bytes()], (ServeError,)
    ),
    "nodes": Target(_nodes, lambda: [(RECORDED / "serve-nodes.json").read_bytes()], (ServeError,)),
    "webhook": Target(_webhook, _notifications, (RefusedBody,)),
    "webhook_alert": Target(_webhook_alert, _alert_values, (RefusedBody,)),
    "settings": Target(_settings, lambda: [EXAMPLE.read_bytes()], (SettingsError,)),
    "trace": Target(_trace, _csv, (LoadError,)),
    "mapped_trace": Target(_mapped_trace, _csv, (LoadError,)),
    "packed_trace": Target(
        _packed_trace, lambda: [gzip.compress(text) for text in _csv()], (LoadError,)
    ),
    "played_trace": Target(_played_trace, _csv, (BadTrace,)),
}


def check(name: str, body: bytes) -> None:
    """Run one input; an exception that is not allowed is a crash."""
    target = TARGETS[name]
    with contextlib.suppress(*target.allowed):
        target.run(body)
