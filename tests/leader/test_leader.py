"""Two daemons as processes on one journal: killed, paused, cut off. A11

Each writes its own number, so that Serve's account tells who wrote and when.
"""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from controller.adapters.lease import LEASE_S
from controller.leading import RENEWALS_A_LEASE
from tests.clocks import SteppedClock
from tests.leader.candidate import TICK_S

pytestmark = pytest.mark.timeout(90)
ROOT = Path(__file__).resolve().parents[2]
TEST_LEASE_S = 2.0
TAKE_OVER_S = 15.0
HOUR_S = 3600.0
NO_PROCESS = "not a process|"


def applications(target: int) -> dict[str, Any]:
    """Serve's answer with one deployment under the external scaler."""
    recorded = ROOT / "tests" / "adapters" / "recorded" / "serve-applications.json"
    answer: dict[str, Any] = json.loads(recorded.read_text())
    application = answer["applications"]["ext"]
    deployment = {**application["deployments"]["Model"], "name": "LLM"}
    deployment["target_num_replicas"] = target
    answer["applications"] = {
        "chat": {**application, "name": "chat", "deployments": {"LLM": deployment}}
    }
    return answer


@dataclass
class Serve:
    """A Serve API that notes each write and when it came (time.monotonic)."""

    host: str
    target: int = 1
    writes: list[tuple[float, int]] = field(default_factory=list)
    url: str = ""

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        serve = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(applications(serve.target))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                serve.target = body["target_num_replicas"]
                serve.writes.append((time.monotonic(), serve.target))
                self._answer({})

            def _answer(self, body: Any) -> None:
                content = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer((self.host, 0), Handler)
        self.url = f"http://{self.host}:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def wrote(self, number: int, since_s: float = 0.0) -> list[float]:
        return [at_s for at_s, written in self.writes if written == number and at_s >= since_s]


