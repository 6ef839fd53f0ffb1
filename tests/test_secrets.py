"""Canaries: secrets planted everywhere a user can put one, and servers that say everything back;
none of them may show in logs, representations, the journal, or any page."""

import asyncio
import base64
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.adapters.telemetry.logs import set_up_logs
from controller.settings import Settings
from controller.wiring import build
from tests.adapters.bad_server import Written, misbehaving, whole

CANARY = "canary-{}-4f9a1c77"


def planted(name: str) -> str:
    return CANARY.format(name)


BASIC = base64.b64encode(f"me:{planted('password')}".encode()).decode()
# What each server is sent, with tokens from files and without; it says all of it back.
SENT = {
    True: ([planted("servefile")], [planted("file"), planted("header")]),
    False: ([planted("serve")], [planted("password"), planted("header"), BASIC]),
}
Said = Callable[[list[str]], Callable[[str], Written]]


def page(status: str) -> Said:
    """An error page that holds everything that was sent."""
    return lambda sent: whole(status, " ".join(sent).encode(), "text/html")


def answer(status: str) -> Said:
    """The same as JSON, where values are expected, too."""

    def said(sent: list[str]) -> Callable[[str], Written]:
        series = {"metric": {"__name__": sent[0]}, "values": [[1, sent[0]]]}
        body = {"error": " ".join(sent), "applications": sent, "data": {"result": [series]}}
        return whole(status, json.dumps(body).encode())

    return said


SAID = [page("401 Unauthorized"), page("500 Oops"), answer("422 No"), answer("200 OK")]


def settings_of(folder: Path, serve: str, prometheus: str, files: bool) -> Settings:
    (folder / "token").write_text(planted("file"))
    (folder / "serve-token").write_text(planted("servefile"))
    metrics: dict[str, Any] = {"url": prometheus, "headers": {"X-Key": planted("header")}}
    ray: dict[str, Any] = {"url": serve, "timeout_s": 2}
    if files:
        metrics["bearer_file"] = folder / "token"
        ray["token_file"] = folder / "serve-token"
    else:
        metrics |= {"username": "me", "password": planted("password")}
        ray["token"] = planted("serve")
    return Settings(
        tick_s=0.5,
        history_seasons=1,
        mode="active",
        prometheus=metrics,
        serve=ray,
        http={"port": 0, "read_token": planted("read")},
        journal={"path": folder / "journal.db"},
        deployments=[{"application": "a", "deployment": "b"}],
    )


def everything_in(folder: Path) -> str:
    database = sqlite3.connect(folder / "journal.db")
    dump = "\n".join(database.iterdump())
    database.close()
    return dump


@pytest.mark.parametrize("files", [True, False], ids=["from files", "in settings"])
@pytest.mark.parametrize("said", SAID, ids=["401", "500", "422", "200"])
async def test_no_secret_shows_anywhere(
    tmp_path: Path, said: Said, files: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    set_up_logs("json", "debug")
    of_serve, of_prometheus = SENT[files]
    with misbehaving(said(of_serve)) as serve, misbehaving(said(of_prometheus)) as prometheus:
        settings = settings_of(tmp_path, serve.url, prometheus.url, files)
        daemon = build(settings)
        seen = [repr(settings), str(settings), settings.model_dump_json(), repr(daemon.prometheus)]
        for _ in range(3):
            tick = await daemon.loop.tick()
            seen += [repr(tick), repr(tick.failures)]
        seen.append(json.dumps(daemon.board.status(0.0)))
        seen.append(daemon.telemetry.page().decode())
        await daemon.close()
    seen.append(everything_in(tmp_path))
    captured = capfd.readouterr()
    seen += [captured.out, captured.err]
    assert "no usable answer" in captured.err
    for canary in (*of_serve, *of_prometheus, planted("read")):
        for text in seen:
            assert canary not in text


async def test_the_running_daemon_s_pages_show_no_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    set_up_logs("json", "debug")
    of_serve, of_prometheus = SENT[False]
    with misbehaving(SAID[0](of_serve)) as serve, misbehaving(SAID[0](of_prometheus)) as prometheus:
        settings = settings_of(tmp_path, serve.url, prometheus.url, files=False)
        daemon = build(settings)
        stop = asyncio.Event()
        running = asyncio.create_task(daemon.run(stop, asyncio.Event()))
        port = 0
        async with asyncio.timeout(30):
            while not port:
                await asyncio.sleep(0.05)
                for line in capfd.readouterr().err.splitlines():
                    if '"started"' in line:
                        port = int(json.loads(line)["http"].rsplit(":", 1)[1])
        read = {"authorization": f"Bearer {planted('read')}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=read) as client:
            pages = [
                (await client.get(path)).text
                for path in ("/readyz", "/api/v1/status", "/api/v1/decisions", "/metrics", "/no")
            ]
            changed = await client.post("/api/v1/status")
        assert changed.status_code == 405
        stop.set()
        await running
    logged = capfd.readouterr()
    assert "audit" in logged.err
    for canary in (*of_serve, *of_prometheus, planted("read")):
        for text in (*pages, logged.err, logged.out, everything_in(tmp_path)):
            assert canary not in text
