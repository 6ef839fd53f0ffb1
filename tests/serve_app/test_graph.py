"""Who answers: by name, by intent, the LLM whenever there is doubt; and the graph's args."""

import asyncio
from typing import Any

import pytest

from serve_app.chat import ApiError, ChatRequest
from serve_app.engine import EngineDead
from serve_app.graph.app import build
from serve_app.graph.choice import Choice, Chooser, Why, question
from serve_app.graph.ingress import GraphIngress, conversation
from serve_app.graph.intents import BadPhrases, Intent
from serve_app.graph.settings import GraphSettings
from serve_app.graph.stages import Loaded
from serve_app.settings import InvalidArgs, parse

SMALL: dict[str, Any] = {"models": {"small-en": {}, "small-de": {}}}
ARGS: dict[str, Any] = {
    "router": {"routes": {"faq": "faq", "smalltalk": "small-en"}, "timeout_s": 0.05},
    "llm": {"model": "chat", "versions": [{"name": "a"}, {"name": "b"}]},
    "small": SMALL,
}
SETTINGS = parse(GraphSettings, ARGS, "test")
SURE, UNSURE = 0.9, 0.4


def chat(model: str = "auto", **more: Any) -> ChatRequest:
    body = {"model": model, "messages": [{"role": "user", "content": "how?"}]}
    return ChatRequest.model_validate(body | more)


class Stage:
    """A deployment's method that answers, fails, or never comes back; knows what was cancelled."""

    def __init__(self, result: Any) -> None:
        self.result = result
        self.cancelled = self.asked = 0

    def __call__(self, *_: Any) -> "Stage":
        self.asked += 1
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    def __await__(self) -> Any:
        return self._answer().__await__()

    async def _answer(self) -> Any:
        if self.result == "never":
            await asyncio.Event().wait()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


async def chosen(router: Any, faq: Any = None, model: str = "auto") -> Choice:
    return await Chooser(Stage(router), Stage(faq), SETTINGS).choose(chat(model))


@pytest.mark.parametrize(
    ("router", "faq", "model", "why"),
    [
        (Intent("faq", SURE), "the answer", "faq", Why.INTENT),
        (Intent("faq", SURE), None, "chat", Why.NO_FAQ_ANSWER),
        (Intent("smalltalk", SURE), None, "small-en", Why.INTENT),
        (Intent("task", SURE), None, "chat", Why.NO_ROUTE),
        (Intent("faq", UNSURE), "the answer", "chat", Why.UNSURE),
        (EngineDead("gone"), None, "chat", Why.ROUTER_FAILED),
        ("never", None, "chat", Why.ROUTER_FAILED),
        (Intent("faq", SURE), EngineDead("gone"), "chat", Why.ROUTER_FAILED),
        (Intent("faq", SURE), "never", "chat", Why.ROUTER_FAILED),
    ],
    ids=[
        "the FAQ has it",
        "the FAQ has it not",
        "a small model's intent",
        "an intent without a route",
        "in doubt",
        "the router is gone",
        "the router hangs",
        "the FAQ is gone",
        "the FAQ hangs",
    ],
)
async def test_auto_is_answered_by(router: Any, faq: Any, model: str, why: Why) -> None:
    choice = await chosen(router, faq)
    assert (choice.model, choice.why) == (model, why)
    assert (choice.text is not None) == (model == "faq")


@pytest.mark.parametrize("model", ["chat", "small-de"])
async def test_a_model_asked_for_by_name_needs_no_router(model: str) -> None:
    router = Stage(Intent("faq", SURE))
    choice = await Chooser(router, Stage("x"), SETTINGS).choose(chat(model))
    assert choice == Choice(model, Why.NAMED)
    assert router.asked == 0


