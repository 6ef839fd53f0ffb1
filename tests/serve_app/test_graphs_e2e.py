"""The multi-model graph and RAG, each from its shipped CPU config, on one real Ray."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml

from controller.demo.cluster import RayCluster
from controller.demo.processes import ProcessGroup
from serve_app.engine import Message
from serve_app.graph.split import opening, version_of

pytestmark = pytest.mark.e2e

CONFIGS = Path(__file__).resolve().parents[2] / "serve_app/configs"
FAST = {"load_s": 0.5, "token_s": 0.01, "chunk_tokens": 4}
SLOW_TO_LOAD = {"load_s": 1.5}
ENCODER = "all-minilm-l6-v2"
HALVES = (("a", 0.5), ("b", 0.5))
HARD = "Write a Python function that merges two sorted lists"


def application(config: str, route: str) -> dict[str, Any]:
    """A shipped application whose engines load faster."""
    [one] = yaml.safe_load((CONFIGS / config).read_text())["applications"]
    one["route_prefix"] = route
    assert isinstance(one, dict)
    return one


def deployment(one: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [each for each in one["deployments"] if each["name"] == name]
    assert isinstance(found, dict)
    return found


def graph() -> dict[str, Any]:
    one = application("graph-cpu.yaml", "/graph")
    # Aliases share their dict: one update is for all.
    one["args"]["llm"]["versions"][0]["engine"].update(FAST)
    one["args"]["small"]["models"]["small-en"].update(FAST | SLOW_TO_LOAD)
    deployment(one, "Ingress")["user_config"]["shares"] = dict(HALVES)
    return one


def rag() -> dict[str, Any]:
    one = application("rag-cpu.yaml", "/rag")
    one["args"]["engine"].update(FAST)
    return one


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with RayCluster(ProcessGroup(tmp_path_factory.mktemp("ray"))) as cluster:
        cluster.deploy({"applications": [graph(), rag()]})
        yield cluster


@pytest.fixture
async def client(cluster: RayCluster) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=cluster.http_url, timeout=30) as client:
        yield client


async def ask(
    client: httpx.AsyncClient, text: str, model: str = "auto", app: str = "graph", **more: Any
) -> httpx.Response:
    headers = more.pop("headers", None)
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 5}
    return await client.post(f"/{app}/v1/chat/completions", json=body | more, headers=headers)


def content(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    text = answer.json()["choices"][0]["message"]["content"]
    assert isinstance(text, str)
    return text


def page(cluster: RayCluster) -> str:
    return httpx.get(f"http://127.0.0.1:{cluster.metrics_port}/metrics").text


def total(text: str, name: str, *labels: str) -> float:
    """Sum of the series of that name that bear all these labels."""
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith(f"{name}{{") and all(label in line for label in labels)
    )


async def becomes_at_least(
    cluster: RayCluster, least: float, name: str, *labels: str, within_s: float = 8.0
) -> bool:
    """Whether a counter on the page reaches `least` in time (Ray reports once a second)."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        if total(page(cluster), name, *labels) >= least:
            return True
        await asyncio.sleep(0.3)
    return False


async def test_every_stage_is_a_deployment_with_bounds_of_its_own(cluster: RayCluster) -> None:
    """What Leadtime scales is what the file says: no deployment hides in another."""
    applications = cluster.applications()
    stages = {
        "graph": {"Router", "Faq", "Small", "LLM-a", "LLM-b"},
        "rag": {"Embedder", "Search", "LLM"},
    }
    for name, scaled in stages.items():
        deployments = applications[name]["deployments"]
        assert set(deployments) == {"Ingress", *scaled}
        for stage in scaled:
            scaling = deployments[stage]["deployment_config"]["autoscaling_config"]
            assert (scaling["min_replicas"], scaling["max_replicas"] > 1) == (1, True)


@pytest.mark.parametrize(
    ("text", "model", "why"),
    [
        ("how do i rotate my api key", "faq", "intent"),
        ("thanks, that was great", "small-en", "intent"),
        (HARD, "chat", "no_route"),
        ("zxcv qwer", "chat", "unsure"),
    ],
    ids=["faq", "small talk", "a task", "nothing known"],
)
async def test_the_router_sends_each_question_to_its_model(
    cluster: RayCluster, client: httpx.AsyncClient, text: str, model: str, why: str
) -> None:
    answer = await ask(client, text)
    assert answer.json()["model"] == model
    assert ("x-model-version" in answer.headers) == (model == "chat")
    if model == "faq":
        assert "Make a second key" in content(answer)
    else:
        assert content(answer).split() == ["word"] * 5
    assert await becomes_at_least(cluster, 1, "ray_graph_requests_total", f'why="{why}"')


