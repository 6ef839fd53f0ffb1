"""Both shipped configs on a real Ray: answers, errors, aborts, drains and the metrics page."""

import asyncio
import gzip
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from controller.demo.cluster import RayCluster
from controller.demo.processes import ProcessGroup
from serve_app.engine_metrics import metric_specs
from tests.serve_app.deployed import Deployed, becomes, stream
from tests.serve_app.test_engine_metrics import RECORDED, Page, exported_name

pytestmark = pytest.mark.e2e

CONFIGS = Path(__file__).resolve().parents[2] / "serve_app/configs"
ENGINE = {"load_s": 1.0, "slots": 2, "token_s": 0.02, "chunk_tokens": 4, "max_model_len": 256}


def application(config: str, name: str, route: str) -> dict[str, Any]:
    """A shipped application under another name, loading faster and with two slots."""
    [one] = yaml.safe_load((CONFIGS / config).read_text())["applications"]
    one |= {"name": name, "route_prefix": route}
    one["args"] |= {"model": name, "slo_ttft_s": [0.8], "engine": one["args"]["engine"] | ENGINE}
    for deployment in one["deployments"]:
        if deployment["name"] == "LLM":
            deployment["max_ongoing_requests"] = ENGINE["slots"]
    assert isinstance(one, dict)
    return one


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    applications = [
        application("standin-external.yaml", "external", "/"),
        application("standin.yaml", "floor", "/floor"),
    ]
    group = ProcessGroup(tmp_path_factory.mktemp("ray"))
    with RayCluster(group) as cluster:
        cluster.deploy({"applications": applications})
        yield Deployed(cluster, "external")


@pytest.fixture
async def client(app: Deployed) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=app.cluster.http_url, timeout=30) as client:
        yield client


def body(max_tokens: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "tell me more"}]
    return {"model": "external", "messages": messages, "max_tokens": max_tokens} | more


async def test_streams_an_answer_as_openai_does(client: httpx.AsyncClient) -> None:
    *events, done = await stream(client, body(7))
    assert done == "[DONE]"
    payloads = [json.loads(event) for event in events]
    assert payloads[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    texts = [one["choices"][0]["delta"]["content"] for one in payloads[1:-1]]
    assert [len(text.split()) for text in texts] == [1, 4, 2]
    assert payloads[-2]["choices"][0]["finish_reason"] == "length"
    assert payloads[-1]["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 7,
        "total_tokens": 10,
    }


async def test_the_first_token_does_not_wait_for_the_second(client: httpx.AsyncClient) -> None:
    asked = body(40, stream=True)
    async with client.stream("POST", "/v1/chat/completions", json=asked) as response:
        came_s = [time.monotonic() async for _ in response.aiter_raw()]
    assert came_s[-1] - came_s[0] > 0.5  # 40 tokens take 0.8 s


async def test_answers_whole_both_applications(client: httpx.AsyncClient) -> None:
    for prefix, model in (("", "external"), ("/floor", "floor")):
        asked = {**body(5), "model": model}
        answer = (await client.post(f"{prefix}/v1/chat/completions", json=asked)).json()
        assert answer["choices"][0]["message"]["content"].split() == ["word"] * 5
        assert answer["usage"]["completion_tokens"] == 5


async def test_completes_text(client: httpx.AsyncClient) -> None:
    asked = {"model": "external", "prompt": "tell me more", "max_tokens": 5}
    answer = (await client.post("/v1/completions", json=asked)).json()
    assert answer["choices"][0]["text"].split() == ["word"] * 5
    assert answer["usage"]["prompt_tokens"] == 3
    async with client.stream("POST", "/v1/completions", json=asked | {"stream": True}) as response:
        lines = [line async for line in response.aiter_lines() if line]
    assert json.loads(lines[0].removeprefix("data: "))["object"] == "text_completion"
    assert lines[-1] == "data: [DONE]"
    too_long = await client.post("/v1/completions", json=asked | {"max_tokens": 300})
    assert (too_long.status_code, too_long.json()["error"]["param"]) == (400, "prompt")


async def test_names_its_model_and_its_health(client: httpx.AsyncClient) -> None:
    models = (await client.get("/v1/models")).json()
    assert [model["id"] for model in models["data"]] == ["external"]
    assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"messages": "hi"}, 400, "messages"),
        ({"max_tokens": 300}, 400, "messages"),
        ({"model": "other"}, 404, "model"),
    ],
    ids=["bad field", "bad type", "over the context", "unknown model"],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_errors_are_openais(
    client: httpx.AsyncClient, change: dict[str, Any], status: int, param: str, streamed: bool
) -> None:
    asked = {**body(5, stream=streamed), **change}
    answer = await client.post("/v1/chat/completions", json=asked)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


