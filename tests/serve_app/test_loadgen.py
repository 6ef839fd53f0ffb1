"""The load generator against a server that misbehaves on demand."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from serve_app.arrivals import Arrivals
from serve_app.load_results import LoadResult
from serve_app.loadgen import LoadPlayer, Progress, Target, play
from serve_app.loadgen_cli import main

EVENT = b'data: {"choices": [{"delta": {"content": "word "}}]}\n\n'
ROLE = b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error": {"message": "gone"}}\n\n'


SCRIPTS = {
    901: [ROLE, EVENT],
    902: [ROLE, EVENT, ERROR, DONE],
    903: [ROLE, DONE],
    904: [b"data: {}\r\n\r\n", EVENT.replace(b"\n", b"\r\n"), EVENT[:9], EVENT[9:], DONE],
}


class FakeServer:
    """Answers by the number of output tokens asked: that many chunks, 10 ms apart.

    Special numbers misbehave: see `SCRIPTS`, and 500 a status.
    """

    def __init__(self) -> None:
        self.bodies: list[dict[str, object]] = []
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_get("/v1/models", self.models)
        self.app = app

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "first"}]})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        tokens = body["max_tokens"]
        if tokens == 500:
            return web.Response(status=503)
        response = web.StreamResponse()
        await response.prepare(request)
        for part in SCRIPTS.get(tokens) or [ROLE, *[EVENT] * tokens, DONE]:
            await asyncio.sleep(0.01 if tokens != 999 else 30.0)
            await response.write(part)
        return response


@pytest.fixture
async def server() -> AsyncIterator[tuple[FakeServer, str]]:
    fake = FakeServer()
    async with TestServer(fake.app) as running:
        yield fake, str(running.make_url("/")).rstrip("/")


def arrivals(times_s: list[float], tokens: list[int], words: int = 3) -> Arrivals:
    return Arrivals(
        np.array(times_s), np.full(len(tokens), words), np.array(tokens), times_s[-1] + 0.1
    )


async def test_records_every_request(server: tuple[FakeServer, str]) -> None:
    fake, url = server
    result = await play(arrivals([0.0, 0.1], [4, 2]), Target(url, 'odd "name"'))
    assert list(result.error) == ["", ""]
    assert result.chunks.tolist() == [4, 2]
    assert np.all((result.ttft_s > 0.01) & (result.ttft_s < 1.0))
    assert np.all(result.e2e_s >= result.ttft_s)
    assert np.all((result.send_lag_s >= 0) & (result.send_lag_s < 0.5))
    body = fake.bodies[0]
    assert (body["model"], body["stream"], body["max_tokens"]) == ('odd "name"', True, 4)
    [message] = body["messages"]  # type: ignore[misc]
    assert len(message["content"].split()) == 3  # type: ignore[has-type]


@pytest.mark.parametrize(
    ("tokens", "error", "chunks"),
    [
        (500, "http_503", 0),
        (901, "truncated", 1),
        (902, "stream", 1),
        (903, "empty", 0),
        (904, "", 2),
        (999, "timeout", 0),
    ],
    ids=["a status", "no [DONE]", "an error event", "no token", "CRLF and split events", "hangs"],
)
async def test_names_the_kind_of_error(
    server: tuple[FakeServer, str], tokens: int, error: str, chunks: int
) -> None:
    result = await play(arrivals([0.0], [tokens]), Target(server[1], "m", timeout_s=0.5))
    assert list(result.error) == [error]
    assert result.chunks.tolist() == [chunks]
    assert np.isnan(result.ttft_s[0]) == (chunks == 0)


async def test_a_refused_connection_is_an_error_not_a_crash() -> None:
    result = await play(arrivals([0.0], [1]), Target("http://127.0.0.1:9", "m"))
    assert list(result.error) == ["connection"]


async def test_arrivals_never_wait_for_answers(server: tuple[FakeServer, str]) -> None:
    times_s = [0.05 * index for index in range(10)]
    hanging = arrivals(times_s, [999] * 9 + [1])
    result = await play(hanging, Target(server[1], "m", timeout_s=1.5))
    assert result.send_lag_s.max() < 0.5
    assert list(result.error) == ["timeout"] * 9 + [""]


async def test_time_counts_from_the_schedule_not_from_the_sending(
    server: tuple[FakeServer, str],
) -> None:
    late = asyncio.get_running_loop().time() - 1.0
    result = await LoadPlayer(arrivals([0.0], [1]), Target(server[1], "m")).play(late)
    assert result.send_lag_s[0] >= 1.0
    assert result.ttft_s[0] >= result.send_lag_s[0]


async def test_stopping_keeps_what_there_is(server: tuple[FakeServer, str]) -> None:
    player = LoadPlayer(arrivals([0.0, 0.0, 60.0], [1, 999, 1]), Target(server[1], "m"))
    asyncio.get_running_loop().call_later(0.5, player.stop)
    result = await player.play()
    assert list(result.error) == ["", "abandoned", "unsent"]
    assert np.isnan(result.send_lag_s[2])


async def test_tells_its_progress(server: tuple[FakeServer, str]) -> None:
    seen: list[Progress] = []
    load = arrivals([0.0, 0.1, 0.3], [1, 500, 1])
    await play(load, Target(server[1], "m"), on_progress=seen.append, progress_every_s=0.1)
    last = seen[-1]
    assert len(seen) >= 3
    assert (last.sent, last.total, last.open, last.errors) == (3, 3, 0, 1)
    assert last.ttft_p50_s < 1.0


async def test_sends_on_time_at_40_a_second(server: tuple[FakeServer, str]) -> None:
    load = arrivals([index / 40 for index in range(80)], [8] * 80)
    lags_s = []
    for _ in range(3):  # a neighbour on the machine may spoil one
        result = await play(load, Target(server[1], "m"))
        assert not result.failed().any()
        lags_s.append(result.summary().send_lag_p99_s)
        if lags_s[-1] < 0.02:
            return
    pytest.fail(f"send-lag p99 of {lags_s} s")


RECIPE = '{"rate": [[0, 20], [2, 20]], "output_mean": 2, "output_cv": 0, "prompt_mean": 5}'


async def command(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "serve_app.loadgen",
        *arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def test_the_command_plays_a_recipe_and_saves(
    server: tuple[FakeServer, str], tmp_path: Path
) -> None:
    (tmp_path / "recipe.json").write_text(RECIPE)
    out = tmp_path / "out.csv"
    process = await command(
        "--url", server[1], "--recipe", str(tmp_path / "recipe.json"), "--seed", "3",
        "--out", str(out), "--progress", "json",
    )  # fmt: skip
    printed, complaint = await process.communicate()
    assert (process.returncode, complaint.decode()) == (0, "")
    lines = [json.loads(line) for line in printed.splitlines()]
    result = LoadResult.read_csv(out)
    assert lines[-1]["kind"] == "summary"
    assert lines[-1]["requests"] == len(result) == lines[0]["total"]
    assert lines[-1]["started_at_s"] == result.started_at_s
    assert server[0].bodies[0]["model"] == "first"


async def test_the_command_saves_when_it_is_stopped(
    server: tuple[FakeServer, str], tmp_path: Path
) -> None:
    (tmp_path / "recipe.json").write_text(RECIPE.replace("[2, 20]", "[600, 20]"))
    out = tmp_path / "out.csv"
    process = await command(
        "--url", server[1], "--recipe", str(tmp_path / "recipe.json"), "--seed", "3",
        "--out", str(out), "--progress", "json",
    )  # fmt: skip
    assert process.stdout is not None
    await process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 130
    assert "unsent" in LoadResult.read_csv(out).error


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--trace", "missing.csv"], "missing.csv"),
        (["--trace", "t.csv", "--recipe", "r.json"], "not allowed with"),
        ([], "--trace --recipe is required"),
        (["--trace", "t.csv", "--timeout", "0"], "not above 0"),
        (["--trace", "t.csv", "--stretch", "fast"], "invalid"),
    ],
    ids=["no file", "two loads", "no load", "no time", "no number"],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = ["--url", "http://127.0.0.1:9", "--seed", "1", "--out", "o.csv"]
    with pytest.raises(SystemExit) as stopped:
        main([*needed, *arguments])
    assert stopped.value.code not in (0, None)
    assert says in capsys.readouterr().err + str(stopped.value.code)