async def test_an_faq_answer_streams_as_any_other(client: httpx.AsyncClient) -> None:
    answer = await ask(
        client, "what does status 429 mean", stream=True, stream_options={"include_usage": True}
    )
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, done = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert done == "[DONE]"
    assert json.loads(events[-1])["usage"]["completion_tokens"] > 5
    assert json.loads(events[-2])["choices"][0]["finish_reason"] == "stop"


async def test_the_faq_asked_by_name_says_that_it_does_not_know(
    client: httpx.AsyncClient,
) -> None:
    answer = await ask(client, HARD, model="faq")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_answer")


async def test_lists_every_model_and_refuses_others(client: httpx.AsyncClient) -> None:
    listed = {one["id"] for one in (await client.get("/graph/v1/models")).json()["data"]}
    assert listed == {"auto", "chat", "faq", "small-en", "small-de", "small-code"}
    refused = await ask(client, HARD, model="gpt-9")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")


async def test_models_share_a_replica_by_name(
    cluster: RayCluster, client: httpx.AsyncClient
) -> None:
    """Two are warm; the third takes a load and the place of the least used one, whose running
    answer is not cut."""
    warm_s = await timed(ask(client, "hi", model="small-de"))
    assert warm_s < SLOW_TO_LOAD["load_s"]
    long_one = asyncio.create_task(ask(client, "hi", model="small-en", max_tokens=200))
    await asyncio.sleep(0.3)  # into its answer of 2 s
    await ask(client, "hi", model="small-de")
    loading_s = await timed(ask(client, "hi", model="small-code"))
    assert loading_s > SLOW_TO_LOAD["load_s"]
    assert len(content(await long_one).split()) == 200
    assert await timed(ask(client, "hi", model="small-code")) < SLOW_TO_LOAD["load_s"]
    for name in ("small-en", "small-code"):
        assert await becomes_at_least(
            cluster, 1, "ray_vllm_request_success_total", f'model_name="{name}"'
        )


async def timed(request: Any) -> float:
    began_s = time.monotonic()
    assert (await request).status_code == 200
    return time.monotonic() - began_s


async def test_a_conversation_stays_with_its_version(client: httpx.AsyncClient) -> None:
    """Turn after turn, by id or by how it began; both versions get conversations."""
    seen: dict[str, set[str]] = {}
    for number in range(16):
        name = f"conversation-{number}"
        for turn in ("Write a poem", "make it longer please", "now in French"):
            answer = await ask(client, turn, model="chat", metadata={"conversation_id": name})
            seen.setdefault(name, set()).add(answer.headers["x-model-version"])
    assert all(len(versions) == 1 for versions in seen.values())
    assert set.union(*seen.values()) == {"a", "b"}
    for name, versions in seen.items():
        assert versions == {version_of(name, HALVES, "chat")}


async def test_a_conversation_without_an_id_is_known_by_its_beginning(
    client: httpx.AsyncClient,
) -> None:
    for number in range(6):
        first = {"role": "user", "content": f"Write poem number {number}"}
        later = [{"role": "assistant", "content": "a poem"}, {"role": "user", "content": "longer"}]
        versions = {
            (await ask(client, "", model="chat", messages=messages)).headers["x-model-version"]
            for messages in ([first], [first, *later])
        }
        began = opening([Message(first["role"], first["content"])])
        assert versions == {version_of(began, HALVES, "chat")}


async def test_a_client_may_keep_the_version_that_it_was_told(client: httpx.AsyncClient) -> None:
    """So that a later change of the shares does not move its conversation."""
    for version in ("a", "b", "a"):
        answer = await ask(client, HARD, headers={"x-model-version": version})
        assert answer.headers["x-model-version"] == version
    gone = await ask(client, HARD, headers={"x-model-version": "z"})
    assert gone.headers["x-model-version"] in {"a", "b"}


