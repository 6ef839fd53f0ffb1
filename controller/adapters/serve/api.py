"""Ray Serve's REST API: read the applications, write one number at a time."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

import httpx

from controller.adapters.serve import gangs
from controller.adapters.serve.view import View, free_resources, parse
from controller.core.redaction import redact
from controller.core.types import DeploymentId

APPLICATIONS = "/api/serve/applications/"
MOST_BYTES = 16 * 2**20
KEPT = ("content-type", "retry-after")
Parsed = TypeVar("Parsed")


class ServeError(RuntimeError):
    """Serve's API did not answer, or not as Serve does; the message says what and where."""


class Unreachable(ServeError):
    """No answer at all, or one that only a broken server gives. `retry_after_s` is how long it
    asks to be left alone, 0 if it does not say."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Fenced(ServeError):
    """Another daemon leads: nothing may be written."""


class ServeApi:
    """The dashboard's Serve endpoints; every method raises ServeError for what can go wrong.
    An answer is read up to `MOST_BYTES` and within `within_s` as a whole. `fence` tells, just
    before each write, for how many seconds more we may write."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        within_s: float = 5.0,
        fence: Callable[[], float] = lambda: inf,
    ) -> None:
        self._client = client
        self._fence = fence
        self._gangs: Mapping[DeploymentId, gangs.Bundles] = {}
        self._within_s = within_s
        # A server may say back in its answer what it was sent.
        self._secrets = [client.headers.get("authorization", "").removeprefix("Bearer ")]

    async def view(self, resources: bool = True) -> View:
        """Applications, deployments, replicas and, if asked for, the nodes' free resources."""
        answer = await self._json("GET", APPLICATIONS)
        free: Sequence[Mapping[str, float]] = ()
        if resources:
            nodes = await self._json("GET", "/nodes?view=summary")
            free = parsed("nodeLogicalResources", lambda: free_resources(nodes))
            await self._read_gangs()
        return parsed("applications", lambda: parse(answer, free, self._gangs))

    async def _read_gangs(self) -> None:
        """Without an answer they are what they were: Ray's State API is a process of its own, and
        its absence must not stop the scaling of those who need no gang."""
        with contextlib.suppress(ServeError):
            answer = await self._json("GET", gangs.PATH)
            self._gangs = parsed("placement groups", lambda: gangs.gangs(answer))

    async def version(self) -> str:
        """The cluster's Ray version."""
        answer = await self._json("GET", "/api/version")
        return parsed("ray_version", lambda: str(answer["ray_version"]))

    async def scale(self, target: DeploymentId, replicas: int) -> None:
        """Set the target of a deployment under the external scaler."""
        application, deployment = (quote(part, safe="") for part in target)
        path = f"/api/v1/applications/{application}/deployments/{deployment}/scale"
        await self._request("POST", path, {"target_num_replicas": replicas})

    async def put(self, view: View, application: str, config: Mapping[str, Any]) -> None:
        """Replace one application's config, leaving every other as it is."""
        if "<redacted>" in repr((config, view.configs)):
            raise ServeError("Serve returned a config with redacted values; not written back")
        applications = [{**view.configs, application: config}[name] for name in view.configs]
        body: dict[str, Any] = {"applications": applications}
        if view.target_capacity is not None:
            body["target_capacity"] = view.target_capacity
        await self._request("PUT", APPLICATIONS, body)

    async def get(self, path: str) -> Any:
        """The JSON at a path of the dashboard."""
        return await self._json("GET", path)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _json(self, method: str, path: str) -> Any:
        answer = await self._request(method, path)
        try:
            return answer.json()
        except (ValueError, RecursionError):
            kind = answer.headers.get("content-type", "no content type")
            raise Unreachable(f"{path} answered {kind}, not JSON; is it Ray's dashboard?") from None

    async def _request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        left_s = self._fence() if method != "GET" else inf
        if left_s <= 0:
            raise Fenced(f"{method} {path}: not sent, as another daemon leads")
        try:
            async with asyncio.timeout(min(self._within_s, left_s)):
                answer = await self._read(method, path, body)
        except TimeoutError as error:
            within = "while we led" if left_s < self._within_s else f"within {self._within_s:g} s"
            raise Unreachable(f"{method} {path}: no answer {within}") from error
        except httpx.HTTPError as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__}: {error}") from error
        if answer.status_code != 200:
            _refused(answer, f"{method} {path}", self._secrets)
        return answer

    async def _read(self, method: str, path: str, body: Any) -> httpx.Response:
        async with self._client.stream(method, path, json=body) as answer:
            parts, held = [], 0
            async for part in answer.aiter_bytes():
                parts.append(part)
                held += len(part)
                if held > MOST_BYTES:
                    raise Unreachable(f"{method} {path}: answer of more than {MOST_BYTES} bytes")
        kept = {name: answer.headers[name] for name in KEPT if name in answer.headers}
        return httpx.Response(answer.status_code, headers=kept, content=b"".join(parts))


def _refused(answer: httpx.Response, request: str, secrets: Iterable[str]) -> NoReturn:
    try:
        said = answer.json()["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        said = answer.text
    hint = {
        401: " (set serve.token_file: the cluster asks for a token)",
        403: " (the token in serve.token_file is not the cluster's)",
    }.get(answer.status_code, "")
    said = redact(str(said), secrets)[:300]
    told = f"{request} answered {answer.status_code}{hint}: {said}"
    if answer.status_code == 429 or answer.status_code >= 500:
        after = answer.headers.get("retry-after", "")
        raise Unreachable(told, float(after) if after.isdecimal() and len(after) < 8 else 0.0)
    raise ServeError(told)


def parsed(what: str, parse_answer: Callable[[], Parsed]) -> Parsed:
    """What `parse_answer` makes of an answer; ServeError where it is of another form."""
    try:
        return parse_answer()
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ServeError(f"Serve's answer has no usable {what}: {error!r}") from error
