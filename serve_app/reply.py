"""One answer as an HTTP response, whole or streamed, for every ingress."""

from collections.abc import Mapping
from datetime import UTC, datetime

from fastapi import FastAPI, Response
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from serve_app.chat import ApiError, ChatRequest, EventWriter, completion
from serve_app.client_metrics import ClientMetrics
from serve_app.ingress import Answering, EventStream, bug, unknown_route


def openai_app(title: str) -> FastAPI:
    """A FastAPI app whose errors are in OpenAI's form."""
    app = FastAPI(title=title, docs_url=None, redoc_url=None)
    app.add_exception_handler(HTTPException, unknown_route)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, bug)
    return app


async def reply(
    answer: Answering, chat: ChatRequest, model: str, headers: Mapping[str, str]
) -> Response:
    """The answer under the name `model`; ApiError if it fails before the status line is out."""
    first = await answer.first()
    response: Response
    if chat.stream:
        writer = EventWriter(answer.id, unix_s(), model, chat.include_usage)
        response = EventStream(answer, first, writer)
    else:
        rest = [] if first.finish_reason else [chunk async for chunk in answer.rest()]
        body = completion(answer.id, unix_s(), model, [first, *rest])
        response = Response(body, media_type="application/json")
    response.headers.update(headers)
    return response


def refuse(error: ApiError) -> Response:
    """The error as the whole response."""
    return JSONResponse(error.body, error.status)


def book(metrics: ClientMetrics, error: ApiError) -> ApiError:
    """Count an error that came before any engine was asked."""
    if error.status < 500:
        metrics.refused(error.status)
    else:
        metrics.failed(error.status, before_first_token=True)
    return error


def unix_s() -> int:
    """OpenAI's `created`; durations use the monotonic clock."""
    return int(datetime.now(UTC).timestamp())
