"""The daemon as a process, beside a recorded Serve and an empty Prometheus: settings that change,
operators' words, damage to its journal. It is blind, and wants what its bounds say."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from controller.cli import app
from controller.demo.processes import free_ports
from controller.loop import wall_clock_s
from tests.adapters.fake_server import Answer, serving, vector
from tests.adapters.test_serve import EXTERNAL, dashboard

pytestmark = pytest.mark.timeout(120)
TOKEN = "canary-4711"
TICK_S = 0.5
ROOT = Path(__file__).resolve().parents[2]


class Running:
    """A daemon, its files, and what it answers."""

    def __init__(self, folder: Path, url: str, events: list[dict[str, Any]]) -> None:
        self.folder = folder
        self.config = folder / "leadtime.yaml"
        self.log = folder / "log"
        self.port = free_ports(1)[0]
        (folder / "token").write_text(TOKEN)
        self.values: dict[str, Any] = {
            "tick_s": TICK_S,
            "slo": {"min_replicas": 4, "max_replicas": 9},
            "deployments": [
                {"application": EXTERNAL.application, "deployment": EXTERNAL.deployment}
            ],
            "prometheus": {"url": url, "timeout_s": 1},
            "serve": {"url": url},
            "http": {"port": self.port, "token_file": str(folder / "token")},
            "journal": {"path": str(folder / "leadtime.db")},
            "log": {"format": "json"},
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.events = events

    def hear(self, port: int) -> None:
        """Send events to a sink on that port."""
        sink = {"name": "ops", "url": f"http://127.0.0.1:{port}", "kinds": ["config_changed"]}
        self.values["sinks"] = [sink]

    def write(self, **changes: Any) -> None:
        """Replace the settings' file, as an editor does."""
        new = self.config.with_suffix(".new")
        new.write_text(yaml.safe_dump({**self.values, **changes}))
        new.replace(self.config)

    def start(self) -> None:
        code = "from controller.cli import main; main()"
        command = [sys.executable, "-c", code, "run", "--config", str(self.config)]
        began_s = wall_clock_s()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        self.until(lambda: self.decided_s() > began_s, "a decision")

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(15)

    def get(self, path: str) -> Any:
        """An answer; None while there is none."""
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=5, trust_env=False)
        except httpx.HTTPError:
            return None
        return answer.json() if "json" in answer.headers["content-type"] else answer.text

    def decisions(self) -> list[dict[str, Any]]:
        """Newest first."""
        answer = self.get("/api/v1/decisions?limit=200")
        return [] if answer is None else list(answer["decisions"])

    def decided_s(self) -> float:
        """When the newest decision was."""
        found = self.decisions()
        return float(found[0]["at_s"]) if found else 0.0

    def wanted(self) -> int | None:
        found = self.decisions()
        return int(found[0]["wanted"]) if found else None

    def until(self, condition: Callable[[], bool], what: str, within_s: float = 30.0) -> None:
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            if condition():
                return
            time.sleep(0.1)
        raise AssertionError(f"waited {within_s:.0f} s for {what}:\n{self.log.read_text()[-3000:]}")

    def said(self, event: str) -> list[dict[str, Any]]:
        """Lines of its log."""
        lines = [json.loads(x) for x in self.log.read_text().splitlines() if x.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def cli(self, *arguments: str) -> tuple[int, str]:
        ran = CliRunner().invoke(app, [*arguments, "--config", str(self.config)])
        return ran.exit_code, ran.output


@contextmanager
def listening(events: list[dict[str, Any]]) -> Iterator[int]:
    """A sink on some port, which keeps the events it is sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            events.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *_: Any) -> None:
            """Not said."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    recorded = dashboard()

    def answer(path: str, parameters: dict[str, str]) -> Answer:
        if path.startswith("/api/v1/"):
            return vector([])
        found: Answer = recorded(path, parameters)
        return found

    events: list[dict[str, Any]] = []
    with serving(answer) as fake, listening(events) as sink_port:
        made = Running(tmp_path_factory.mktemp("running"), fake.url, events)
        made.hear(sink_port)
        made.write()
        made.start()
        try:
            yield made
        finally:
            if made.process is not None and made.process.poll() is None:
                made.process.kill()
                made.process.wait()


def gap_s(running: Running) -> float:
    """The longest time between two decisions."""
    times = [float(each["at_s"]) for each in running.decisions()]
    return max(after - before for after, before in itertools.pairwise(times))


def test_a_changed_file_is_taken_at_a_tick_and_nothing_is_forgotten(running: Running) -> None:
    running.until(lambda: running.wanted() == 4, "the minimum")
    before = running.process
    running.write(slo={"min_replicas": 6, "max_replicas": 9})
    running.until(lambda: running.wanted() == 6, "the new minimum")
    assert running.process is before
    assert before is not None
    assert before.poll() is None
    read = running.said("settings read again")
    assert read[-1]["changes"] == {
        "deployments.0.min_replicas": "4 -> 6",
        "slo.min_replicas": "4 -> 6",
    }
    assert gap_s(running) < 8 * TICK_S
    running.until(lambda: bool(running.events), "an event that says so")
    assert running.events[0]["type"] == "leadtime.config_changed"
    assert running.events[0]["data"]["changes"] == read[-1]["changes"]


def test_a_wrong_file_is_refused_whole_and_the_daemon_goes_on(running: Running) -> None:
    running.write(slo={"min_replicas": 7, "max_replicas": 2})
    refused = 'leadtime_source_errors_total{source="settings"}'
    running.until(lambda: refused in running.get("/metrics"), "the refusal")
    running.write(slo={"min_replicas": 7, "max_replicas": 9}, tick_s=2)
    running.until(lambda: f"{refused} 2.0" in running.get("/metrics"), "the next refusal")
    said = [line["error"] for line in running.said("no usable answer") if "settings" in str(line)]
    assert "min_replicas" in said[0]
    assert "tick_s: cannot change while the daemon runs" in said[1]
    assert running.wanted() == 6


def test_sighup_reads_the_settings_again(running: Running) -> None:
    assert running.process is not None
    running.write(slo={"min_replicas": 7, "max_replicas": 9})
    running.process.send_signal(signal.SIGHUP)
    running.until(lambda: running.wanted() == 7, "the new minimum", within_s=15)


def test_a_pin_holds_survives_a_crash_and_ends(running: Running) -> None:
    target = str(EXTERNAL)
    code, said = running.cli("pin", target, "9", "--for", "1h", "--why", "launch")
    assert (code, said.strip()) == (0, f"pin: {target} for 3600 s")
    running.until(lambda: running.wanted() == 9, "the pin")
    running.end(signal.SIGKILL)
    running.start()
    assert running.wanted() == 9
    (shown,) = running.get("/api/v1/overrides")["overrides"]
    assert (shown["effect"], shown["replicas"], shown["source"]) == ("pin", 9, "operator")
    assert "launch (by " in shown["why"]
    assert running.cli("resume", target, "--why", "over") == (0, "resumed\n")
    assert running.get("/api/v1/overrides")["overrides"] == []
    code, said = running.cli("pause", target, "--for", "1s", "--why", "short")
    assert code == 0
    running.until(lambda: running.get("/api/v1/overrides")["overrides"] == [], "its end", 10)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("pin", "nobody/llm", "3", "--for", "1h", "--why", "x"), 1, "no deployment that we scale"),
        (("pin", "llm", "3", "--for", "1h", "--why", "x"), 2, "APP/DEPLOYMENT"),
        (("pause", "a/b", "--for", "soon", "--why", "x"), 2, "is no duration"),
        (("resume", "a/b", "--why", "x", "--url", "http://127.0.0.1:9"), 1, "is the daemon there"),
    ],
)
def test_a_wrong_command_is_said(
    running: Running, arguments: tuple[str, ...], code: int, said: str
) -> None:
    found = running.cli(*arguments)
    assert (found[0], said in found[1]) == (code, True)


