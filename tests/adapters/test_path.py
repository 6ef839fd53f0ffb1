"""What lies in front of a deployment, from a real cluster whose ingress was throttled: two
requests at once, 8 a second asked for, about 4 a second let through."""

import json
from pathlib import Path
from typing import Any

from controller.adapters.prometheus.client import PrometheusClient, PrometheusOptions
from controller.adapters.prometheus.source import PrometheusSource
from controller.adapters.serve.view import Actuation, View, parse
from controller.core.types import DeploymentId, Readings
from tests.adapters.fake_server import Answer, serving, vector

RECORDED = Path(__file__).parent / "recorded"
SERVE: dict[str, Any] = json.loads((RECORDED / "check-serve.json").read_text())
SERIES: list[dict[str, Any]] = json.loads((RECORDED / "check-prometheus.json").read_text())["path"]
INGRESS, LLM = DeploymentId("chat", "Ingress"), DeploymentId("chat", "LLM")


def view() -> View:
    return parse(SERVE["applications"], ())


def test_serve_s_topology_tells_who_calls_whom() -> None:
    assert view().callers(LLM) == (INGRESS,)
    assert view().callers(INGRESS) == ()
    callers = view().replicas(LLM, Actuation.FLOOR, elastic=True).callers
    [replica] = SERVE["applications"]["applications"]["chat"]["deployments"]["Ingress"]["replicas"]
    assert callers == {INGRESS: frozenset({replica["actor_id"]})}


def test_an_application_that_is_being_built_has_no_topology_yet() -> None:
    answer = json.loads(json.dumps(SERVE["applications"]))
    answer["applications"]["chat"]["deployment_topology"] = None
    assert parse(answer, ()).callers(LLM) == ()


def read() -> Readings:
    def answer(_: str, parameters: dict[str, str]) -> Answer:
        return vector(SERIES if "num_router_requests" in parameters["query"] else [])

    replicas = view().replicas(LLM, Actuation.FLOOR, elastic=True)
    with serving(answer) as fake:
        client = PrometheusClient(PrometheusOptions(fake.url))
        source = PrometheusSource(client, {}, 1.0)
        now_s = SERIES[0]["values"][-1][0] + 0.5
        return source.read(now_s, {LLM: replicas}, {LLM: 1.0}).readings[LLM]


def test_the_stage_in_front_shows_what_waits_and_what_it_calls() -> None:
    stage = read().stages[INGRESS]
    assert sum(sample.value for sample in stage.queued.values()) == 68
    arrived = sum(sample.value for sample in stage.arrivals.values())
    made = sum(sample.value for sample in stage.calls[LLM].values())
    assert arrived == 134
    assert made == 68
    assert stage.calls.keys() == {LLM}


def test_a_proxy_s_calls_are_no_stage_s() -> None:
    """The proxy calls the ingress; no deployment does."""
    assert read().stages.keys() == {INGRESS}
