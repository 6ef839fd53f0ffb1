"""Serve's recorded answers, read and written back; and what a broken dashboard says.

The recording: a real Ray Serve 2.60 with four GPUs (as resources) and one application for each
way a deployment can be declared; `auto` had just been asked for more than the GPUs hold.
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.adapters.serve.actuator import ServeActuator, ShadowActuator, with_floor
from controller.adapters.serve.api import ServeApi, ServeError, Unreachable
from controller.adapters.serve.gangs import gangs
from controller.adapters.serve.source import ServeSource
from controller.adapters.serve.view import Actuation, View, free_resources, parse
from controller.core.types import (
    DeploymentId,
    Hold,
    Outcome,
    Reason,
    ReplicaState,
    ScaleDeployment,
)
from tests.adapters.fake_server import Answer, Fake, serving

RECORDED = Path(__file__).parent / "recorded"
APPLICATIONS: dict[str, Any] = json.loads((RECORDED / "serve-applications.json").read_text())
NODES: dict[str, Any] = json.loads((RECORDED / "serve-nodes.json").read_text())
GROUPS: dict[str, Any] = json.loads((RECORDED / "placement-groups.json").read_text())
AUTO, EXTERNAL = DeploymentId("auto", "Model"), DeploymentId("ext", "Model")
GANG = DeploymentId("gang", "Model")


def ok(body: Any) -> Answer:
    return 200, "application/json", json.dumps(body).encode()


def dashboard(change: Callable[[dict[str, Any]], object] = lambda _: None) -> Any:
    """Answers as the recorded dashboard would, its applications changed by `change`."""
    applications = copy.deepcopy(APPLICATIONS)
    change(applications)

    def answer(path: str, _: dict[str, str]) -> Answer:
        if path == "/nodes":
            return ok(NODES)
        if path == "/api/v0/placement_groups":
            return ok(GROUPS)
        if path == "/api/version":
            return ok({"ray_version": "2.60.0"})
        return ok(applications)

    return answer


def api_of(fake: Fake, timeout_s: float = 5.0) -> ServeApi:
    return ServeApi(httpx.AsyncClient(base_url=fake.url, timeout=timeout_s))


def writes(fake: Fake) -> list[dict[str, str]]:
    return [asked for asked in fake.asked if asked["method"] != "GET"]


async def applied(
    answer: Any, target: DeploymentId, replicas: int, actuation: Actuation
) -> tuple[Outcome, list[dict[str, str]]]:
    with serving(answer) as fake:
        actuator = ServeActuator(api_of(fake), lambda _: actuation)
        return await actuator.apply(ScaleDeployment(target, replicas)), writes(fake)


def view() -> View:
    return parse(APPLICATIONS, free_resources(NODES))


@pytest.mark.parametrize(
    ("application", "deployment", "way", "refused"),
    [
        ("auto", "Model", Actuation.FLOOR, None),
        ("auto", "Ingress", None, "not in the config file's deployments:"),
        ("ext", "Model", Actuation.EXTERNAL, None),
        ("code", "Coded", Actuation.EXTERNAL, "autoscaling is declared in code"),
        ("bare", "Coded", Actuation.FLOOR, "not in the config file's deployments:"),
        ("init", "Model", Actuation.FLOOR, "initial_replicas is set"),
        ("gang", "Model", Actuation.FLOOR, None),
    ],
)
def test_each_deployment_has_its_way_and_its_refusal(
    application: str, deployment: str, way: Actuation | None, refused: str | None
) -> None:
    """A1-A3: a way that would restart replicas, or that Serve would fight, is refused."""
    found = view().deployments[DeploymentId(application, deployment)]
    assert found.actuation is way
    refusal = found.refusal(way or Actuation.FLOOR)
    assert (refusal is None) == (refused is None)
    assert (refused or "") in (refusal or "")


def test_the_other_way_is_refused_with_what_to_change() -> None:
    seen = view().deployments
    assert "external_scaler_enabled is true" in str(seen[EXTERNAL].refusal(Actuation.FLOOR))
    assert "is not true" in str(seen[AUTO].refusal(Actuation.EXTERNAL))


def test_replicas_that_no_node_fits_are_starting_and_not_placed() -> None:
    """D8, A5: of five wanted, those without a GPU have no process."""
    replicas = view().replicas(AUTO, Actuation.FLOOR, elastic=False)
    assert (replicas.requested, replicas.setpoint) == (5, 5)
    placed = [member for member in replicas.members if member.placed]
    assert 1 <= len(placed) < 5
    waiting = [member for member in replicas.members if not member.placed]
    assert {member.state for member in waiting} == {ReplicaState.STARTING}
    assert replicas.room == 0


CODE_GANG = DeploymentId("chat", "LLM")


def test_a_gang_made_in_code_is_found_where_ray_placed_it() -> None:
    """The recording: a deployment whose code asks for four GPUs a replica, on eight; two of its
    replicas are placed, the third waits."""
    assert gangs(GROUPS) == {CODE_GANG: ({"CPU": 0.1, "GPU": 4.0},)}
    applications = copy.deepcopy(APPLICATIONS)
    made = applications["applications"]["auto"]
    del made["deployed_app_config"]["deployments"]
    seen = parse(applications, [{"CPU": 8.0, "GPU": 7.0}], {AUTO: ({"GPU": 1.0},) * 4})
    assert seen.deployments[AUTO].bundles == ({"GPU": 1.0},) * 4
    assert seen.replicas(AUTO, Actuation.FLOOR, elastic=False).room == 1


def test_groups_that_are_not_a_replicas_or_are_gone_do_not_count() -> None:
    groups = copy.deepcopy(GROUPS)
    for group, change in zip(
        groups["data"]["result"]["result"],
        ({"name": "training"}, {"state": "REMOVED"}, {"name": None}),
        strict=True,
    ):
        group |= change
    assert gangs(groups) == {}


async def test_without_the_state_api_gangs_are_what_they_were() -> None:
    answers = dashboard()
    broken = False

    def answer(path: str, parameters: dict[str, str]) -> Answer:
        if broken and path == "/api/v0/placement_groups":
            return 500, "text/plain", b"no"
        if path == "/api/v0/placement_groups":
            return ok(json.loads(json.dumps(GROUPS).replace("chat#LLM", "ext#Model")))
        taken: Answer = answers(path, parameters)
        return taken

    with serving(answer) as fake:
        api = api_of(fake)
        first = await api.view()
        broken = True
        later = await api.view()
    assert first.deployments[EXTERNAL].bundles == ({"CPU": 0.1, "GPU": 4.0},)
    assert later.deployments[EXTERNAL].bundles == first.deployments[EXTERNAL].bundles


def test_a_gang_needs_all_its_bundles() -> None:
    assert view().deployments[GANG].bundles == ({"CPU": 0.1}, {"GPU": 1.0})


def test_room_is_unknown_where_nodes_can_be_added() -> None:
    assert view().replicas(AUTO, Actuation.FLOOR, elastic=True).room is None


def test_slots_are_serve_s_and_a_huge_limit_is_none() -> None:
    assert view().replicas(EXTERNAL, Actuation.EXTERNAL, True).max_ongoing_requests == 7
    changed = copy.deepcopy(APPLICATIONS)
    config = changed["applications"]["ext"]["deployments"]["Model"]["deployment_config"]
    config["max_ongoing_requests"] = int(1e9)
    huge = parse(changed, ()).replicas(EXTERNAL, Actuation.EXTERNAL, True)
    assert huge.max_ongoing_requests is None


def test_free_resources_are_total_less_used() -> None:
    said = {"data": {"nodeLogicalResources": {"a": "1.5/8.0 CPU\n0B/2.0GiB memory\n1.0/4.0 GPU"}}}
    assert free_resources(said) == [{"CPU": 6.5, "memory": 2 * 2.0**30, "GPU": 3.0}]
    assert free_resources(NODES)[0]["GPU"] == 0  # one of the four is held by the gang
    assert free_resources(NODES)[0]["CPU"] == pytest.approx(7.1)


def test_a_raised_floor_changes_one_number() -> None:
    """A8: the whole config is written back, everything else as it was."""
    before = APPLICATIONS["applications"]["auto"]["deployed_app_config"]
    after = with_floor(before, "Model", 7)
    expected = copy.deepcopy(before)
    for entry in expected["deployments"]:
        if entry["name"] == "Model":
            entry["autoscaling_config"]["min_replicas"] = 7
    assert after == expected
    assert after != before


async def test_the_floor_is_put_with_every_other_application_as_it_was() -> None:
    outcome, written = await applied(dashboard(), AUTO, 6, Actuation.FLOOR)
    assert outcome.applied
    assert outcome.detail == "min_replicas 6"
    assert [w["method"] for w in written] == ["PUT"]
    sent = {config["name"]: config for config in json.loads(written[0]["body"])["applications"]}
    for name, application in APPLICATIONS["applications"].items():
        expected = application["deployed_app_config"]
        assert sent[name] == (with_floor(expected, "Model", 6) if name == "auto" else expected)


async def test_the_target_is_posted_to_an_escaped_path() -> None:
    odd = DeploymentId("ext", "LLMServer:meta/Llama 3")

    def rename(answer: dict[str, Any]) -> None:
        application = answer["applications"]["ext"]
        model = application["deployments"].pop("Model")
        application["deployments"][odd.deployment] = {**model, "name": odd.deployment}

    outcome, written = await applied(dashboard(rename), odd, 3, Actuation.EXTERNAL)
    assert outcome.applied
    assert written[0]["path"].endswith("/deployments/LLMServer%3Ameta%2FLlama%203/scale")
    assert json.loads(written[0]["body"]) == {"target_num_replicas": 3}


def redacted(answer: dict[str, Any]) -> None:
    config = answer["applications"]["ext"]["deployed_app_config"]
    config["runtime_env"] = {"env_vars": {"HF_TOKEN": "<redacted>"}}


def gone(answer: dict[str, Any]) -> None:
    answer["applications"]["auto"]["deployments"].clear()


@pytest.mark.parametrize(
    ("change", "target", "replicas", "way", "said"),
    [
        pytest.param(
            lambda a: a.update(target_capacity=50),
            *(AUTO, 6, Actuation.FLOOR, "rollout is under way"),
            id="target_capacity",
        ),
        pytest.param(
            lambda _: None, AUTO, 9, Actuation.FLOOR, "max_replicas is 8", id="above Serve's max"
        ),
        pytest.param(redacted, AUTO, 6, Actuation.FLOOR, "redacted", id="redacted secrets"),
        pytest.param(gone, AUTO, 6, Actuation.FLOOR, "is not deployed", id="being rebuilt"),
        pytest.param(
            lambda a: a["applications"]["auto"].update(status="DEPLOY_FAILED"),
            *(AUTO, 6, Actuation.FLOOR, "last deploy failed"),
            id="a failed deploy",
        ),
        pytest.param(
            lambda a: a["applications"]["auto"].update(deployed_app_config=None),
            *(AUTO, 6, Actuation.FLOOR, "deployed from Python"),
            id="deployed from Python",
        ),
        pytest.param(
            lambda a: a["applications"]["ext"].update(external_scaler_enabled=False),
            *(EXTERNAL, 3, Actuation.EXTERNAL, "external_scaler_enabled"),
            id="external scaler off",
        ),
    ],
)
async def test_what_must_not_be_written_is_refused_with_the_reason(
    change: Callable[[dict[str, Any]], object],
    target: DeploymentId,
    replicas: int,
    way: Actuation,
    said: str,
) -> None:
    outcome, written = await applied(dashboard(change), target, replicas, way)
    assert not outcome.applied
    assert said in outcome.detail
    assert written == []


HTML = (200, "text/html", b"<html>sign in</html>")


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        pytest.param((401, "text/plain", b"Unauthorized"), ServeError, "token_file", id="401"),
        pytest.param((403, "text/plain", b"Forbidden"), ServeError, "not the cluster's", id="403"),
        pytest.param((404, "text/plain", b"no"), ServeError, "404", id="404"),
        pytest.param(
            (412, "application/json", b'{"error": "external scaler is not enabled"}'),
            *(ServeError, "external scaler is not enabled"),
            id="412",
        ),
        pytest.param((503, "text/plain", b"starting"), Unreachable, "503", id="503"),
        pytest.param(HTML, Unreachable, "text/html, not JSON", id="a login page with 200"),
        pytest.param(ok({"hello": 1}), ServeError, "no usable applications", id="another service"),
        pytest.param(
            (200, "application/json", b'{"applications": {'), Unreachable, "not JSON", id="cut off"
        ),
    ],
)
async def test_a_bad_answer_is_one_kind_of_error(
    answer: Answer, kind: type[ServeError], said: str
) -> None:
    """S14: an outage is told apart from a refusal; neither is an empty cluster."""
    with serving(lambda *_: answer) as fake, pytest.raises(ServeError, match=said) as raised:
        await api_of(fake).view(resources=False)
    assert type(raised.value) is kind


def in_force(a: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = a["applications"]["auto"]["deployments"]["Model"]["deployment_config"]
    return config


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a: in_force(a)["autoscaling_config"].pop("min_replicas"), id="no min"),
        pytest.param(lambda a: in_force(a)["autoscaling_config"].pop("max_replicas"), id="no max"),
        pytest.param(
            lambda a: in_force(a)["autoscaling_config"].update(min_replicas=-1), id="negative"
        ),
        pytest.param(
            lambda a: in_force(a)["autoscaling_config"].update(min_replicas="many"), id="a word"
        ),
        pytest.param(
            lambda a: in_force(a)["autoscaling_config"].update(upscale_delay_s="30 s"),
            id="a delay with its unit",
        ),
        pytest.param(
            lambda a: in_force(a)["autoscaling_config"].update(policy="mine"), id="a named policy"
        ),
        pytest.param(lambda a: in_force(a).update(autoscaling_config=[]), id="a list"),
        pytest.param(lambda a: in_force(a).update(max_ongoing_requests="5"), id="a quoted number"),
        pytest.param(
            lambda a: in_force(a).update(graceful_shutdown_timeout_s=float("nan")), id="NaN"
        ),
    ],
)
async def test_a_config_of_another_form_is_an_error_when_it_is_read(
    change: Callable[[dict[str, Any]], object],
) -> None:
    """Not a KeyError later, in the midst of a tick."""
    with serving(dashboard(change)) as fake, pytest.raises(ServeError, match="no usable"):
        await api_of(fake).view(resources=False)


async def test_no_answer_at_all_is_unreachable() -> None:
    """A6: the outcome carries the reason."""
    actuator = ServeActuator(
        ServeApi(httpx.AsyncClient(base_url="http://127.0.0.1:1")), lambda _: Actuation.EXTERNAL
    )
    outcome = await actuator.apply(ScaleDeployment(EXTERNAL, 3))
    assert not outcome.applied
    assert outcome.reason is Reason.SERVE_UNREACHABLE


async def test_a_hold_asks_nothing() -> None:
    with serving(dashboard()) as fake:
        outcome = await ServeActuator(api_of(fake), lambda _: Actuation.FLOOR).apply(Hold(AUTO))
        assert fake.asked == []
    assert not outcome.applied


async def test_the_shadow_writes_nothing_and_says_what_it_would() -> None:
    outcome = await ShadowActuator().apply(ScaleDeployment(AUTO, 4))
    assert not outcome.applied
    assert outcome.detail == "shadow: would set 4"


async def test_every_scalable_deployment_is_found_when_none_is_listed() -> None:
    with serving(dashboard()) as fake:
        found = await ServeSource(api_of(fake), {}, elastic=False).read()
    assert sorted(map(str, found)) == [
        "auto/Model",
        "bare/Coded",
        "code/Coded",
        "ext/Model",
        "gang/Model",
        "init/Model",
    ]


async def test_a_listed_deployment_that_is_not_there_is_no_data() -> None:
    """S4: an application that is being rebuilt lists no deployments; that is not zero replicas."""
    missing = DeploymentId("no", "such")
    with serving(dashboard()) as fake:
        found = await ServeSource(api_of(fake), {missing: None, AUTO: None}, True).read()
    assert found[missing] is None
    assert found[AUTO] is not None


async def test_a_listed_deployment_that_cannot_be_scaled_is_an_error() -> None:
    fixed = DeploymentId("auto", "Ingress")
    with serving(dashboard()) as fake, pytest.raises(ServeError, match="neither autoscaled"):
        await ServeSource(api_of(fake), {fixed: None}, True).read()
