"""kill -9 at any moment, two hundred times: nothing acknowledged is lost, nothing done twice."""

import contextlib
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.core.worlds import World
from tests.durability.lives import receive, send

LIVES = 200
SHORTEST_S, LONGEST_S = 0.005, 0.15
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Outside:
    """The cluster, which outlives the daemons and notes what it was told."""

    world: World = field(default_factory=lambda: World.with_replicas(3))
    scaled: list[tuple[int, int]] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    met: threading.Event = field(default_factory=threading.Event)

    def serve(self, listening: socket.socket) -> None:
        """One daemon after another, until the socket is closed."""
        while True:
            try:
                line, _ = listening.accept()
            except OSError:
                return
            with line, contextlib.suppress(ConnectionError):
                while (question := receive(line)) is not None:
                    self.met.set()
                    send(line, self._answer(*question))

    def _answer(self, kind: str, *what: object) -> object:
        world = self.world
        if kind == "readings":
            world.at_s += 10
            world.arrived += 10 * world.rate_rps
            world.done += 10 * world.rate_rps
            return world.readings()
        if kind == "scale":
            count = int(str(what[0]))
            self.scaled.append((world.target, count))
            world.scale(count)
        elif kind == "kept" and isinstance(what[0], list):
            self.kept += what[0]
        else:
            self.failed.append(str(what))
        return True


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[tuple[Outside, str]]:
    address = str(tmp_path / "world.sock")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    made = Outside()
    thread = threading.Thread(target=made.serve, args=(listening,), daemon=True)
    thread.start()
    yield made, address
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


@pytest.mark.timeout(180)
def test_nothing_acknowledged_is_lost_and_nothing_is_done_twice(
    outside: tuple[Outside, str], tmp_path: Path
) -> None:
    cluster, address = outside
    journal = tmp_path / "leadtime.db"
    command = [sys.executable, "-m", "tests.durability.lives", str(journal), address]
    mother = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert mother.stdin is not None
    assert mother.stdout is not None
    moment = random.Random(7)
    try:
        for _ in range(LIVES):
            cluster.met.clear()
            mother.stdin.write("\n")
            mother.stdin.flush()
            child = int(mother.stdout.readline())
            assert cluster.met.wait(20), "the daemon did not come to its first tick"
            # The moment of death is the point: there is no event to wait for.
            threading.Event().wait(moment.uniform(SHORTEST_S, LONGEST_S))
            os.kill(child, signal.SIGKILL)
    finally:
        mother.stdin.close()
        mother.wait(10)
        mother.stdout.close()
    database = sqlite3.connect(journal)
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found = [row[0] for row in database.execute("SELECT at_s FROM decisions")]
    database.close()
    print(f"{LIVES} lives, {len(cluster.kept)} decisions kept, {len(cluster.scaled)} actions")
    assert cluster.failed == []
    assert len(cluster.kept) > LIVES
    assert set(cluster.kept) <= set(found)
    assert len(found) == len(set(found))
    assert len(cluster.scaled) > LIVES / 10
    assert [(before, asked) for before, asked in cluster.scaled if before == asked] == []
