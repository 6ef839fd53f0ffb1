"""The way `policy` in Serve's answers, and the fence before each write."""

import asyncio
import copy
from typing import Any

import httpx
import pytest

from controller.adapters.serve.actuator import ServeActuator
from controller.adapters.serve.api import Fenced, ServeApi, Unreachable
from controller.adapters.serve.source import ServeSource
from controller.adapters.serve.view import Actuation, Deployment, parse
from controller.core.types import DeploymentId, ScaleDeployment
from tests.adapters.fake_server import Answer, serving
from tests.adapters.test_serve import APPLICATIONS, AUTO, EXTERNAL, dashboard, writes

OURS = {"policy_function": "my_policies:LeadtimePolicy", "policy_kwargs": {"url": "http://x"}}


def with_policy(answer: dict[str, Any], **changes: Any) -> None:
    """Configure our policy for `auto`, with the delays it asks for."""
    scaling = answer["applications"]["auto"]["deployments"]["Model"]["deployment_config"]
    zero = {"upscale_delay_s": 0.0, "downscale_delay_s": 0.0}
    scaling["autoscaling_config"].update({"policy": OURS, **zero, **changes})


def seen(**changes: Any) -> Deployment:
    answer = copy.deepcopy(APPLICATIONS)
    with_policy(answer, **changes)
    return parse(answer, ()).deployments[AUTO]


@pytest.mark.parametrize(
    "function",
    [
        "controller.inserve.policy:LeadtimePolicy",
        "my_policies:LeadtimePolicy",
        "our_app.our_policies.LeadtimePolicy",
    ],
)
def test_our_policy_is_known_wherever_it_was_copied(function: str) -> None:
    found = seen(policy={"policy_function": function, "policy_kwargs": {}})
    assert found.actuation is Actuation.POLICY
    assert found.refusal(Actuation.POLICY) is None
    assert found.hindrances(Actuation.POLICY) == []


def test_where_it_is_not_configured_it_is_refused_with_what_switching_costs() -> None:
    refusal = parse(APPLICATIONS, ()).deployments[AUTO].refusal(Actuation.POLICY)
    assert refusal is not None
    assert "LeadtimePolicy" in refusal
    assert "replaces every replica" in refusal
    external = parse(APPLICATIONS, ()).deployments[EXTERNAL].refusal(Actuation.POLICY)
    assert "actuation: external" in str(external)


def test_an_application_policy_goes_before_ours() -> None:
    answer = copy.deepcopy(APPLICATIONS)
    with_policy(answer)
    answer["applications"]["auto"]["deployed_app_config"]["autoscaling_policy"] = {"a": 1}
    assert "goes before" in str(parse(answer, ()).deployments[AUTO].refusal(Actuation.POLICY))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"upscale_delay_s": 30.0}, "upscale_delay_s is 30"),
        ({"downscale_delay_s": 600.0}, "downscale_delay_s is 600"),
        ({"downscaling_factor": 0.5}, "downscaling_factor"),
    ],
)
def test_what_would_hold_the_floor_back_is_said(changes: dict[str, Any], said: str) -> None:
    assert said in seen(**changes).hindrances(Actuation.POLICY)[0]
    assert seen(**changes).hindrances(Actuation.FLOOR) == []


@pytest.mark.parametrize(("published", "setpoint"), [(None, 5), (7, 7), (0, 0)])
async def test_the_setpoint_is_the_floor_on_offer(published: int | None, setpoint: int) -> None:
    """Before any is, the minimum that Serve's config has."""
    with serving(dashboard(with_policy)) as fake:
        api = ServeApi(httpx.AsyncClient(base_url=fake.url))
        source = ServeSource(api, {AUTO: None}, True, lambda _: published)
        replicas = (await source.read())[AUTO]
    assert replicas is not None
    assert replicas.setpoint == setpoint
    assert source.actuation(AUTO) is Actuation.POLICY


async def test_a_floor_is_offered_and_nothing_written() -> None:
    offered: list[tuple[DeploymentId, int]] = []
    with serving(dashboard(with_policy)) as fake:
        api = ServeApi(httpx.AsyncClient(base_url=fake.url))
        actuator = ServeActuator(
            api, lambda _: Actuation.POLICY, lambda *floor: offered.append(floor)
        )
        outcome = await actuator.apply(ScaleDeployment(AUTO, 6))
    assert (outcome.applied, outcome.detail, offered) == (True, "floor 6", [(AUTO, 6)])
    assert writes(fake) == []


async def test_a_write_is_not_sent_once_the_lease_is_lost() -> None:
    """Even between reading Serve's config and writing it back."""
    left_s = [5.0]

    def answer(path: str, parameters: dict[str, str]) -> Answer:
        left_s[0] = 0.0
        found: Answer = dashboard()(path, parameters)
        return found

    with serving(answer) as fake:
        api = ServeApi(httpx.AsyncClient(base_url=fake.url), fence=lambda: left_s[0])
        outcome = await ServeActuator(api, lambda _: Actuation.FLOOR).apply(
            ScaleDeployment(AUTO, 6)
        )
        with pytest.raises(Fenced):
            await api.scale(EXTERNAL, 2)
    assert not outcome.applied
    assert "another daemon leads" in outcome.detail
    assert writes(fake) == []


async def test_a_write_is_given_up_when_the_lease_ends() -> None:
    wait = asyncio.Event()

    async def never(_: httpx.Request) -> httpx.Response:
        await wait.wait()
        return httpx.Response(200)

    client = httpx.AsyncClient(base_url="http://serve", transport=httpx.MockTransport(never))
    api = ServeApi(client, fence=lambda: 0.05)
    with pytest.raises(Unreachable, match="no answer while we led"):
        await api.scale(EXTERNAL, 2)
