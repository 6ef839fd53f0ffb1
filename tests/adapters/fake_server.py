"""A local HTTP server that answers as told: recorded series, or what broken servers say."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

Answer = tuple[int, str, bytes]


def vector(result: list[dict[str, Any]]) -> Answer:
    """A good answer."""
    kind = "matrix" if result and "values" in result[0] else "vector"
    body = {"status": "success", "data": {"resultType": kind, "result": result}}
    return 200, "application/json", json.dumps(body).encode()


@dataclass
class Fake:
    """`answer` is called with the path and the query's parameters."""

    url: str
    answer: Callable[[str, dict[str, str]], Answer]
    asked: list[dict[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def serving(answer: Callable[[str, dict[str, str]], Answer]) -> Iterator[Fake]:
    """The server on a free loopback port."""
    fake = Fake("", answer)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply()

        def do_POST(self) -> None:
            self._reply()

        do_PUT = do_POST

        def _reply(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = self.rfile.read(length)
            path = urlparse(self.path)
            parameters = {k: v[0] for k, v in parse_qs(path.query).items()}
            fake.asked.append({"path": path.path, "method": self.command, **parameters})
            if body:
                fake.asked[-1]["body"] = body.decode()
            fake.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, kind, content = fake.answer(path.path, parameters)
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
