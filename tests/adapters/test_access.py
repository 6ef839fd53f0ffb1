"""Who may ask our HTTP server: tokens, limits, audit, TLS, and pages that give nothing away."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from controller.adapters.access import MOST_CLIENTS, Access, Audit, Limits
from controller.adapters.audit import AuditTrail
from controller.adapters.http import HttpServer
from controller.adapters.serve.api import Unreachable
from controller.adapters.telemetry import Telemetry
from controller.connections import serve_api
from controller.securing import secured, tls
from controller.settings import HttpSettings, JournalSettings, ServeSettings, SettingsError, load

READ, WRITE = "reading-token-1", "writing-token-2"


class Clock:
    at_s = 1000.0

    def __call__(self) -> float:
        return self.at_s


class Site:
    """A small application that reads, changes and breaks, behind access control."""

    def __init__(self, read_token: str | None = READ, limits: Limits = Limits()) -> None:  # noqa: B008
        self.clock, self.audited = Clock(), list[Audit]()
        self.token = read_token

        async def read(_: Request) -> Response:
            return PlainTextResponse("data")

        async def change(request: Request) -> Response:
            right = request.headers.get("authorization") == f"Bearer {WRITE}"
            await request.body()
            return JSONResponse({}, 200 if right else 401)

        async def breaks(_: Request) -> Response:
            raise RuntimeError(f"a secret: {WRITE}")

        routes = [
            Route("/healthz", read),
            Route("/readyz", read),
            Route("/metrics", read),
            Route("/change", change, methods=["POST", "DELETE"]),
            Route("/breaks", breaks),
        ]
        app = Starlette(routes=routes)
        access = Access(app, lambda: self.token, self.audited.append, self.clock, limits)
        transport = httpx.ASGITransport(access, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://leadtime")

    async def get(self, path: str, token: str | None = None) -> httpx.Response:
        return await self.client.get(path, headers=_bearer(token))

    async def post(self, token: str | None = None, **more: Any) -> httpx.Response:
        return await self.client.post("/change", headers=_bearer(token), **more)


def _bearer(token: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/healthz", None, 200),
        ("/readyz", None, 200),
        ("/metrics", None, 401),
        ("/metrics", "wrong", 401),
        ("/metrics", READ + "x", 401),
        ("/metrics", READ, 200),
        ("/no/such", None, 401),
    ],
)
async def test_reading_needs_the_token_and_health_does_not(
    path: str, token: str | None, status: int
) -> None:
    assert (await Site().get(path, token)).status_code == status


async def test_without_a_read_token_reading_is_free() -> None:
    assert (await Site(read_token=None).get("/metrics")).status_code == 200


async def test_a_change_without_a_token_never_reaches_the_endpoint() -> None:
    site = Site(read_token=None)
    refused = await site.post()
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert (await site.client.delete("/change")).status_code == 401


async def test_every_change_is_audited_with_who_and_what_and_never_the_token() -> None:
    site = Site()
    await site.post(WRITE)
    await site.post("wrong")
    await site.post()
    await site.get("/metrics", READ)
    assert [row.status for row in site.audited] == [200, 401, 401]
    assert [row.method for row in site.audited] == ["POST"] * 3
    assert {row.path for row in site.audited} == {"/change"}
    first, second, third = (row.token for row in site.audited)
    assert first
    assert first != second
    assert third == ""
    assert WRITE not in repr(site.audited)


async def test_who_guesses_is_stopped_for_a_minute() -> None:
    site = Site()
    seen = [(await site.get("/metrics", f"guess-{n}")).status_code for n in range(12)]
    assert seen == [401] * 10 + [429] * 2
    assert (await site.get("/metrics", READ)).headers["retry-after"] == "60"
    site.clock.at_s += 61
    assert (await site.get("/metrics", READ)).status_code == 200


async def test_what_anyone_may_read_stays_readable_while_someone_guesses() -> None:
    site = Site(read_token=None)
    seen = [(await site.post(f"guess-{n}")).status_code for n in range(12)]
    assert seen == [401] * 10 + [429] * 2
    assert (await site.get("/metrics")).status_code == 200
    assert (await site.get("/healthz")).status_code == 200


async def test_changes_are_limited_a_minute() -> None:
    site = Site(limits=Limits(changes=5))
    seen = [(await site.post(WRITE)).status_code for _ in range(7)]
    assert seen == [200] * 5 + [429] * 2


async def test_many_clients_take_bounded_memory() -> None:
    access = Access(_never, lambda: READ, lambda _: None, Clock())

    async def ignore(*_: Any) -> None:
        pass

    for number in range(MOST_CLIENTS + 500):
        client = (f"10.{number // 65536}.{number // 256 % 256}.{number % 256}", 1)
        scope = {"type": "http", "method": "GET", "path": "/x", "headers": [], "client": client}
        await access(scope, ignore, ignore)
    assert len(access._refused) <= MOST_CLIENTS  # noqa: SLF001


async def _never(*_: Any) -> None:
    raise AssertionError("reached")


async def test_a_body_has_a_size_and_a_time() -> None:
    site = Site(limits=Limits(body_bytes=100, request_s=0.2))
    assert (await site.post(WRITE, content=b"x" * 100)).status_code == 200
    assert (await site.post(WRITE, content=b"x" * 101)).status_code == 413

    async def trickle() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x"
            await asyncio.sleep(0.1)

    assert (await site.post(WRITE, content=trickle())).status_code == 408


async def test_error_pages_give_nothing_away() -> None:
    site = Site()
    page = await site.get("/breaks", READ)
    assert page.status_code == 500
    assert WRITE not in page.text
    assert "Traceback" not in page.text
    for answer in (page, await site.get("/healthz")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"


def test_the_audit_is_kept_in_the_journal_s_file(tmp_path: Path) -> None:
    trail = AuditTrail(tmp_path / "journal.db")
    for number in range(3):
        trail.add(float(number), "127.0.0.1", "abc", "POST", "/change", 200 + number)
    trail.close()
    again = AuditTrail(tmp_path / "journal.db")
    assert [row["status"] for row in again.latest(2)] == [202, 201]
    again.close()


async def test_a_full_disk_refuses_no_change(tmp_path: Path) -> None:
    """The audit cannot be kept: it is said, and the operator is not locked out."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await JSONResponse({})(scope, receive, send)

    telemetry = Telemetry(active=False)
    journal = JournalSettings(path=tmp_path / "gone" / "journal.db")
    guarded = secured(app, HttpSettings(), journal, telemetry, Clock())
    client = httpx.AsyncClient(transport=httpx.ASGITransport(guarded), base_url="http://x")
    answer = await client.post("/any", headers=_bearer("t"))
    assert answer.status_code == 200
    assert 'leadtime_source_errors_total{source="journal"} 1.0' in telemetry.page().decode()