def test_without_the_token_nothing_changes(running: Running) -> None:
    url = f"http://127.0.0.1:{running.port}/api/v1/overrides"
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        answer = httpx.post(url, json={}, headers=headers, timeout=5)
        assert (answer.status_code, TOKEN in answer.text) == (401, False)


def damage(journal: Path, since: float) -> None:
    """Overwrite the file from a share of its length on."""
    size = journal.stat().st_size
    with journal.open("r+b") as file:
        file.seek(int(size * since))
        file.write(os.urandom(size - int(size * since)))


def test_a_journal_damaged_between_two_runs_is_moved_aside(running: Running) -> None:
    assert running.end(signal.SIGTERM) == 0
    damage(running.folder / "leadtime.db", 0.3)
    running.start()
    assert (running.folder / "leadtime.db.damaged-start").exists()
    assert "leadtime_journal_errors_total 1.0" in running.get("/metrics")


def test_a_journal_damaged_under_the_daemon_is_left_and_scaling_goes_on(running: Running) -> None:
    """What a process has in memory hides damage, so the file is swapped for a damaged one."""
    target, journal = str(EXTERNAL), running.folder / "leadtime.db"
    assert running.cli("pin", target, "8", "--for", "1h", "--why", "launch")[0] == 0
    running.until(lambda: running.wanted() == 8, "the pin")
    process = running.process
    copy = running.folder / "copy.db"
    shutil.copy(journal, copy)
    damage(copy, 0.6)
    copy.replace(journal)
    began_s = wall_clock_s()
    running.until(lambda: running.said("journal is another file") != [], "that to be said")
    running.until(lambda: running.decided_s() > began_s, "a decision in the new one")
    assert running.wanted() == 8
    assert running.process is process
    assert TOKEN not in running.log.read_text()


def test_sigterm_ends_it_within_five_seconds(running: Running) -> None:
    began_s = time.monotonic()
    assert running.end(signal.SIGTERM) == 0
    assert time.monotonic() - began_s < 5
