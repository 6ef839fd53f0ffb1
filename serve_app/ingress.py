"""The OpenAI-compatible front: one replica, so busy that it must do little per chunk."""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI, Request, Response
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from serve_app.chat import (
    ApiError,
    ChatRequest,
    EventWriter,
    completion,
    error_event,
    parse_chat_request,
)
from serve_app.client_metrics import ClientMetrics
from serve_app.engine import Chunk, EngineDead, GenerationRequest, RequestRefused
from serve_app.settings import AppSettings

log = logging.getLogger("ray.serve")
app = FastAPI(title="Leadtime served application", docs_url=None, redoc_url=None)


@app.exception_handler(HTTPException)
async def unknown_route(_: Request, error: HTTPException) -> Response:
    """Wrong paths and methods in OpenAI's form, too."""
    return JSONResponse(ApiError(error.status_code, error.detail).body, error.status_code)


@app.exception_handler(Exception)
async def bug(_: Request, error: Exception) -> Response:
    """A fault of ours outside an answer; Serve logs its traceback."""
    return JSONResponse(api_error(error).body, api_error(error).status)


class Ingress:
    """POST /v1/chat/completions, GET /v1/models, GET /health."""

    def __init__(self, llm: DeploymentHandle, settings: AppSettings) -> None:
        context = serve.get_replica_context()
        self._llm = llm.options(stream=True, method_name="generate")
        self._settings = settings
        self._created_s = _unix_s()
        self._metrics = ClientMetrics(
            context.app_name, llm.deployment_name, settings.model, settings.slo_ttft_s
        )

    @app.post("/v1/chat/completions")
    async def chat_completions(self, request: Request) -> Response:
        arrived_s = time.monotonic()
        try:
            chat = self._checked(await request.body())
        except ApiError as error:
            self._metrics.refused(error.status)
            return JSONResponse(error.body, error.status)
        answer = Answer(self._llm, self._generation(chat), self._metrics, arrived_s)
        try:
            first = await answer.first()
            if chat.stream:
                return EventStream(answer, first, self._writer(answer, chat))
            chunks = [first, *[chunk async for chunk in answer.rest()]]
        except ApiError as error:
            return JSONResponse(error.body, error.status)
        body = completion(answer.id, _unix_s(), self._settings.model, chunks)
        return Response(body, media_type="application/json")

    @app.get("/v1/models")
    async def models(self) -> dict[str, Any]:
        model = {
            "id": self._settings.model,
            "object": "model",
            "created": self._created_s,
            "owned_by": "leadtime",
            "max_model_len": self._settings.engine.max_model_len,
        }
        return {"object": "list", "data": [model]}

    @app.get("/health")
    async def health(self) -> dict[str, str]:
        """200 while the ingress answers; whether replicas do is Serve's to say."""
        return {"status": "ok"}

    def _checked(self, body: bytes) -> ChatRequest:
        chat = parse_chat_request(body)
        if chat.model != self._settings.model:
            raise ApiError(
                404, f"the model '{chat.model}' does not exist", "model", "model_not_found"
            )
        return chat

    def _generation(self, chat: ChatRequest) -> GenerationRequest:
        limit = chat.max_completion_tokens or chat.max_tokens or self._settings.default_max_tokens
        messages = tuple(message.message() for message in chat.messages)
        return GenerationRequest(uuid.uuid4().hex, messages, limit, chat.sampling())

    def _writer(self, answer: "Answer", chat: ChatRequest) -> EventWriter:
        return EventWriter.of(answer.id, _unix_s(), self._settings.model, chat.include_usage)


class Answer:
    """One request on its way through the router; books its time to first token and its failure.

    Failures come out as ApiError. Whoever stops listening cancels the request down to the engine.
    """

    def __init__(
        self,
        llm: DeploymentHandle,
        request: GenerationRequest,
        metrics: ClientMetrics,
        arrived_s: float,
    ) -> None:
        self.id = f"chatcmpl-{request.request_id}"
        self._metrics = metrics
        self._arrived_s = arrived_s
        self._chunks = llm.remote(request)

    async def first(self) -> Chunk:
        """The first token, once a replica took the request and gave it."""
        try:
            chunk: Chunk = await anext(self._chunks)
        except asyncio.CancelledError:
            self._chunks.cancel()
            self._metrics.left(time.monotonic() - self._arrived_s)
            raise
        except Exception as error:
            raise self._failure(error, before_first_token=True) from error
        self._metrics.first_token(time.monotonic() - self._arrived_s)
        return chunk

    async def rest(self) -> AsyncGenerator[Chunk, None]:
        """The chunks after the first."""
        ended = False
        try:
            async for chunk in self._chunks:
                ended = chunk.finish_reason is not None
                yield chunk
            if not ended:
                raise EngineDead("the answer has no end")
        except (asyncio.CancelledError, GeneratorExit):
            self._chunks.cancel()
            raise
        except Exception as error:
            raise self._failure(error, before_first_token=False) from error

    def _failure(self, error: Exception, *, before_first_token: bool) -> ApiError:
        failure = api_error(error)
        if failure.status < 500:
            self._metrics.refused(failure.status)
        else:
            log.warning("request %s failed: %s", self.id, error)
            self._metrics.failed(failure.status, before_first_token=before_first_token)
        return failure


class EventStream(Response):
    """Server-sent events straight into ASGI: one message a chunk and no task beside the one."""

    media_type = "text/event-stream"

    def __init__(self, answer: Answer, first: Chunk, writer: EventWriter) -> None:
        self._answer = answer
        self._first = first
        self._writer = writer
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await self._pass_on(self._first, send)
        if self._first.finish_reason is not None:
            return
        try:
            async with contextlib.aclosing(self._answer.rest()) as rest:
                async for chunk in rest:
                    await self._pass_on(chunk, send)
        except ApiError as error:
            await send({"type": "http.response.body", "body": error_event(error)})

    async def _pass_on(self, chunk: Chunk, send: Send) -> None:
        event = self._writer.event(chunk)
        more = chunk.finish_reason is None
        await send({"type": "http.response.body", "body": event, "more_body": more})


def api_error(error: Exception) -> ApiError:
    """What a failure inside looks like to the client: never its traceback."""
    match error:
        case RequestRefused():
            message = str(getattr(error, "cause", error))
            return ApiError(400, message, "messages", "context_length_exceeded")
        case BackPressureError():
            return ApiError(503, "too many requests are waiting; try again", code="overloaded")
        case EngineDead() | RayActorError() | DeploymentUnavailableError():
            return ApiError(503, "the model's replica is gone; try again", code="unavailable")
        case _:
            return ApiError(500, "internal error", code="internal_error")


def _unix_s() -> int:
    """OpenAI's `created`: the only wall clock here; durations use the monotonic one."""
    return int(datetime.now(UTC).timestamp())
