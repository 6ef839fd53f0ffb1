"""Ray's own LLM application beside ours: it serves, is measured, and is scaled the same way."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from serve_app.engine_metrics import metric_specs
from serve_app.tiny_model import ensure_tiny_model
from tests.serve_app.test_engine_metrics import Page, exported_name
from tests.vllm.conftest import (
    START_WITHIN_S,
    Served,
    becomes,
    beside,
    chat,
    replica_ids,
    shared_application,
    shipped,
    stream,
    usage,
)

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(START_WITHIN_S + 120)]

NAME, MODEL = "rays", "tiny-rays"
DEPLOYMENT = f"LLMServer:{MODEL}"
CHAT = f"/{NAME}/v1/chat/completions"


def rays_application() -> dict[str, Any]:
    """ray-llm-cpu.yaml under another route and model name."""
    one = shipped("ray-llm-cpu.yaml", name=NAME, route_prefix=f"/{NAME}")
    [model] = one["args"]["llm_configs"]
    model["model_loading_config"] = {"model_id": MODEL, "model_source": str(ensure_tiny_model())}
    one["deployments"][0]["name"] = DEPLOYMENT
    return one


@pytest.fixture(scope="module")
def rays(served: Served) -> Iterator[Served]:
    with beside(served, rays_application()):
        yield served


async def test_it_answers_and_streams(rays: Served, client: httpx.AsyncClient) -> None:
    asked = chat(6, model=MODEL)
    whole = (await client.post(CHAT, json=asked)).json()
    assert whole["usage"]["completion_tokens"] == 6
    events = await stream(client, asked, path=CHAT)
    assert usage(events)["completion_tokens"] == 6
    models = (await client.get(f"/{NAME}/v1/models")).json()
    assert [model["id"] for model in models["data"]] == [MODEL]


async def test_its_errors_are_openais(rays: Served, client: httpx.AsyncClient) -> None:
    answer = await client.post(CHAT, json=chat(4000, model=MODEL))
    assert answer.status_code == 400
    assert "error" in answer.json()


async def test_it_has_the_same_metrics(rays: Served, client: httpx.AsyncClient) -> None:
    await stream(client, chat(40, model=MODEL), path=CHAT)
    label = f'model_name="{MODEL}"'
    assert await becomes(
        lambda: rays.total("ray_vllm_request_success_total", label) is not None, 15
    )
    mine = "\n".join(line for line in rays.page().splitlines() if label in line)
    live = Page(mine)
    for name, spec in metric_specs(2048).items():
        if spec.kind != "gauge" and name != "num_preemptions":  # gauges vanish when it idles
            assert live.labels[exported_name(spec)] == set(spec.labels), name


async def test_its_scaling_changes_without_a_restart(rays: Served) -> None:
    """Because it stands under `deployments:` from the first deploy."""
    before = replica_ids(rays, NAME, DEPLOYMENT)
    changed = rays_application()
    changed["deployments"][0]["autoscaling_config"]["target_ongoing_requests"] = 4
    rays.cluster.deploy({"applications": [shared_application(), changed]}, within_s=60)
    found = rays.cluster.applications()[NAME]["deployments"][DEPLOYMENT]
    scaling = found["deployment_config"]["autoscaling_config"]
    assert json.loads(json.dumps(scaling))["target_ongoing_requests"] == 4
    assert replica_ids(rays, NAME, DEPLOYMENT) == before
