"""The OpenAI-compatible front: one replica, so busy that it must do little per chunk."""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

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
    Sampling,
    completion,
    error_event,
    parse_chat_request,
)
from serve_app.client_metrics import ClientMetrics
from serve_app.completions import (
    CompletionRequest,
    TextEventWriter,
    completion_body,
    parse_completion_request,
)
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


@dataclass(frozen=True)
class Form:
    """One of OpenAI's two ways to ask, and to be answered; `prompt` names its field."""

    prefix: str
    prompt: str
    parse: Callable[[bytes], ChatRequest | CompletionRequest]
    whole: Callable[..., bytes]
    writer: type[EventWriter]


CHAT = Form("chatcmpl", "messages", parse_chat_request, completion, EventWriter)
TEXT = Form("cmpl", "prompt", parse_completion_request, completion_body, TextEventWriter)


class Ingress:
    """POST /v1/chat/completions, POST /v1/completions, GET /v1/models, GET /health."""

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
        return await self._answer(request, CHAT)

    @app.post("/v1/completions")
    async def completions(self, request: Request) -> Response:
        return await self._answer(request, TEXT)

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

    async def _answer(self, request: Request, form: Form) -> Response:
        arrived_s = time.monotonic()
        try:
            asked = form.parse(await request.body())
            self._must_serve(asked)
        except ApiError as error:
            self._metrics.refused(error.status)
            return JSONResponse(error.body, error.status)
        generation = self._generation(asked)
        answer = Answer(self._llm, generation, self._metrics, arrived_s, form)
        frame = (answer.id, _unix_s(), self._settings.model)
        try:
            first = await answer.first()
            if asked.stream:
                return EventStream(answer, first, form.writer(*frame, asked.include_usage))
            chunks = [first, *[chunk async for chunk in answer.rest()]]
        except ApiError as error:
            return JSONResponse(error.body, error.status)
        return Response(form.whole(*frame, chunks), media_type="application/json")

    def _must_serve(self, asked: Sampling) -> None:
        if asked.model != self._settings.model:
            raise ApiError(
                404, f"the model '{asked.model}' does not exist", "model", "model_not_found"
            )

    def _generation(self, asked: ChatRequest | CompletionRequest) -> GenerationRequest:
        limit = asked.limit or self._settings.default_max_tokens
        name = uuid.uuid4().hex
        if isinstance(asked, CompletionRequest):
            return GenerationRequest(name, (), limit, asked.sampling(), asked.prompt)
        messages = tuple(message.message() for message in asked.messages)
        return GenerationRequest(name, messages, limit, asked.sampling())


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
        form: Form = CHAT,
    ) -> None:
        self.id = f"{form.prefix}-{request.request_id}"
        self._form = form
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
        failure = api_error(error, self._form.prompt)
        if failure.status < 500:
            self._metrics.refused(failure.status)
        else:
            log.warning("request %s failed: %s", self.id, error)
            self._metrics.failed(failure.status, before_first_token=before_first_token)
        return failure


class Answering(Protocol):
    """What a response is made of."""

    id: str

    async def first(self) -> Chunk:
        """The first chunk; ApiError if there is none."""

    def rest(self) -> AsyncGenerator[Chunk, None]:
        """The chunks after the first; ApiError if they break off."""


class EventStream(Response):
    """Server-sent events straight into ASGI: one message a chunk and no task beside the one."""

    media_type = "text/event-stream"

    def __init__(self, answer: Answering, first: Chunk, writer: EventWriter) -> None:
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


def api_error(error: Exception, prompt: str = "messages") -> ApiError:
    """What a failure inside looks like to the client, `prompt` being the name of the field that
    may be at fault: never its traceback."""
    match error:
        case RequestRefused():
            message = str(getattr(error, "cause", error))
            return ApiError(400, message, prompt, "context_length_exceeded")
        case BackPressureError():
            return ApiError(503, "too many requests are waiting; try again", code="overloaded")
        case EngineDead() | RayActorError() | DeploymentUnavailableError():
            return ApiError(503, "the model's replica is gone; try again", code="unavailable")
        case _:
            return ApiError(500, "internal error", code="internal_error")


def _unix_s() -> int:
    """OpenAI's `created`: the only wall clock here; durations use the monotonic one."""
    return int(datetime.now(UTC).timestamp())
