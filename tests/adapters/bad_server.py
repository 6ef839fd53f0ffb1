"""A server that answers as broken ones do: slowly, hugely, cut off, with another's page."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Written = AsyncIterator[bytes]
Behaviour = Callable[[str], Written]
"""Called with the request's first line; yields what is written."""


@dataclass
class BadServer:
    """`behaves` may be changed at any time; `asked` counts the requests."""

    url: str
    behaves: Behaviour
    asked: list[str] = field(default_factory=list)


def head(status: str, kind: str = "application/json", **headers: str) -> bytes:
    """A response's head; the connection is closed after each answer."""
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def whole(status: str, body: bytes, kind: str = "application/json", **headers: str) -> Behaviour:
    """An answer as it should be, at least in form."""

    async def write(_: str) -> Written:
        yield head(status, kind, content_length=str(len(body)), **headers) + body

    return write


async def never(_: str) -> Written:
    """No answer, ever."""
    await asyncio.sleep(3600)
    yield b""


async def trickling_head(_: str) -> Written:
    """A byte of the head a tenth of a second: no single read ever times out."""
    for byte in b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 1000:
        yield bytes([byte])
        await asyncio.sleep(0.1)


async def trickling_body(_: str) -> Written:
    """A good head, then a byte of the body a tenth of a second."""
    yield head("200 OK")
    while True:
        yield b" "
        await asyncio.sleep(0.1)


async def endless(_: str) -> Written:
    """A body that does not end, as fast as it is taken."""
    yield head("200 OK") + b'{"status": "success", "data": {"result": ['
    part = b'{"metric": {"__name__": "a"}, "values": [[1, "1"]]},' * 10_000
    while True:
        yield part
        await asyncio.sleep(0.01)


async def cut_off(_: str) -> Written:
    """Half of what was announced."""
    yield head("200 OK", content_length="1000") + b'{"status": "succ'


async def hanging_up(_: str) -> Written:
    """The connection is closed without a word."""
    for part in list[bytes]():
        yield part


@contextmanager
def misbehaving(behaves: Behaviour) -> Iterator[BadServer]:
    """The server on a free loopback port, in a thread of its own."""
    made = BadServer("", behaves)
    stop = asyncio.Event()
    running: list[asyncio.AbstractEventLoop] = []
    started = threading.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            first = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
            made.asked.append(first)
            async for part in made.behaves(first):
                writer.write(part)
                await writer.drain()
        writer.close()

    async def serve() -> None:
        running.append(asyncio.get_running_loop())
        server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**20)
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await stop.wait()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    started.wait(5)
    try:
        yield made
    finally:
        running[0].call_soon_threadsafe(stop.set)
        thread.join(5)
