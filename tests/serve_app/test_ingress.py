"""What clients see of failures, and what of them is booked."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError

from serve_app.chat import ApiError, EventWriter
from serve_app.client_metrics import NEVER_S, ttft_bounds_s
from serve_app.engine import Chunk, EngineDead, GenerationRequest, RequestRefused
from serve_app.ingress import Answer, EventStream, api_error

FIRST = Chunk("one ", 1, None, 3)
LAST = Chunk("two", 1, "length", 3)


class Book:
    """Stands for ClientMetrics and writes down what is booked."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []

    def first_token(self, ttft_s: float) -> None:
        self.entries.append(("first_token",))

    def failed(self, code: int, *, before_first_token: bool) -> None:
        self.entries.append(("failed", code, before_first_token))

    def refused(self, code: int) -> None:
        self.entries.append(("refused", code))

    def left(self, waited_s: float) -> None:
        self.entries.append(("left",))


class Stream:
    """Stands for Serve's response: chunks, then perhaps an error; knows if it was cancelled."""

    def __init__(self, *items: Chunk | Exception | float) -> None:
        self.cancelled = False
        self._items = self._generate(items)

    def remote(self, _: GenerationRequest) -> "Stream":
        return self

    def cancel(self) -> None:
        self.cancelled = True

    def __aiter__(self) -> AsyncGenerator[Chunk, None]:
        return self._items

    async def __anext__(self) -> Chunk:
        return await anext(self._items)

    async def _generate(
        self, items: tuple[Chunk | Exception | float, ...]
    ) -> AsyncGenerator[Chunk, None]:
        for item in items:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, float):
                await asyncio.sleep(item)
            else:
                yield item


def answer(stream: Stream, book: Book) -> Answer:
    request = GenerationRequest("r", (), 2)
    return Answer(stream, request, book, arrived_s=0.0)  # type: ignore[arg-type]


async def send_stream(stream: Stream, book: Book) -> list[dict[str, Any]]:
    """The ASGI messages of a streamed answer."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("reads nothing")

    one = answer(stream, book)
    events = EventStream(one, await one.first(), EventWriter("id", 0, "m", False))
    await events({"type": "http"}, receive, send)
    return sent


async def test_each_chunk_is_one_message_sent_as_it_comes() -> None:
    book = Book()
    start, first, last = await send_stream(Stream(FIRST, LAST), book)
    assert start["status"] == 200
    assert (b"content-type", b"text/event-stream; charset=utf-8") in start["headers"]
    assert not any(name == b"content-length" for name, _ in start["headers"])
    assert first["body"].count(b"data: ") == 2
    assert first["more_body"]
    assert last["body"].endswith(b"data: [DONE]\n\n")
    assert not last["more_body"]
    assert book.entries == [("first_token",)]


@pytest.mark.parametrize(
    "stream",
    [lambda: Stream(FIRST, EngineDead("gone")), lambda: Stream(FIRST)],
    ids=["the engine dies", "the answer just stops"],
)
async def test_a_failure_in_the_stream_is_told_in_it(stream: Callable[[], Stream]) -> None:
    book = Book()
    messages = await send_stream(stream(), book)
    assert b'"code": "unavailable"' in messages[-1]["body"]
    assert not messages[-1].get("more_body")
    assert book.entries == [("first_token",), ("failed", 503, False)]


async def test_a_failure_before_the_first_token_is_a_missed_slo() -> None:
    book = Book()
    with pytest.raises(ApiError):
        await answer(Stream(ValueError("a bug")), book).first()
    assert book.entries == [("failed", 500, True)]


async def test_a_refused_request_is_the_clients_fault_and_no_missed_slo() -> None:
    book = Book()
    with pytest.raises(ApiError) as caught:
        await answer(Stream(RequestRefused("too long")), book).first()
    assert caught.value.status == 400
    assert book.entries == [("refused", 400)]


async def test_leaving_before_the_first_token_cancels_and_is_booked() -> None:
    book, stream = Book(), Stream(10.0, FIRST)
    waiting = asyncio.create_task(answer(stream, book).first())
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert stream.cancelled
    assert book.entries == [("left",)]


async def test_leaving_mid_stream_cancels() -> None:
    book, stream = Book(), Stream(FIRST, 10.0, LAST)
    sending = asyncio.create_task(send_stream(stream, book))
    await asyncio.sleep(0.01)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert stream.cancelled


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RequestRefused("too long"), 400, "context_length_exceeded"),
        (BackPressureError(num_queued_requests=9, max_queued_requests=8), 503, "overloaded"),
        (EngineDead("stopped"), 503, "unavailable"),
        (RayActorError(), 503, "unavailable"),
        (ValueError("secret path /etc"), 500, "internal_error"),
        (RayTaskError("f", "trace", EngineDead("x")).as_instanceof_cause(), 503, "unavailable"),
    ],
    ids=["refused", "back-pressure", "dead engine", "dead replica", "bug", "through Ray"],
)
def test_errors_have_the_right_status_and_tell_no_secrets(
    error: Exception, status: int, code: str
) -> None:
    seen = api_error(error)
    assert (seen.status, seen.body["error"]["code"]) == (status, code)
    assert "secret" not in str(seen.body)


def test_every_slo_is_a_bucket_bound_and_a_failure_is_beyond_all() -> None:
    bounds = ttft_bounds_s([0.8, 1.0])
    assert {0.8, 1.0} <= set(bounds)
    assert list(bounds) == sorted(set(bounds))
    assert max(bounds) < NEVER_S
