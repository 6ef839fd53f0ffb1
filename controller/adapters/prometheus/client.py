"""Prometheus's HTTP API: queries in, series out, every failure one kind of error."""

import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests
from prometheus_api_client import PrometheusApiClientException, PrometheusConnect
from urllib3.util.retry import Retry

from controller.adapters.prometheus.session import (
    MOST_BYTES,
    BoundedSession,
    Overloaded,
    TooLarge,
)
from controller.core.redaction import redact

Series = dict[str, Any]


class PrometheusError(RuntimeError):
    """Prometheus did not answer, or not as Prometheus does; the message says what and where."""


class PrometheusSilent(PrometheusError):
    """No answer at all, or a plea for rest: there is no use in asking again at once.
    `retry_after_s` is how long the server asks to be left alone, 0 if it does not say."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


UNUSABLE = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)
"""What reading series of another form than Prometheus's raises."""


@dataclass(frozen=True)
class PrometheusOptions:
    """Where Prometheus is and how to be let in. Secrets never show in its representation."""

    url: str
    timeout_s: float = 5.0
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tenant: str | None = None
    bearer: str | None = field(default=None, repr=False)
    bearer_file: Path | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None


class PrometheusClient:
    """Blocking queries; one thread at a time. The next tick is the retry, so none is made."""

    def __init__(self, options: PrometheusOptions) -> None:
        self._options = options
        session = BoundedSession()
        session.verify = str(options.ca_file) if options.ca_file else True
        if options.certificate_file:
            key = options.key_file or options.certificate_file
            session.cert = (str(options.certificate_file), str(key))
        if options.username is not None:
            session.auth = (options.username, options.password or "")
        session.headers.update(options.headers)
        if options.tenant is not None:
            session.headers["X-Scope-OrgID"] = options.tenant
        self._session = session
        self._deadline_s: float | None = None
        self._connect = PrometheusConnect(
            url=options.url.rstrip("/"),
            session=session,
            retry=Retry(total=0, redirect=0),
            timeout=options.timeout_s,
            method="POST",
        )
        session.guard(options.url.rstrip("/"))

    def begin_round(self, within_s: float | None) -> None:
        """Have the queries from now on done within so many seconds in all; None = each within
        the time-out."""
        self._deadline_s = None if within_s is None else time.monotonic() + within_s

    def instant(self, query: str) -> list[Series]:
        """Series at Prometheus's present time; a range selector gives their raw samples."""
        return self._ask(
            lambda: self._connect.custom_query(query, timeout=self._timeout_s()), query
        )

    def over(self, query: str, start_s: float, end_s: float, step_s: float) -> list[Series]:
        """Series evaluated every `step_s` from `start_s` to `end_s`, both whole seconds."""
        start, end = (datetime.fromtimestamp(at_s, tz=UTC) for at_s in (start_s, end_s))
        return self._ask(
            lambda: self._connect.custom_query_range(query, start, end, f"{step_s:g}"), query
        )

    def _timeout_s(self) -> float:
        if self._deadline_s is None:
            return self._options.timeout_s
        left_s = min(self._options.timeout_s, self._deadline_s - time.monotonic())
        if left_s <= 0:
            raise requests.Timeout("the time of this round is spent")
        return left_s

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _ask(self, ask: Any, query: str) -> list[Series]:
        self._authorise()
        try:
            answer = ask()
        except PrometheusApiClientException as error:
            said = self.redacted(str(error))[:300]
            raise PrometheusError(f"query refused: {said}; query {query[:200]}") from None
        except requests.exceptions.JSONDecodeError as error:
            raise PrometheusError(
                f"{self._options.url} answered something that is not JSON; is it Prometheus?"
            ) from error
        except TooLarge as error:
            raise PrometheusError(
                f"{self._options.url}: {error}, of which {MOST_BYTES} are read; narrow "
                f"prometheus.selector; query {query[:200]}"
            ) from error
        except Overloaded as error:
            raise PrometheusSilent(f"{self._options.url}: {error}", error.retry_after_s) from error
        except requests.RequestException as error:
            raise PrometheusSilent(f"{self._options.url}: {_brief(error)}") from error
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise PrometheusError(
                f"{self._options.url}: answer has no result: {self.redacted(repr(error))}"
            ) from None
        if not isinstance(answer, list):
            raise PrometheusError(f"{self._options.url}: result is no list of series")
        return answer

    def redacted(self, text: str) -> str:
        """A text without what a server may say back of our secrets."""
        return redact(text, self._secrets())

    def _secrets(self) -> list[str]:
        options = self._options
        sent = [str(value) for value in self._session.headers.values()]
        known = [options.bearer or "", options.password or "", *options.headers.values()]
        basic = f"{options.username}:{options.password}".encode()
        spoken = [text.removeprefix("Bearer ") for text in sent if text.startswith("Bearer ")]
        return [*known, *spoken, b64encode(basic).decode()]

    def _authorise(self) -> None:
        """The token file is read at every query, as tokens are rotated under us."""
        token = self._options.bearer
        if self._options.bearer_file is not None:
            try:
                token = self._options.bearer_file.read_text().strip()
            except OSError as error:
                raise PrometheusError(f"prometheus.bearer_file: {error}") from error
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"


def _brief(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return f"TLS failed: {str(error)[:200]}"
    if isinstance(error, requests.ConnectionError):
        return "connection refused or lost"
    return f"{type(error).__name__}: {str(error)[:200]}"
