"""Who answers a request, and why: by name, by intent, and the LLM whenever there is doubt."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from serve_app.chat import ApiError, ChatRequest
from serve_app.graph.intents import FAQ, Intent
from serve_app.graph.settings import GraphSettings

log = logging.getLogger("ray.serve")

NO_INTENT = "none"
"""The intent of a request that no router was asked about."""


class Why(StrEnum):
    """Why a model answers."""

    NAMED = "named"
    """The client asked for it by name."""
    INTENT = "intent"
    """The router was sure of the intent."""
    UNSURE = "unsure"
    """The router was not, so the LLM answers."""
    NO_ROUTE = "no_route"
    """The intent has no cheaper model."""
    NO_FAQ_ANSWER = "no_faq_answer"
    """The FAQ holds nothing near enough."""
    ROUTER_FAILED = "router_failed"
    """Router or FAQ failed or took too long: the LLM answers."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Who answers: `text` is the whole answer if the FAQ has it already."""

    model: str
    why: Why
    intent: str = NO_INTENT
    text: str | None = None


Ask = Callable[..., Any]
"""A deployment's method: what it returns can be awaited and cancelled."""


class Chooser:
    """Asks router and FAQ, and never waits for either longer than `router.timeout_s`."""

    def __init__(self, classify: Ask, faq_answer: Ask, settings: GraphSettings) -> None:
        self._classify = classify
        self._faq_answer = faq_answer
        self._settings = settings

    async def choose(self, chat: ChatRequest) -> Choice:
        """Who answers. ApiError only if the FAQ was asked for by name and cannot answer."""
        if chat.model == FAQ:
            return await self._by_faq_alone(chat)
        if chat.model != self._settings.router.auto_model:
            return Choice(chat.model, Why.NAMED)
        try:
            intent: Intent = await self._in_time(self._classify(question(chat)))
        except PassedOver:
            return Choice(self._settings.llm.model, Why.ROUTER_FAILED)
        choice = routed(intent, self._settings)
        return await self._by_faq_or_llm(choice, chat) if choice.model == FAQ else choice

    async def _by_faq_or_llm(self, choice: Choice, chat: ChatRequest) -> Choice:
        llm = self._settings.llm.model
        try:
            text = await self._in_faq(chat)
        except PassedOver:
            return Choice(llm, Why.ROUTER_FAILED, choice.intent)
        if text is None:
            return Choice(llm, Why.NO_FAQ_ANSWER, choice.intent)
        return Choice(FAQ, choice.why, choice.intent, text)

    async def _by_faq_alone(self, chat: ChatRequest) -> Choice:
        try:
            text = await self._in_faq(chat)
        except PassedOver as error:
            raise ApiError(503, "the FAQ is gone; try again", code="unavailable") from error
        if text is None:
            raise ApiError(404, "no FAQ entry answers this", "messages", "no_answer")
        return Choice(FAQ, Why.NAMED, text=text)

    async def _in_faq(self, chat: ChatRequest) -> str | None:
        asked = self._faq_answer(question(chat), self._settings.router.min_similarity)
        text: str | None = await self._in_time(asked)
        return text

    async def _in_time(self, response: Any) -> Any:
        """A cheap stage's answer; PassedOver if it takes too long or breaks."""
        try:
            async with asyncio.timeout(self._settings.router.timeout_s):
                return await response
        except asyncio.CancelledError:
            response.cancel()
            raise
        except Exception as error:
            response.cancel()
            log.warning("a cheap stage is passed over: %s", error or "too slow")
            raise PassedOver from error


class PassedOver(Exception):
    """A cheap stage did not answer in time."""


def routed(intent: Intent, settings: GraphSettings) -> Choice:
    """The model for an intent: the LLM's if in doubt or if nothing cheaper is set."""
    llm = settings.llm.model
    if intent.confidence < settings.router.min_confidence:
        return Choice(llm, Why.UNSURE, intent.name)
    model = settings.router.routes.get(intent.name)
    if model is None:
        return Choice(llm, Why.NO_ROUTE, intent.name)
    return Choice(model, Why.INTENT, intent.name)


def question(chat: ChatRequest) -> str:
    """The last thing the user said; empty if nothing."""
    spoken = (message for message in reversed(chat.messages) if message.role == "user")
    last = next(spoken, None)
    return last.message().content if last is not None else ""