async def test_an_unknown_path_is_an_openai_error_too(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/embeddings")
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_clients_that_leave_free_the_engine_and_the_queue(
    app: Deployed, client: httpx.AsyncClient
) -> None:
    # Two fill the slots for 5 s, two wait in the router: all leave at once.
    leaving = [asyncio.create_task(stream(client, body(250))) for _ in range(4)]
    assert await becomes(lambda: app.total("ray_vllm_num_requests_running", '"external"') == 2)
    queued = 'deployment="LLM"', 'application="external"'
    assert await becomes(lambda: app.total("ray_serve_deployment_queued_queries", *queued) == 2, 4)
    for task in leaving:
        task.cancel()
    left_s = time.monotonic()
    answer = await client.post("/v1/chat/completions", json=body(1))
    assert answer.status_code == 200
    assert time.monotonic() - left_s < 3.5
    assert await becomes(lambda: app.total("ray_vllm_num_requests_running", '"external"') == 0)
    assert await becomes(lambda: app.total("ray_serve_deployment_queued_queries", *queued) == 0)


async def test_the_page_has_vllms_metrics_and_no_others(
    app: Deployed, client: httpx.AsyncClient
) -> None:
    await stream(client, body(7))
    assert await becomes(lambda: "ray_vllm_request_success_total{" in app.page())
    text = app.page()
    live = Page(text)
    for name, spec in metric_specs(256).items():
        if name != "num_preemptions":  # never counted here, and zeros are not exported
            assert live.labels[exported_name(spec)] == set(spec.labels)
            assert live.bounds[f"ray_vllm_{name}"] == set(spec.bounds)
    replica = next(line for line in text.splitlines() if line.startswith("ray_vllm_prompt_tokens"))
    assert any(f'ReplicaId="{one["replica_id"]}"' in replica for one in app.running())


@pytest.mark.skipif(not RECORDED.exists(), reason=f"no recorded page at {RECORDED}")
async def test_the_page_is_a_part_of_real_vllms(app: Deployed) -> None:
    recorded = Page(gzip.decompress(RECORDED.read_bytes()).decode())
    live = Page(app.page())
    for name, labels in live.labels.items():
        if name.startswith("ray_vllm_"):
            assert labels == recorded.labels[name]


async def test_the_page_has_the_clients_ttft_with_the_slo_as_a_bound(
    app: Deployed, client: httpx.AsyncClient
) -> None:
    labels = 'application="external"', 'deployment="LLM"', 'model_name="external"'
    name = "ray_client_ttft_seconds_bucket"

    def answered() -> float:
        return app.total(name, *labels, 'le="+Inf"') or 0.0

    before = answered()
    await stream(client, body(2))
    assert await becomes(lambda: answered() > before)
    assert app.total(name, *labels, 'le="0.8"') is not None


async def test_the_page_counts_errors_by_status(app: Deployed, client: httpx.AsyncClient) -> None:
    def counted() -> float:
        return app.total("ray_client_errors_total", 'application="external"', 'code="404"') or 0.0

    before = counted()
    await client.post("/v1/chat/completions", json=body(5, model="other"))
    assert await becomes(lambda: counted() > before)


async def test_a_new_replica_is_starting_while_it_loads(app: Deployed) -> None:
    app.scale(2)
    states: list[str] = []

    def two_run() -> bool:
        states.extend(one["state"] for one in app.llm()["replicas"])
        return len(app.running()) == 2

    assert await becomes(two_run, within_s=20.0)
    assert "STARTING" in states


async def test_shrinking_loses_no_stream(app: Deployed, client: httpx.AsyncClient) -> None:
    app.scale(2)
    assert await becomes(lambda: len(app.running()) == 2, within_s=20.0)
    streams = [asyncio.create_task(stream(client, body(120))) for _ in range(4)]
    assert await becomes(lambda: app.total("ray_vllm_num_requests_running", '"external"') == 4)
    app.scale(1)
    for events in await asyncio.gather(*streams):
        assert events[-1] == "[DONE]"
        assert json.loads(events[-2])["usage"]["completion_tokens"] == 120
    assert await becomes(lambda: len(app.llm()["replicas"]) == 1)


async def test_a_killed_replica_is_told_booked_and_replaced(
    app: Deployed, client: httpx.AsyncClient
) -> None:
    labels = 'application="external"', 'code="503"'
    begun = [asyncio.Event(), asyncio.Event()]
    streams = [asyncio.create_task(stream(client, body(200), began)) for began in begun]
    for began in begun:
        await asyncio.wait_for(began.wait(), timeout=5.0)
    [replica] = app.running()
    os.kill(replica["pid"], signal.SIGKILL)
    for events in await asyncio.gather(*streams):
        assert json.loads(events[-2])["error"]["code"] == "unavailable"
        assert events[-1] == "[DONE]"
    assert (await client.post("/v1/chat/completions", json=body(1))).status_code == 200
    assert replica["replica_id"] not in {one["replica_id"] for one in app.running()}
    assert await becomes(lambda: app.total("ray_client_errors_total", *labels) == 2)
