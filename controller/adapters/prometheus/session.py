"""A session of bounded requests: so many bytes, so many seconds, no redirects."""

import contextlib
import io
import socket
import threading
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError

MOST_BYTES = 16 * 2**20
CHUNK = 65_536
LONGEST_S = 60.0


class TooLarge(requests.RequestException):
    """The answer is larger than anything we need."""


class Overloaded(requests.RequestException):
    """The server asks to be left alone, for `retry_after_s` (0 = it does not say)."""

    def __init__(self, status: int, retry_after_s: float) -> None:
        super().__init__(f"answered {status}")
        self.status = status
        self.retry_after_s = retry_after_s


class BoundedSession(requests.Session):
    """Reads an answer up to `MOST_BYTES`, unpacked, and within its time-out as a whole, however
    slowly head and body trickle in; a redirect is an error, as a login page is no answer. One
    thread at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.max_redirects = 0
        self._cord = _Cord()

    def guard(self, url: str) -> None:
        """Bound the requests to `url` and below."""
        self.mount(url, _CordedAdapter(self._cord))

    def request(self, method: Any, url: Any, *args: Any, **options: Any) -> requests.Response:
        """As requests does it, with the answer read."""
        within_s = float(options.get("timeout") or LONGEST_S)
        timer = threading.Timer(within_s, self._cord.cut)
        timer.daemon = True
        timer.start()
        try:
            answer = super().request(method, url, *args, **{**options, "stream": True})
            return self._bounded(answer)
        except (requests.RequestException, OSError) as error:
            if self._cord.was_cut:
                raise requests.ReadTimeout(f"no whole answer within {within_s:g} s") from error
            raise
        finally:
            timer.cancel()
            self._cord.mend()

    def _bounded(self, answer: requests.Response) -> requests.Response:
        try:
            if answer.status_code == 429 or answer.status_code >= 500:
                raise Overloaded(answer.status_code, retry_after_s(answer.headers))
            body = _read(answer)
        finally:
            answer.close()
        if self._cord.was_cut:
            raise requests.ReadTimeout("cut")
        answer.raw = io.BytesIO(body)
        return answer


class _Cord:
    """Holds on to the socket that a request waits on, so that it can be cut from another thread:
    a time-out of sockets counts anew with every byte."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self.was_cut = False

    def take(self, held: socket.socket | None) -> None:
        self._socket = held

    def cut(self) -> None:
        self.was_cut = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._socket, self.was_cut = None, False


class _CordedAdapter(HTTPAdapter):
    """An adapter whose connections tie the cord before they read."""

    def __init__(self, cord: _Cord) -> None:
        self._cord = cord
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        cord = self._cord

        class Plain(HTTPConnection):
            def getresponse(self, *args: Any, **options: Any) -> Any:
                cord.take(self.sock)
                return super().getresponse(*args, **options)

        class Secure(HTTPSConnection):
            def getresponse(self, *args: Any, **options: Any) -> Any:
                cord.take(self.sock)
                return super().getresponse(*args, **options)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}


def retry_after_s(headers: Any) -> float:
    """Seconds that a server asks to be left alone; 0 where it does not say in seconds."""
    text = str(headers.get("retry-after", ""))
    return float(text) if text.isdecimal() and len(text) < 8 else 0.0


def _read(answer: requests.Response) -> bytes:
    announced = str(answer.headers.get("content-length") or "0")
    if announced.isdecimal() and int(announced) > MOST_BYTES:
        raise TooLarge(f"answer of {announced} bytes")
    parts, held = [], 0
    try:
        for part in answer.raw.stream(CHUNK, decode_content=True):
            parts.append(part)
            held += len(part)
            if held > MOST_BYTES:
                raise TooLarge(f"answer of more than {MOST_BYTES} bytes")
    except HTTPError as error:
        raise requests.ConnectionError(str(error)) from error
    return b"".join(parts)