def pem(folder: Path, name: str, blob: Any) -> Path:
    path = folder / name
    path.write_bytes(blob.bytes())
    return path


async def test_https_with_client_certificates(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    ours = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    settings = HttpSettings(
        certificate_file=pem(tmp_path, "cert.pem", ours.cert_chain_pems[0]),
        key_file=pem(tmp_path, "key.pem", ours.private_key_pem),
        client_ca_file=tmp_path / "ca.pem",
    )

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("in")(scope, receive, send)

    server = HttpServer(app, "127.0.0.1", 0, **tls(settings))
    url = f"https://127.0.0.1:{await server.start()}/"
    try:
        for issuer, works in ((authority, True), (stranger, False), (None, False)):
            context = ssl.create_default_context()
            authority.configure_trust(context)
            if issuer is not None:
                issuer.issue_cert("client").configure_cert(context)
            async with httpx.AsyncClient(verify=context) as client:
                if works:
                    assert (await client.get(url)).text == "in"
                else:
                    with pytest.raises(httpx.HTTPError):
                        await client.get(url)
        async with httpx.AsyncClient() as untrusting:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await untrusting.get(url)
    finally:
        await server.stop()


async def test_serve_behind_a_proxy_that_asks_for_our_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    theirs, ours = authority.issue_cert("127.0.0.1"), authority.issue_cert("leadtime")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    proxy = HttpSettings(
        certificate_file=pem(tmp_path, "proxy.pem", theirs.cert_chain_pems[0]),
        key_file=pem(tmp_path, "proxy.key", theirs.private_key_pem),
        client_ca_file=tmp_path / "ca.pem",
    )

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await JSONResponse({"applications": {}})(scope, receive, send)

    server = HttpServer(app, "127.0.0.1", 0, **tls(proxy))
    url = f"https://127.0.0.1:{await server.start()}"
    known = {"url": url, "ca_file": tmp_path / "ca.pem"}
    mine = {
        "certificate_file": pem(tmp_path, "me.pem", ours.cert_chain_pems[0]),
        "key_file": pem(tmp_path, "me.key", ours.private_key_pem),
    }
    try:
        api = serve_api(ServeSettings(**known, **mine))
        assert (await api.view(resources=False)).deployments == {}
        await api.close()
        refused = serve_api(ServeSettings(**known))
        with pytest.raises(Unreachable):
            await refused.view(resources=False)
        await refused.close()
    finally:
        await server.stop()
    wrong = {**mine, "key_file": tmp_path / "proxy.key"}
    with pytest.raises(SettingsError, match=r"serve\.key_file"):
        serve_api(ServeSettings(**known, **wrong))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("serve: {certificate_file: /etc/hostname}", "go together"),
        ("http: {certificate_file: /etc/hostname}", "go together"),
        ("http: {client_ca_file: /etc/hostname}", "needs certificate_file"),
        ("prometheus: {url: 'http://me:secret-canary@host:9090'}", "must not hold a password"),
        ("serve: {url: 'http://me:secret-canary@host:8265'}", "must not hold a password"),
    ],
)
def test_wrong_settings_are_told_without_their_secrets(
    tmp_path: Path, text: str, said: str
) -> None:
    config = tmp_path / "leadtime.yaml"
    config.write_text(text)
    with pytest.raises(SettingsError, match=said) as raised:
        load(config)
    assert "secret-canary" not in str(raised.value)
