"""What the LLM is given, and what is looked for."""

import json
from typing import Any

import numpy as np
import pytest

from serve_app.chat import ApiError, ChatRequest, parse_body
from serve_app.engine import Message
from serve_app.rag.index import Hit
from serve_app.rag.ingress import EmbeddingsRequest, named, question, with_passages, written
from serve_app.rag.passages import Passage

HITS = [Hit(Passage("a#1", "first passage"), 0.9), Hit(Passage("b#2", "second passage"), 0.5)]


def chat(*turns: tuple[str, Any]) -> ChatRequest:
    messages = [{"role": role, "content": content} for role, content in turns]
    return ChatRequest.model_validate({"model": "rag", "messages": messages})


def test_the_last_thing_the_user_said_is_looked_for() -> None:
    asked = chat(("user", "first"), ("assistant", "answer"), ("user", " second "), ("tool", "x"))
    assert question(asked) == "second"


@pytest.mark.parametrize(
    "turns", [(("system", "be brief"),), (("user", " "),), (("user", None),)], ids=str
)
def test_nothing_said_is_the_clients_fault(turns: tuple[tuple[str, Any], ...]) -> None:
    with pytest.raises(ApiError) as caught:
        question(chat(*turns))
    assert caught.value.status == 400


def test_passages_come_first_numbered_and_the_conversation_stays() -> None:
    turns = (Message("system", "be brief"), Message("user", "why?"))
    first, *rest = with_passages(turns, HITS)
    assert first.role == "system"
    assert first.content.splitlines()[1:] == ["[1] first passage", "[2] second passage"]
    assert tuple(rest) == turns


def test_without_a_passage_the_conversation_is_all() -> None:
    turns = (Message("user", "why?"),)
    assert with_passages(turns, []) == turns


def test_a_vector_is_written_as_numbers_json_can_hold() -> None:
    asked = EmbeddingsRequest(model="rag", input="x")
    numbers = written(np.array([0.5, -0.25], dtype=np.float32), asked)
    assert json.loads(json.dumps(numbers)) == [0.5, -0.25]


def test_passages_are_named_in_a_header_whatever_their_files_are_called() -> None:
    hits = [Hit(Passage("a b/größe\n.md#2", "x"), 0.9), Hit(Passage("plain.md#1", "x"), 0.8)]
    assert named(hits) == "a%20b/gr%C3%B6%C3%9Fe%0A.md#2,plain.md#1"
    assert named([]) == ""


@pytest.mark.parametrize(
    "texts", ["", [], [""], ["x"] * 2049], ids=["empty", "none", "an empty one", "too many"]
)
def test_texts_that_cannot_be_embedded_are_refused(texts: Any) -> None:
    with pytest.raises(ApiError, match="input"):
        parse_body(EmbeddingsRequest, json.dumps({"model": "m", "input": texts}).encode())
