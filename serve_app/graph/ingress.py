"""The multi-model graph's front: chooses who answers, then passes the answer on.

Chunks go from the model's replica straight through here; the router is asked once a request.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.util import metrics

from serve_app.chat import ApiError, ChatRequest, parse_chat_request
from serve_app.client_metrics import ClientMetrics
from serve_app.engine import Chunk, GenerationRequest
from serve_app.graph.choice import Choice, Chooser, question
from serve_app.graph.intents import FAQ
from serve_app.graph.settings import GraphSettings
from serve_app.graph.split import Shares, opening, version_of
from serve_app.ingress import Answer, Answering
from serve_app.reply import book, openai_app, refuse, reply, unix_s
from serve_app.settings import InvalidArgs

log = logging.getLogger("ray.serve")
app = openai_app("Leadtime served application: several models")

CONVERSATION_ID = "conversation_id"
"""The header x-conversation-id, or the key of the body's `metadata`."""
VERSION_HEADER = "x-model-version"


@dataclass(frozen=True, slots=True)
class Model:
    """One deployment, or one version, that answers."""

    llm: DeploymentHandle
    metrics: ClientMetrics
    labels: Mapping[str, str]


class Ready:
    """An answer that is there already, as the FAQ's are."""

    def __init__(self, text: str, prompt: str, client: ClientMetrics, arrived_s: float) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self._chunk = Chunk(text, len(text.split()), "stop", len(prompt.split()))
        self._client = client
        self._arrived_s = arrived_s

    async def first(self) -> Chunk:
        self._client.first_token(time.monotonic() - self._arrived_s)
        return self._chunk

    async def rest(self) -> AsyncGenerator[Chunk, None]:
        return
        yield


class GraphIngress:
    """POST /v1/chat/completions, GET /v1/models, GET /health."""

    def __init__(
        self,
        router: DeploymentHandle,
        faq: DeploymentHandle,
        versions: Mapping[str, DeploymentHandle],
        small: DeploymentHandle | None,
        settings: GraphSettings,
    ) -> None:
        self._application = serve.get_replica_context().app_name
        self._settings = settings
        self._chooser = Chooser(router.classify.remote, faq.answer.remote, settings)
        self._shares: Shares = settings.shares(settings.default_split().model_dump())
        self._configured = False
        self._created_s = unix_s()
        self._front = ClientMetrics(self._application, "Ingress", "none", settings.slo_ttft_s)
        self._faq_model = self._model(faq, FAQ)
        self._versions = {
            name: self._model(handle, f"{settings.llm.model}@{name}")
            for name, handle in versions.items()
        }
        self._small = {
            name: self._model(small, name, multiplexed_model_id=name)
            for name in (settings.small_models() if small is not None else ())
        }
        self._choices = metrics.Counter(
            "graph_requests",
            "Requests by the model that answers and why it does.",
            ("application", "deployment", "model_name", "intent", "why"),
        )

    def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Take new shares. A wrong first config fails the deploy; a wrong later one is logged and
        the old shares stay, for Serve would replace an ingress that refuses."""
        try:
            self._shares = self._settings.shares(user_config)
        except InvalidArgs as error:
            if not self._configured:
                raise
            log.error("%s; the shares stay %s", error, dict(self._shares))
        self._configured = True

    def _model(self, handle: DeploymentHandle, name: str, **options: str) -> Model:
        labels = {
            "application": self._application,
            "deployment": handle.deployment_name,
            "model_name": name,
        }
        client = ClientMetrics(
            self._application, handle.deployment_name, name, self._settings.slo_ttft_s
        )
        stream = handle.options(stream=True, method_name="generate", **options)
        return Model(stream, client, labels)

    @app.post("/v1/chat/completions")
    async def chat_completions(self, request: Request) -> Response:
        arrived_s = time.monotonic()
        try:
            chat = self._checked(await request.body())
            choice = await self._chooser.choose(chat)
        except asyncio.CancelledError:
            self._front.left(time.monotonic() - arrived_s)
            raise
        except ApiError as error:
            return refuse(book(self._front, error))
        model, headers = self._answerer(choice, chat, request.headers)
        self._choices.inc(1, {**model.labels, "intent": choice.intent, "why": choice.why})
        answer: Answering
        if choice.text is not None:
            answer = Ready(choice.text, question(chat), model.metrics, arrived_s)
        else:
            answer = Answer(model.llm, self._generation(chat), model.metrics, arrived_s)
        try:
            return await reply(answer, chat, choice.model, headers)
        except ApiError as error:
            return refuse(error)

    @app.get("/v1/models")
    async def models(self) -> dict[str, Any]:
        about = {"object": "model", "created": self._created_s, "owned_by": "leadtime"}
        return {"object": "list", "data": [{"id": name} | about for name in self._settings.models]}

    @app.get("/health")
    async def health(self) -> dict[str, str]:
        """200 while the ingress answers; whether the models do is Serve's to say."""
        return {"status": "ok"}

    def _checked(self, body: bytes) -> ChatRequest:
        chat = parse_chat_request(body)
        if chat.model not in self._settings.models:
            raise ApiError(
                404, f"the model '{chat.model}' does not exist", "model", "model_not_found"
            )
        return chat

    def _answerer(
        self, choice: Choice, chat: ChatRequest, headers: Mapping[str, str]
    ) -> tuple[Model, dict[str, str]]:
        """The deployment behind the choice, and what the client is told of it."""
        if choice.model == FAQ:
            return self._faq_model, {}
        if choice.model in self._small:
            return self._small[choice.model], {}
        kept = headers.get(VERSION_HEADER)
        version = kept if kept in self._versions else self._split(chat, headers)
        return self._versions[version], {VERSION_HEADER: version}

    def _split(self, chat: ChatRequest, headers: Mapping[str, str]) -> str:
        return version_of(conversation(chat, headers), self._shares, self._settings.llm.model)

    def _generation(self, chat: ChatRequest) -> GenerationRequest:
        limit = chat.limit or self._settings.default_max_tokens
        messages = tuple(message.message() for message in chat.messages)
        return GenerationRequest(uuid.uuid4().hex, messages, limit, chat.sampling())


def conversation(chat: ChatRequest, headers: Mapping[str, str]) -> str:
    """What names this conversation: the client's id for it, else how it began."""
    given = headers.get("x-conversation-id") or (chat.metadata or {}).get(CONVERSATION_ID)
    return given or opening([message.message() for message in chat.messages])