@contextlib.contextmanager
def daemons(
    folder: Path,
    url: str,
    first: tuple[str, ...] = (),
    holders: bool = False,
    env: Mapping[str, str] | None = None,
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Daemons 2 and 3, the first one leading; `first` is a prefix to its command, `env` its
    environment. `holders`: they look like processes that cannot be told from ended ones."""
    started = []
    for number in (2, 3):
        prefix, own = (first, env) if number == 2 else ((), None)
        holder = f"{NO_PROCESS}{number}" if holders else ""
        command = [*prefix, sys.executable, "-m", "tests.leader.candidate"]
        command += [str(folder / "leadtime.db"), url, str(number), str(TEST_LEASE_S), holder]
        with (folder / f"{number}.log").open("wb") as log:
            environment = {**os.environ, **(own or {})}
            started.append(
                subprocess.Popen(
                    command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT
                )
            )
        if number == 2:
            await_that(lambda: "leads" in (folder / "2.log").read_text(), "the first to lead")
    try:
        yield started
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def await_that(condition: Callable[[], bool], what: str, within_s: float = 20.0) -> float:
    """Wait for a condition; how long it took, in seconds."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < within_s:
        if condition():
            return time.monotonic() - began_s
        time.sleep(0.02)
    raise AssertionError(f"waited {within_s:.0f} s for {what}")


@pytest.fixture
def serve() -> Iterator[Serve]:
    made = Serve("127.0.0.1")
    with made.serving():
        yield made


def settled(serve: Serve, folder: Path) -> None:
    """The first leads and has written; the second stands by."""
    await_that(lambda: bool(serve.wrote(2)), "the leader's write")
    await_that(lambda: (folder / "leadtime.db").exists(), "the journal")
    time.sleep(4 * TICK_S)
    assert not serve.wrote(3)


def test_the_whole_lease_is_a_take_over_within_fifteen_seconds() -> None:
    """What the others measure with a lease of two seconds, at the lease in use."""
    assert LEASE_S + LEASE_S / RENEWALS_A_LEASE < TAKE_OVER_S


def test_a_killed_leader_is_followed_and_the_target_asserted_anew(
    serve: Serve, tmp_path: Path
) -> None:
    with daemons(tmp_path, serve.url) as (one, _):
        settled(serve, tmp_path)
        one.kill()
        one.wait()
        # It is known to have ended: nobody waits for its lease.
        took_s = await_that(lambda: bool(serve.wrote(3)), "the standby's write")
        assert took_s < TEST_LEASE_S / RENEWALS_A_LEASE + 1.5


def test_a_leader_that_may_be_alive_is_followed_when_its_lease_has_ended(
    serve: Serve, tmp_path: Path
) -> None:
    with daemons(tmp_path, serve.url, holders=True) as (one, _):
        settled(serve, tmp_path)
        one.kill()
        one.wait()
        took_s = await_that(lambda: bool(serve.wrote(3)), "the standby's write")
        assert TEST_LEASE_S / 2 < took_s < 1.2 * TEST_LEASE_S + 1.5


def test_a_paused_leader_wakes_and_does_not_write(serve: Serve, tmp_path: Path) -> None:
    with daemons(tmp_path, serve.url) as (one, _):
        settled(serve, tmp_path)
        one.send_signal(signal.SIGSTOP)
        await_that(lambda: bool(serve.wrote(3)), "the standby's write")
        woken_s = time.monotonic()
        one.send_signal(signal.SIGCONT)
        await_that(lambda: "standby" in (tmp_path / "2.log").read_text(), "its stepping back")
        time.sleep(2 * TEST_LEASE_S)
        assert serve.wrote(2, since_s=woken_s) == []
        assert serve.target == 3


def test_leadership_passes_to_and_fro_with_one_writer_at_a_time(
    serve: Serve, tmp_path: Path
) -> None:
    """Pauses at random moments: whoever wrote last leads, and re-asserts within a tick."""
    with daemons(tmp_path, serve.url) as both:
        settled(serve, tmp_path)
        for turn in range(4):
            leader, follower = both[turn % 2], 3 - turn % 2
            since_s = time.monotonic()
            leader.send_signal(signal.SIGSTOP)
            await_that(lambda: bool(serve.wrote(follower, since_s)), "the other's write")  # noqa: B023
            leader.send_signal(signal.SIGCONT)
            time.sleep(3 * TICK_S)
        changes = sum(a[1] != b[1] for a, b in zip(serve.writes, serve.writes[1:], strict=False))
        assert changes == 4


@pytest.mark.parametrize("off_s", [HOUR_S, -HOUR_S], ids=["an hour ahead", "an hour behind"])
def test_a_step_of_the_leaders_clock_changes_no_leader(
    serve: Serve, tmp_path: Path, off_s: float
) -> None:
    """Its wall clock is set, and set right; then it is paused: its lease ends as ever."""
    clock = SteppedClock(tmp_path)
    with daemons(tmp_path, serve.url, env=clock.env) as (one, _):
        settled(serve, tmp_path)
        for off in (off_s, 0.0):
            clock.step(off)
            time.sleep(2 * TEST_LEASE_S)
            assert serve.wrote(3) == []
        clock.step(off_s)
        one.send_signal(signal.SIGSTOP)
        took_s = await_that(lambda: bool(serve.wrote(3)), "the standby's write")
        assert took_s < TEST_LEASE_S + 1.5
        one.send_signal(signal.SIGCONT)
        await_that(lambda: "standby" in (tmp_path / "2.log").read_text(), "its stepping back")
        assert serve.target == 3


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def partitionable() -> Iterator[tuple[str, str, str]]:
    """A network namespace with one link to us: its name, our address, our end of the link."""
    mark = secrets.token_hex(3)
    name, ours, theirs = f"lt-{mark}", f"lt{mark}a", f"lt{mark}b"
    octets = f"10.{200 + os.getpid() % 50}.{int(mark[:2], 16)}"
    try:
        _ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("network namespaces cannot be made here (needs root and iproute2)")
    try:
        _ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        _ip("addr", "add", f"{octets}.1/24", "dev", ours)
        _ip("link", "set", ours, "up")
        _ip("-n", name, "addr", "add", f"{octets}.2/24", "dev", theirs)
        _ip("-n", name, "link", "set", theirs, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield name, f"{octets}.1", ours
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", ours)
        _ip("netns", "del", name)


def test_a_leader_cut_off_from_serve_leaves_the_lead(tmp_path: Path) -> None:
    with partitionable() as (namespace, address, link):
        serve = Serve(address)
        prefix = ("ip", "netns", "exec", namespace)
        with serve.serving(), daemons(tmp_path, serve.url, prefix) as (_, __):
            settled(serve, tmp_path)
            _ip("link", "set", link, "down")
            cut_s = time.monotonic()
            # Our own end of the link is down too: the address is ours and still answers.
            took_s = await_that(lambda: bool(serve.wrote(3)), "the standby's write")
            assert took_s < TAKE_OVER_S
            _ip("link", "set", link, "up")
            time.sleep(2 * TEST_LEASE_S)
            assert serve.wrote(2, since_s=cut_s) == []
            assert serve.target == 3
