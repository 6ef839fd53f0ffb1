"""The graph and RAG with a real engine where their shipped CPU configs have the stand-in."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.vllm.conftest import (
    START_WITHIN_S,
    Served,
    becomes,
    beside,
    engine_of,
    shipped,
    stream,
    usage,
)

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(START_WITHIN_S + 120)]

TASK = "Write a Python function that merges two sorted lists"
FREQUENT = "how do i rotate my api key"
LEAKED = "my key was leaked, what now?"


def asked(text: str, model: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": model, "messages": messages, "max_tokens": 5, "ignore_eos": True} | more


def real(one: dict[str, Any], deployment: str) -> dict[str, Any]:
    """The application with the actor options of a real engine for that deployment."""
    _, options = engine_of("vllm-cpu.yaml")
    [found] = [each for each in one["deployments"] if each["name"] == deployment]
    found["ray_actor_options"] = options
    return one


@pytest.fixture(scope="module")
def graph(served: Served) -> Iterator[Served]:
    """Version a is a real engine; version b stays a stand-in."""
    one = shipped("graph-cpu.yaml", name="graph", route_prefix="/graph")
    engine, _ = engine_of("vllm-cpu.yaml")
    one["args"]["llm"]["versions"][0]["engine"] = engine
    with beside(served, real(one, "LLM-a")):
        yield served


async def test_the_graph_answers_from_its_real_engine(
    graph: Served, client: httpx.AsyncClient
) -> None:
    path, to_a = "/graph/v1/chat/completions", {"x-model-version": "a"}
    answer = await client.post(path, json=asked(TASK, "auto"), headers=to_a)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == "chat"
    assert answer.headers["x-model-version"] == "a"
    assert answer.json()["usage"]["completion_tokens"] == 5
    label = 'model_name="chat@a"'
    assert await becomes(lambda: graph.total("ray_vllm_request_success_total", label) == 1)


async def test_what_the_faq_knows_never_reaches_the_engine(
    graph: Served, client: httpx.AsyncClient
) -> None:
    label = 'model_name="chat@a"'
    path = "/graph/v1/chat/completions"
    before = graph.total("ray_vllm_request_success_total", label)
    answer = await client.post(path, json=asked(FREQUENT, "auto", max_tokens=50))
    assert answer.json()["model"] == "faq"
    assert "Make a second key" in answer.json()["choices"][0]["message"]["content"]
    told = "ray_graph_requests_total", 'why="intent"'
    assert await becomes(lambda: (graph.total(*told) or 0) >= 1)
    assert graph.total("ray_vllm_request_success_total", label) == before


async def test_a_version_with_a_real_engine_streams_a_conversation(
    graph: Served, client: httpx.AsyncClient
) -> None:
    """Both versions are asked by the graph's own split; whoever began a conversation ends it."""
    seen = {}
    for name in (f"conversation-{number}" for number in range(12)):
        body = asked(TASK, "chat", metadata={"conversation_id": name})
        versions = [
            (await client.post("/graph/v1/chat/completions", json=body)).headers["x-model-version"]
            for _ in range(2)
        ]
        assert len(set(versions)) == 1
        seen[name] = versions[0]
    name = next(name for name, version in seen.items() if version == "a")
    body = asked(TASK, "chat", metadata={"conversation_id": name}, max_tokens=20)
    events = await stream(client, body, path="/graph/v1/chat/completions")
    assert usage(events)["completion_tokens"] == 20


@pytest.fixture(scope="module")
def rag(served: Served) -> Iterator[Served]:
    one = shipped("rag-cpu.yaml", name="rag", route_prefix="/rag")
    one["args"]["engine"], _ = engine_of("vllm-cpu.yaml")
    with beside(served, real(one, "LLM")):
        yield served


async def test_rag_hands_its_passages_to_the_real_engine(
    rag: Served, client: httpx.AsyncClient
) -> None:
    path = "/rag/v1/chat/completions"
    answer = await client.post(path, json=asked(LEAKED, "rag"))
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-passages"].split(",")[0] == "keys.md#3"
    found = answer.json()["usage"]
    assert found["completion_tokens"] == 5
    alone = await client.post(path, json=asked("who won the world cup?", "rag"))
    assert alone.headers["x-passages"] == ""
    assert found["prompt_tokens"] > alone.json()["usage"]["prompt_tokens"] + 50
    events = await stream(client, asked(LEAKED, "rag", max_tokens=20), path=path)
    assert usage(events)["completion_tokens"] == 20
    label = 'model_name="rag"'
    assert await becomes(lambda: rag.total("ray_vllm_request_success_total", label) == 3)
