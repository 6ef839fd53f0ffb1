"""The RAG application's front: embed the question, find passages, let the LLM answer from them."""

import asyncio
import base64
import logging
import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import quote

import numpy as np
from fastapi import Request, Response
from pydantic import BaseModel, Field
from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.util import metrics
from starlette.responses import JSONResponse

from serve_app.chat import ApiError, ChatRequest, parse_body, parse_chat_request
from serve_app.client_metrics import ClientMetrics
from serve_app.engine import GenerationRequest, Message
from serve_app.ingress import Answer, api_error
from serve_app.rag.index import Hit
from serve_app.rag.settings import RagSettings
from serve_app.rag.stages import Vector
from serve_app.reply import book, openai_app, refuse, reply, unix_s

log = logging.getLogger("ray.serve")
app = openai_app("Leadtime served application: answers from passages")

STAGE_BOUNDS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
INSTRUCTION = (
    "Answer from these passages and name the ones you used by their number. "
    "If they do not hold the answer, say so."
)


MAX_TEXTS = 2048
"""In one request, as OpenAI has it."""
Text = Annotated[str, Field(min_length=1)]


class EmbeddingsRequest(BaseModel):
    """The body of POST /v1/embeddings."""

    model: str
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]
    encoding_format: Literal["float", "base64"] = "float"

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


class RagIngress:
    """POST /v1/chat/completions, POST /v1/embeddings, GET /v1/models, GET /health."""

    def __init__(
        self,
        embedder: DeploymentHandle,
        search: DeploymentHandle,
        llm: DeploymentHandle,
        settings: RagSettings,
    ) -> None:
        context = serve.get_replica_context()
        self._embedder = embedder
        self._search = search
        self._llm = llm.options(stream=True, method_name="generate")
        self._settings = settings
        self._created_s = unix_s()
        self._metrics = ClientMetrics(
            context.app_name, llm.deployment_name, settings.model, settings.slo_ttft_s
        )
        self._stage_s = metrics.Histogram(
            "rag_stage_seconds",
            "Seconds from asking a CPU stage to its answer, router wait included.",
            list(STAGE_BOUNDS_S),
            ("application", "stage"),
        ).set_default_tags({"application": context.app_name})

    @app.post("/v1/chat/completions")
    async def chat_completions(self, request: Request) -> Response:
        arrived_s = time.monotonic()
        try:
            chat = parse_chat_request(await request.body())
            must_be(chat.model, self._settings.model)
            hits = await self._passages(question(chat), arrived_s)
        except ApiError as error:
            return refuse(book(self._metrics, error))
        answer = Answer(self._llm, self._generation(chat, hits), self._metrics, arrived_s)
        try:
            headers = {"x-passages": named(hits)}
            return await reply(answer, chat, self._settings.model, headers)
        except ApiError as error:
            return refuse(error)

    @app.post("/v1/embeddings")
    async def embeddings(self, request: Request) -> Response:
        try:
            asked = parse_body(EmbeddingsRequest, await request.body())
            must_be(asked.model, self._settings.encoder.model)
            vectors, tokens = await asyncio.gather(
                asyncio.gather(*[self._embedder.embed.remote(text) for text in asked.texts]),
                self._embedder.count_tokens.remote(asked.texts),
            )
        except ApiError as error:
            return refuse(book(self._metrics, error))
        data = [
            {"object": "embedding", "index": place, "embedding": written(vector, asked)}
            for place, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        body = {"object": "list", "data": data, "model": asked.model, "usage": usage}
        return JSONResponse(body)

    @app.get("/v1/models")
    async def models(self) -> dict[str, Any]:
        about = {"object": "model", "created": self._created_s, "owned_by": "leadtime"}
        names = (self._settings.model, self._settings.encoder.model)
        return {"object": "list", "data": [{"id": name} | about for name in names]}

    @app.get("/health")
    async def health(self) -> dict[str, str]:
        """200 while the ingress answers; whether the stages do is Serve's to say."""
        return {"status": "ok"}

    async def _passages(self, text: str, arrived_s: float) -> list[Hit]:
        """The CPU stages. An answer without passages would be made up: their failure is ours."""
        index = self._settings.index
        try:
            vector = await self._timed("embed", self._embedder.embed.remote(text))
            return list(
                await self._timed(
                    "search",
                    self._search.nearest.remote(vector, index.passages, index.min_score),
                )
            )
        except asyncio.CancelledError:
            self._metrics.left(time.monotonic() - arrived_s)
            raise
        except Exception as error:
            log.warning("no passages: %s", error)
            raise api_error(error) from error

    async def _timed(self, stage: str, response: Any) -> Any:
        began_s = time.monotonic()
        try:
            return await response
        except asyncio.CancelledError:
            response.cancel()
            raise
        finally:
            self._stage_s.observe(time.monotonic() - began_s, {"stage": stage})

    def _generation(self, chat: ChatRequest, hits: Sequence[Hit]) -> GenerationRequest:
        limit = chat.limit or self._settings.default_max_tokens
        messages = tuple(message.message() for message in chat.messages)
        return GenerationRequest(
            uuid.uuid4().hex, with_passages(messages, hits), limit, chat.sampling()
        )


def must_be(asked: str, served: str) -> None:
    """ApiError 404 for another model's name."""
    if asked != served:
        raise ApiError(404, f"the model '{asked}' does not exist", "model", "model_not_found")


def question(chat: ChatRequest) -> str:
    """What to look for: the last thing the user said. ApiError 400 if that is nothing."""
    for message in reversed(chat.messages):
        if message.role == "user" and (text := message.message().content.strip()):
            return text
    raise ApiError(400, "no message of role 'user' has content", "messages", "missing_question")


def with_passages(messages: Sequence[Message], hits: Sequence[Hit]) -> tuple[Message, ...]:
    """The conversation with the passages as its first system message; as it is without any."""
    if not hits:
        return tuple(messages)
    numbered = [f"[{number}] {hit.passage.text}" for number, hit in enumerate(hits, start=1)]
    return (Message("system", "\n".join([INSTRUCTION, *numbered])), *messages)


def named(hits: Sequence[Hit]) -> str:
    """The passages as a header's value: ids percent-encoded, as a file may have any name."""
    return ",".join(quote(hit.passage.id, safe="/#") for hit in hits)


def written(vector: Vector, asked: EmbeddingsRequest) -> list[float] | str:
    """A vector as the client wants it: numbers, or their little-endian float32 in base64."""
    if asked.encoding_format == "float":
        return [float(value) for value in vector]
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()
