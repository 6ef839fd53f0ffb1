"""Grafana's HTTP API: folder, datasource and dashboards, written only where they differ."""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import niquests
from grafana_client import GrafanaApi
from grafana_client.client import GrafanaClientError, GrafanaException

Answer = TypeVar("Answer")
Document = Mapping[str, Any]

FOLDER_UID, FOLDER_TITLE = "leadtime", "Leadtime"
DATASOURCE_UID, DATASOURCE_NAME = "leadtime-prometheus", "Leadtime Prometheus"
NOT_FOUND = 404
# Grafana's own book-keeping, which says nothing about what a dashboard shows.
KEPT_BY_GRAFANA = frozenset({"id", "version", "iteration"})


class GrafanaError(RuntimeError):
    """Grafana gave no usable answer; the message says what to mend."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs: what it is, and the lines that do."""

    what: str
    diff: tuple[str, ...]
    carry_out: Callable[[], None]


class Grafana:
    """One Grafana; `token` belongs to a service account that may write dashboards and folders."""

    def __init__(self, url: str, token: str | None, timeout_s: float = 10.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise GrafanaError(f"{url}: must be a URL such as https://grafana.example.com")
        if parts.username or parts.query:
            raise GrafanaError(f"{parts.hostname}: no credentials or queries in the URL")
        self._url = url
        whole = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + "/", "", ""))
        self._api = GrafanaApi.from_url(whole, token or None, timeout=timeout_s)
        self._api.client.s.trust_env = False

    def changes(self, dashboards: Sequence[Document], prometheus: str | None) -> list[Change]:
        """What would have to be done so that Grafana has these; in the order to do it.

        `prometheus` is the URL that Grafana reaches Prometheus by; None leaves datasources alone.
        """
        found = [*self._folder()]
        if prometheus is not None:
            found += self._datasource(prometheus)
        for dashboard in dashboards:
            found += self._dashboard(dashboard)
        return found

    def _folder(self) -> Iterator[Change]:
        if self._maybe(lambda: self._api.folder.get_folder(FOLDER_UID)) is None:
            yield Change(
                f"folder {FOLDER_TITLE}",
                _diff({}, {"title": FOLDER_TITLE, "uid": FOLDER_UID}),
                lambda: self._do(lambda: self._api.folder.create_folder(FOLDER_TITLE, FOLDER_UID)),
            )

    def _datasource(self, prometheus: str) -> Iterator[Change]:
        wanted = {
            "uid": DATASOURCE_UID,
            "name": DATASOURCE_NAME,
            "type": "prometheus",
            "access": "proxy",
            "url": prometheus,
        }
        get = self._api.datasource.get_datasource_by_uid
        there = self._maybe(lambda: get(DATASOURCE_UID))
        seen = {key: there[key] for key in wanted if key in there} if there else {}
        if seen == wanted:
            return
        put = self._api.datasource.update_datasource_by_uid
        write = (
            (lambda: self._api.datasource.create_datasource(wanted))
            if there is None
            else (lambda: put(DATASOURCE_UID, {**there, **wanted}))
        )
        what = f"datasource {DATASOURCE_NAME}"
        yield Change(what, _diff(seen, wanted), lambda: self._do(write))

    def _dashboard(self, wanted: Document) -> Iterator[Change]:
        uid = wanted["uid"]
        there = self._maybe(lambda: self._api.dashboard.get_dashboard(uid))
        seen = _shown(there["dashboard"]) if there else {}
        moved = there is not None and there["meta"].get("folderUid") != FOLDER_UID
        if seen == _shown(wanted) and not moved:
            return
        body = {
            "dashboard": {**_shown(wanted), "id": None},
            "folderUid": FOLDER_UID,
            "message": "leadtime dashboards push",
            "overwrite": True,
        }
        diff = _diff(seen, _shown(wanted))
        if moved and there is not None:
            diff = (f"-folder {there['meta'].get('folderUid')}", f"+folder {FOLDER_UID}", *diff)
        yield Change(
            f"dashboard {wanted['title']}",
            diff,
            lambda: self._do(lambda: self._api.dashboard.update_dashboard(body)),
        )

    def _maybe(self, ask: Callable[[], Answer]) -> Answer | None:
        """An answer, or None where there is no such thing."""
        try:
            return self._do(ask)
        except GrafanaError as error:
            cause = error.__cause__
            if isinstance(cause, GrafanaClientError) and cause.status_code == NOT_FOUND:
                return None
            raise

    def _do(self, ask: Callable[[], Answer]) -> Answer:
        try:
            return ask()
        except GrafanaException as error:
            raise GrafanaError(f"{self._url}: {_advice(error)}") from error
        except niquests.exceptions.RequestException as error:
            raise GrafanaError(f"{self._url}: no usable answer ({type(error).__name__})") from error


def _advice(error: GrafanaException) -> str:
    match error.status_code:
        case 401:
            return "the token is missing or wrong (401); set GRAFANA_TOKEN or --token-file"
        case 403:
            return "the token may not do this (403); its service account needs the role Editor"
        case 412:
            return "someone else changed it meanwhile (412); run again"
        case _:
            return f"refused: {str(error.message)[:300]}"


def _shown(dashboard: Document) -> dict[str, Any]:
    return {key: value for key, value in dashboard.items() if key not in KEPT_BY_GRAFANA}


def _diff(before: Document, after: Document) -> tuple[str, ...]:
    """The lines that differ, with one around them."""
    old, new = (
        json.dumps(document, indent=1, sort_keys=True).splitlines() if document else []
        for document in (before, after)
    )
    return tuple(difflib.unified_diff(old, new, lineterm="", n=1))[2:]
