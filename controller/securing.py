"""What stands around our HTTP server, as the settings have it: tokens, limits, audit, TLS."""

import ipaddress
import sqlite3
import ssl
from collections.abc import Callable
from typing import Any

from controller.adapters.access import Access, App, Audit
from controller.adapters.audit import AuditTrail
from controller.adapters.telemetry import Telemetry
from controller.settings import HttpSettings, JournalSettings


def secured(
    app: App,
    http: HttpSettings,
    journal: JournalSettings,
    telemetry: Telemetry,
    clock: Callable[[], float],
) -> App:
    """The application behind access control; what changes is audited in log and journal. An
    audit that cannot be kept is said and refuses nothing: a full disk must not lock the operator
    out of a pause."""
    if not _loopback(http.host) and (http.certificate_file is None or not _guarded(http)):
        telemetry.log.warning(
            "reachable from other machines without TLS or a read token",
            host=http.host,
            fix="set http.certificate_file, http.key_file and http.read_token_file",
        )
    trail: list[AuditTrail] = []

    def audit(row: Audit) -> None:
        telemetry.log.info(
            "audit",
            client=row.client,
            token=row.token,
            method=row.method,
            path=row.path,
            status=row.status,
        )
        try:
            if not trail:
                trail.append(AuditTrail(journal.path))
            trail[0].add(row.at_s, row.client, row.token, row.method, row.path, row.status)
        except sqlite3.Error as error:
            telemetry.failed_source("journal", f"audit: {error}")

    def read_token() -> str | None:
        if http.read_token_file is not None:
            return http.read_token_file.read_text(encoding="utf-8").strip()
        return http.read_token.get_secret_value() if http.read_token else None

    return Access(app, read_token, audit, clock)


def tls(http: HttpSettings) -> dict[str, Any]:
    """uvicorn's options for TLS; none where no certificate is set."""
    if http.certificate_file is None:
        return {}
    options: dict[str, Any] = {"ssl_certfile": http.certificate_file, "ssl_keyfile": http.key_file}
    if http.client_ca_file is not None:
        options |= {"ssl_ca_certs": str(http.client_ca_file), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options


def _guarded(http: HttpSettings) -> bool:
    return http.read_token is not None or http.read_token_file is not None


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