async def test_both_versions_are_visible_on_the_page(
    cluster: RayCluster, client: httpx.AsyncClient
) -> None:
    for version in ("a", "b"):
        await ask(client, HARD, headers={"x-model-version": version})
        labels = f'deployment="LLM-{version}"', f'model_name="chat@{version}"'
        assert await becomes_at_least(cluster, 1, "ray_client_ttft_seconds_count", *labels)
        assert await becomes_at_least(cluster, 1, "ray_graph_requests_total", *labels)
        assert await becomes_at_least(cluster, 1, "ray_vllm_prompt_tokens_total", labels[1])


async def test_rag_answers_from_the_passages_that_fit(client: httpx.AsyncClient) -> None:
    answer = await ask(client, "my key was leaked, what now?", model="rag", app="rag")
    assert content(answer).split() == ["word"] * 5
    assert answer.headers["x-passages"].split(",")[0] == "keys.md#3"
    # The stand-in counts words: the passages are in the prompt.
    assert answer.json()["usage"]["prompt_tokens"] > 60


async def test_rag_hands_on_no_passage_that_does_not_fit(client: httpx.AsyncClient) -> None:
    answer = await ask(client, "who won the world cup?", model="rag", app="rag")
    assert answer.headers["x-passages"] == ""
    assert answer.json()["usage"]["prompt_tokens"] == 5


async def test_rag_refuses_a_request_without_a_question(client: httpx.AsyncClient) -> None:
    answer = await ask(client, "  ", model="rag", app="rag")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")


async def test_embeddings_are_openais(client: httpx.AsyncClient) -> None:
    texts = ["How do I rotate my API key?", "GPU memory is full"]
    body = {"model": ENCODER, "input": texts}
    plain = (await client.post("/rag/v1/embeddings", json=body)).json()
    coded = (
        await client.post("/rag/v1/embeddings", json=body | {"encoding_format": "base64"})
    ).json()
    vectors = np.array([one["embedding"] for one in plain["data"]])
    assert vectors.shape == (2, 384)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    for one, vector in zip(coded["data"], vectors, strict=True):
        decoded = np.frombuffer(base64.b64decode(one["embedding"]), dtype="<f4")
        assert np.allclose(decoded, vector, atol=1e-6)
    assert plain["usage"]["prompt_tokens"] == 10 + 7
    refused = await client.post("/rag/v1/embeddings", json=body | {"model": "rag"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")


async def test_embeddings_are_made_in_batches(
    cluster: RayCluster, client: httpx.AsyncClient
) -> None:
    """120 at once take far fewer calls of the encoder than 120."""
    before, each = await batches(cluster), 40
    bodies = [
        {"model": ENCODER, "input": [f"question {number} of {part}" for number in range(each)]}
        for part in range(3)
    ]
    answers = await asyncio.gather(
        *[client.post("/rag/v1/embeddings", json=body) for body in bodies]
    )
    assert all(len(answer.json()["data"]) == each for answer in answers)
    assert 0 < await batches(cluster) - before <= len(bodies) * each / 2


async def batches(cluster: RayCluster) -> float:
    """Batches made so far, once two reports in a row say the same."""
    last = -1.0
    while True:
        count = total(page(cluster), "ray_serve_batches_processed_total", 'application="rag"')
        if count == last:
            return count
        last = count
        await asyncio.sleep(1.5)


async def test_each_cpu_stage_is_timed_on_the_page(
    cluster: RayCluster, client: httpx.AsyncClient
) -> None:
    await ask(client, "how long are prompts kept?", model="rag", app="rag")
    for stage in ("embed", "search"):
        assert await becomes_at_least(cluster, 1, "ray_rag_stage_seconds_count", f'stage="{stage}"')


async def test_batch_and_shares_change_without_a_restart(
    cluster: RayCluster, client: httpx.AsyncClient
) -> None:
    def replicas() -> set[str]:
        return {
            one["replica_id"]
            for application in cluster.applications().values()
            for stage in application["deployments"].values()
            for one in stage["replicas"]
        }

    before, changed_graph, changed_rag = replicas(), graph(), rag()
    deployment(changed_graph, "Ingress")["user_config"]["shares"] = {"a": 1.0}
    deployment(changed_rag, "Embedder")["user_config"]["max_batch_size"] = 1
    cluster.deploy({"applications": [changed_graph, changed_rag]})
    assert replicas() == before
    for number in range(8):
        answer = await ask(client, HARD, metadata={"conversation_id": f"new-{number}"})
        assert answer.headers["x-model-version"] == "a"