@pytest.mark.parametrize(
    ("faq", "status", "code"),
    [(None, 404, "no_answer"), (EngineDead("gone"), 503, "unavailable"), ("never", 503, None)],
    ids=["no answer", "gone", "hangs"],
)
async def test_the_faq_by_name_hides_no_failure(faq: Any, status: int, code: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        await chosen(None, faq, model="faq")
    assert caught.value.status == status
    assert code in (None, caught.value.body["error"]["code"])


async def test_a_client_that_leaves_cancels_the_router() -> None:
    router = Stage("never")
    choosing = asyncio.create_task(Chooser(router, Stage(None), SETTINGS).choose(chat()))
    await asyncio.sleep(0)
    choosing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await choosing
    assert router.cancelled == 1


def test_the_question_is_the_users_last() -> None:
    turns = [
        {"role": "user", "content": "one"},
        {"role": "user", "content": [{"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "three"},
    ]
    assert question(chat(messages=turns)) == "two"
    assert question(chat(messages=[{"role": "system", "content": "x"}])) == ""


def test_a_conversation_is_named_by_header_then_metadata_then_beginning() -> None:
    named = chat(metadata={"conversation_id": "m"})
    assert conversation(named, {"x-conversation-id": "h"}) == "h"
    assert conversation(named, {}) == "m"
    assert conversation(chat(), {}) == "user\0how?"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"llm": {"versions": []}}, r"llm\.versions"),
        ({"llm": {"versions": [{"name": "a"}, {"name": "a"}]}}, "names of versions must differ"),
        ({"llm": {"versions": [{"name": "a/b"}]}}, r"llm\.versions\.0\.name"),
        ({"llm": {"model": "auto"}}, "model names must differ"),
        ({"router": {"routes": {"faq": "other"}}}, r"router\.routes\.faq: 'other' is none of"),
        ({"router": {"routes": {"poetry": "chat"}}}, "poetry: no such intent"),
        ({"router": {"min_confidence": 2}}, r"router\.min_confidence"),
        ({"small": {"models": {}}}, r"small\.models"),
        ({"smal": SMALL}, "smal: unknown key"),
    ],
    ids=[
        "no version",
        "twins",
        "no deployment's name",
        "a name twice",
        "unknown model",
        "unknown intent",
        "out of bounds",
        "no small model",
        "unknown key",
    ],
)
def test_wrong_args_name_the_key(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgs, match=says):
        build({**ARGS, "router": {}, **change} if "llm" in change else {**ARGS, **change})


def test_a_phrases_file_that_is_not_there_fails_the_deploy() -> None:
    with pytest.raises(BadPhrases, match=r"/nowhere\.yaml"):
        build({"router": {"phrases": "/nowhere.yaml"}})


def test_the_first_version_gets_all_until_told_otherwise() -> None:
    default = SETTINGS.default_split().model_dump()
    assert SETTINGS.shares(default) == (("a", 1.0), ("b", 0.0))
    assert SETTINGS.shares({"shares": {"b": 0.1, "a": 0.9}}) == (("a", 0.9), ("b", 0.1))


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ({"a": 0.9}, "sum to 1"),
        ({"a": 0.9, "c": 0.1}, r"shares\.c: no such version"),
        ({"a": 2.0, "b": -1.0}, r"shares\."),
    ],
    ids=["not the whole", "unknown version", "out of bounds"],
)
def test_wrong_shares_are_named(shares: dict[str, float], says: str) -> None:
    with pytest.raises(InvalidArgs, match=says):
        SETTINGS.shares({"shares": shares})


def test_wrong_shares_fail_the_first_config_and_change_nothing_later() -> None:
    """Serve replaces an ingress that refuses a config: an outage for a typing error."""
    ingress = GraphIngress.__new__(GraphIngress)
    ingress._settings, ingress._configured = SETTINGS, False  # noqa: SLF001
    with pytest.raises(InvalidArgs):
        ingress.reconfigure({"shares": {"c": 1.0}})
    ingress.reconfigure({"shares": {"a": 0.5, "b": 0.5}})
    ingress.reconfigure({"shares": {"a": 0.5}})
    assert ingress._shares == (("a", 0.5), ("b", 0.5))  # noqa: SLF001


class Stopping:
    """An engine that only knows whether it was stopped."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    async def stop(self) -> None:
        self.stopped.set()


async def test_a_model_is_unloaded_only_when_its_last_answer_is_done() -> None:
    engine, forgotten = Stopping(), asyncio.Event()
    loaded = Loaded(engine, forgotten.set)  # type: ignore[arg-type]
    async with loaded.answering():
        unloading = asyncio.create_task(loaded.__del__())
        await asyncio.sleep(0)
        assert not engine.stopped.is_set()
    await unloading
    assert engine.stopped.is_set()
    assert forgotten.is_set()
