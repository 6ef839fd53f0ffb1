"""A daemon to be killed: the real loop, planner and journal, against a world in another process.

One process imports everything once and forks a daemon at each line it reads, so that two hundred
lives take seconds.
"""

import asyncio
import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from controller.adapters.store import Journal
from controller.core.choosing import Choice
from controller.core.overrides import Effect, Override, Source
from controller.core.planning import Planner
from controller.core.ports import Known
from controller.core.types import Action, DeploymentId, Outcome, Readings, ScaleDeployment, Tick
from controller.loop import Loop
from tests.core.worlds import TARGET, planner
from tests.test_loop import FakeFits

SIZE = struct.Struct("!I")


def send(line: socket.socket, message: Any) -> None:
    """One message, whole."""
    body = pickle.dumps(message)
    line.sendall(SIZE.pack(len(body)) + body)


def receive(line: socket.socket) -> Any:
    """One message; None at the end, and for one that was cut off."""
    size = _exactly(line, SIZE.size)
    body = _exactly(line, SIZE.unpack(size)[0]) if size else None
    return None if body is None else pickle.loads(body)


def _exactly(line: socket.socket, size: int) -> bytes | None:
    body = b""
    while len(body) < size:
        more = line.recv(size - len(body))
        if not more:
            return None
        body += more
    return body


class Life:
    """Source, planners, actuator, recorder and watch of one life."""

    failures: tuple[str, ...] = ()

    def __init__(self, journal: Journal, line: socket.socket) -> None:
        self._journal = journal
        self._line = line
        self._seen: Readings | None = None

    def now(self) -> float:
        return 0.0 if self._seen is None else self._seen.at_s

    def _ask(self, *question: Any) -> Any:
        send(self._line, question)
        answer = receive(self._line)
        if answer is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    async def replicas(self) -> Known:
        self._seen = self._ask("readings")
        assert self._seen is not None
        return {TARGET: self._seen.replicas}

    async def readings(self, now_s: float, replicas: Known) -> Mapping[DeploymentId, Readings]:
        assert self._seen is not None
        return {TARGET: self._seen}

    async def prepare(self, targets: Iterable[DeploymentId]) -> Mapping[DeploymentId, Planner]:
        made = planner()
        learned = self._journal.learned(TARGET)
        if learned is not None:
            made.restore(learned)
        return dict.fromkeys(targets, made)

    async def refill(self, planners: Mapping[DeploymentId, Planner], now_s: float) -> None:
        """Another number every minute, so that every life has something to do."""
        minute = int(now_s // 60)
        pin = Override(
            "turn",
            Effect.PIN,
            Source.OPERATOR,
            "every minute another number",
            60.0 * minute,
            60.0 * (minute + 1),
            2 + minute % 5,
        )
        planners[TARGET].override((pin,))

    async def apply(self, action: Action) -> Outcome:
        if isinstance(action, ScaleDeployment):
            self._ask("scale", action.replicas)
        return Outcome(action, True, "")

    def record(self, tick: Tick) -> None:
        """The journal has returned: what it took is acknowledged."""
        self._ask("kept", [decision.observation.at_s for decision, _ in tick.decisions])

    def failed_tick(self, error: BaseException) -> None:
        self._ask("failed", repr(error))

    def ticked(self, seconds: float) -> None:
        pass

    def fitted(self, target: DeploymentId, result: str, detail: str = "") -> None:
        pass

    def chose(self, target: DeploymentId, choice: Choice) -> None:
        pass


def live(journal_path: Path, address: str) -> None:
    """Tick until killed."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(address)
    journal = Journal(journal_path, 1e9)
    life = Life(journal, line)
    if journal.replaced is not None:
        life.failed_tick(RuntimeError(journal.problem))
    loop = Loop(life, life, life, (journal, life), FakeFits(), life, 0.001, life.now)
    asyncio.run(loop.run(asyncio.Event()))


def main(journal_path: Path, address: str) -> None:
    """A life for each line of standard input; its process id goes to standard output."""
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            live(journal_path, address)
        print(child, flush=True)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
