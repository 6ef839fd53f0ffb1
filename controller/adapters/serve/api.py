"""Ray Serve's REST API: read the applications, write one number at a time."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

import httpx

from controller.adapters.serve import gangs
from controller.adapters.serve.view import View, free_resources, parse
from controller.core.types import DeploymentId

APPLICATIONS = "/api/serve/applications/"
Parsed = TypeVar("Parsed")


class ServeError(RuntimeError):
    """Serve's API did not answer, or not as Serve does; the message says what and where."""


class Unreachable(ServeError):
    """No answer at all, or one that only a broken server gives."""


class ServeApi:
    """The dashboard's Serve endpoints; every method raises ServeError for what can go wrong."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._gangs: Mapping[DeploymentId, gangs.Bundles] = {}

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
        except ValueError:
            kind = answer.headers.get("content-type", "no content type")
            raise Unreachable(f"{path} answered {kind}, not JSON; is it Ray's dashboard?") from None

    async def _request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        try:
            answer = await self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__}: {error}") from error
        if answer.status_code != 200:
            _refused(answer, f"{method} {path}")
        return answer


def _refused(answer: httpx.Response, request: str) -> NoReturn:
    try:
        said = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        said = answer.text
    hint = {
        401: " (set serve.token_file: the cluster asks for a token)",
        403: " (the token in serve.token_file is not the cluster's)",
    }.get(answer.status_code, "")
    kind = Unreachable if answer.status_code >= 500 else ServeError
    raise kind(f"{request} answered {answer.status_code}{hint}: {str(said)[:300]}")


def parsed(what: str, parse_answer: Callable[[], Parsed]) -> Parsed:
    """What `parse_answer` makes of an answer; ServeError where it is of another form."""
    try:
        return parse_answer()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ServeError(f"Serve's answer has no usable {what}: {error!r}") from error
