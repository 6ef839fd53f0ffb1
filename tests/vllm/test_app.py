"""The application on real vLLM: OpenAI's protocol, aborts, warm first tokens, the metrics page."""

import asyncio
import gzip
import json
import time
from typing import Any

import httpx
import pytest

from serve_app.engine_metrics import metric_specs
from tests.serve_app.test_engine_metrics import RECORDED, Page, exported_name
from tests.vllm.conftest import MODEL, Served, becomes, chat, stream, usage

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]

CONTEXT_TOKENS = 2048
SLOTS = 8


async def test_the_first_answer_is_as_fast_as_any(client: httpx.AsyncClient) -> None:
    """RUNNING means warm: an engine that is not takes seconds for its first token."""
    took_s = []
    for _ in range(3):
        began, asked_s = asyncio.Event(), time.monotonic()
        answering = asyncio.create_task(stream(client, chat(8), began))
        await asyncio.wait_for(began.wait(), timeout=10)
        took_s.append(time.monotonic() - asked_s)
        await answering
    assert took_s[0] < 1.0, took_s


async def test_streams_chat_with_usage(client: httpx.AsyncClient) -> None:
    events = await stream(client, chat(12))
    payloads = [json.loads(event) for event in events[:-1]]
    assert payloads[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert payloads[-2]["choices"][0]["finish_reason"] == "length"
    told = usage(events)
    assert told["completion_tokens"] == 12
    assert told["prompt_tokens"] > 5
    assert told["total_tokens"] == told["prompt_tokens"] + 12


async def test_answers_chat_whole(client: httpx.AsyncClient) -> None:
    answer = (await client.post("/v1/chat/completions", json=chat(6, temperature=0))).json()
    again = (await client.post("/v1/chat/completions", json=chat(6, temperature=0))).json()
    assert answer["object"] == "chat.completion"
    assert answer["usage"]["completion_tokens"] == 6
    assert answer["choices"] == again["choices"], "sampling parameters reach the engine"


async def test_completes_text_and_token_ids(client: httpx.AsyncClient) -> None:
    asked = {"model": MODEL, "max_tokens": 5, "ignore_eos": True, "prompt": "the queue"}
    whole = (await client.post("/v1/completions", json=asked)).json()
    assert whole["object"] == "text_completion"
    assert whole["usage"]["completion_tokens"] == 5
    by_ids = await client.post("/v1/completions", json=asked | {"prompt": [5, 6, 7]})
    assert by_ids.json()["usage"]["prompt_tokens"] == 3
    events = await stream(client, asked, path="/v1/completions")
    assert usage(events)["completion_tokens"] == 5
    assert "text" in json.loads(events[0])["choices"][0]


async def test_names_its_model_and_context(client: httpx.AsyncClient) -> None:
    [model] = (await client.get("/v1/models")).json()["data"]
    assert (model["id"], model["max_model_len"]) == (MODEL, CONTEXT_TOKENS)


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": CONTEXT_TOKENS}, 400, "messages"),
        ({"messages": [{"role": "user", "content": "long " * 5000}]}, 400, "messages"),
        ({"min_tokens": 9, "max_tokens": 3}, 400, "messages"),
        ({"model": "other"}, 404, "model"),
    ],
    ids=["a bad field", "output over the context", "a long prompt", "contradiction", "no model"],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_errors_are_openais(
    client: httpx.AsyncClient, change: dict[str, Any], status: int, param: str, streamed: bool
) -> None:
    answer = await client.post("/v1/chat/completions", json=chat(5, stream=streamed) | change)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


async def test_a_client_that_leaves_frees_the_engine(
    served: Served, client: httpx.AsyncClient
) -> None:
    before = served.total("ray_vllm_generation_tokens_total") or 0.0
    began = [asyncio.Event() for _ in range(SLOTS)]
    leaving = [asyncio.create_task(stream(client, chat(900), one)) for one in began]
    for one in began:
        await asyncio.wait_for(one.wait(), timeout=10)
    for task in leaving:
        task.cancel()
    left_s = time.monotonic()
    # All slots were taken: the next one gets in because the engine forgot those that left.
    answer = await client.post("/v1/chat/completions", json=chat(4))
    assert answer.status_code == 200
    assert time.monotonic() - left_s < 2.0
    # An engine with nothing to do says zero, or nothing after two report intervals.
    assert await becomes(lambda: not served.total("ray_vllm_num_requests_running"))
    generated = served.total("ray_vllm_generation_tokens_total")
    assert generated is not None
    assert generated - before < SLOTS * 900


async def keep_asking(client: httpx.AsyncClient) -> None:
    """One request after the other: a single one can be over before the page shows it."""
    while True:
        await stream(client, chat(1900))


async def test_the_page_has_every_name_that_the_stand_in_has(
    served: Served, client: httpx.AsyncClient
) -> None:
    """What the controller and the dashboards read on the stand-in is there on real vLLM."""
    await asyncio.gather(*(stream(client, chat(40)) for _ in range(2 * SLOTS)))
    assert await becomes(lambda: served.total("ray_vllm_request_success_total") is not None)
    asking = asyncio.create_task(keep_asking(client))
    try:
        assert await becomes(lambda: served.total("ray_vllm_num_requests_running") == 1)
        live = Page(served.page())
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    for name, spec in metric_specs(CONTEXT_TOKENS).items():
        if name != "num_preemptions":  # zeros are not exported
            assert live.labels[exported_name(spec)] == set(spec.labels), name
            assert live.bounds[f"ray_vllm_{name}"] == set(spec.bounds), name


@pytest.mark.skipif(not RECORDED.exists(), reason=f"no recorded page at {RECORDED}")
async def test_the_page_is_the_recorded_one(served: Served) -> None:
    """The recording that faster tests go by is still what vLLM says."""
    recorded = Page(gzip.decompress(RECORDED.read_bytes()).decode())
    live = Page(served.page())
    for name, labels in recorded.labels.items():
        if name.startswith("ray_vllm_") and name in live.labels:
            assert live.labels[name] == labels, name
    missing = {n for n in recorded.labels if n.startswith("ray_vllm_")} - live.labels.keys()
    # Gauges of an idle engine vanish, counters that never counted are absent.
    assert not {name for name in missing if name.endswith(("_bucket", "_count", "_sum"))}


def test_the_warm_up_is_not_counted(served: Served) -> None:
    assert 'deployment="LLM"' in served.first_page
    assert "ray_vllm_prompt_tokens_total" not in served.first_page
    assert "ray_vllm_time_to_first_token_seconds_count" not in served.first_page


async def test_series_bear_model_and_replica(served: Served, client: httpx.AsyncClient) -> None:
    await stream(client, chat(4))
    [replica] = served.running()
    labels = f'ReplicaId="{replica["replica_id"]}"', f'model_name="{MODEL}"'
    assert await becomes(lambda: served.total("ray_vllm_prompt_tokens_total", *labels) is not None)
