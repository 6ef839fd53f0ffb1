"""Replays of deployments' own past, each in a process of its own: niced, one thread, one at a time.

The kernel holds a process to its CPU time and memory; one that takes too long by the clock is
killed. Whatever becomes of it, an answer comes: trials, or why there are none.
"""

import contextlib
import ctypes
import multiprocessing
import os
import resource
import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from threadpoolctl import threadpool_limits

from controller.core.choosing import Trial
from controller.core.rehearsal import Rehearsal
from controller.core.types import DeploymentId

NICENESS = 19
PR_SET_PDEATHSIG = 1
GRACE_S = 5
MIB = 1024 * 1024

Work = Callable[[Rehearsal], Sequence[Trial]]
"""What is run in the process; importable by its name."""
Answer = Sequence[Trial] | Exception


class RehearsalError(RuntimeError):
    """A replay gave no trials; the message says why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one process may take: `cpu_s` of CPU time, `memory_mib` of address space beyond what
    it starts with, and `patience_s` by the clock."""

    cpu_s: int = 900
    memory_mib: int = 2048
    patience_s: float = 3600.0


class Rehearser:
    """Takes replays, gives trials when they are there; at most one waits a deployment.

    A thread starts and awaits each process, so that nothing here ever keeps a tick waiting.
    """

    def __init__(self, work: Work, limits: Limits) -> None:
        self._work = work
        self._limits = limits
        self._waiting: deque[tuple[DeploymentId, Rehearsal]] = deque()
        self._answers: SimpleQueue[tuple[DeploymentId, Answer]] = SimpleQueue()
        self._asked = 0
        self._closed = False
        self._thread: Thread | None = None
        self._process: SpawnProcess | None = None

    @property
    def idle(self) -> bool:
        """Whether every replay has been answered."""
        return not self._asked and not self._waiting

    def submit(self, target: DeploymentId, job: Rehearsal) -> None:
        """Have a past replayed; a newer one takes the place of an older one that waits."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] != target)
        self._waiting.append((target, job))

    def poll(self) -> list[tuple[DeploymentId, Answer]]:
        """Answers that have come since the last call; never waits."""
        answered: list[tuple[DeploymentId, Answer]] = []
        while not self._answers.empty():
            answered.append(self._answers.get())
            self._asked -= 1
        if self._waiting and not self._asked:
            self._asked += 1
            self._thread = Thread(target=self._see_to, args=self._waiting.popleft(), daemon=True)
            self._thread.start()
        return answered

    def close(self) -> None:
        """End the process and drop what waits."""
        self._waiting.clear()
        self._closed = True
        if self._process is not None:
            self._process.kill()
        if self._thread is not None:
            self._thread.join(GRACE_S)

    def _see_to(self, target: DeploymentId, job: Rehearsal) -> None:
        try:
            answer = self._answered(job)
        except Exception as error:
            answer = RehearsalError(f"the replay could not be run: {error!r}")
        self._answers.put((target, answer))

    def _answered(self, job: Rehearsal) -> Answer:
        """Run the process to its end, and say what came of it."""
        context = multiprocessing.get_context("spawn")
        results, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_run, args=(self._work, job, theirs, self._limits), daemon=True
        )
        try:
            process.start()
        finally:
            theirs.close()
        self._process = process
        try:
            return self._came_of(process, results)
        finally:
            process.kill()
            process.join(GRACE_S)
            results.close()
            self._process = None

    def _came_of(self, process: SpawnProcess, results: Connection) -> Answer:
        if self._closed or not results.poll(self._limits.patience_s):
            return RehearsalError(f"the replay took longer than {self._limits.patience_s:g} s")
        try:
            found: Answer = results.recv()
        except (EOFError, OSError):
            process.join(GRACE_S)
            return RehearsalError(self._death(process.exitcode))
        return found

    def _death(self, code: int | None) -> str:
        if code == -signal.SIGXCPU:
            return f"the replay needed more than {self._limits.cpu_s} s of CPU time"
        return f"the process of the replay died with exit code {code}"


def _run(work: Work, job: Rehearsal, results: Connection, limits: Limits) -> None:
    """In the process: nothing here may slow a tick, outlive the daemon or take all memory."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    threadpool_limits(1)
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + GRACE_S))
    most = _address_space() + limits.memory_mib * MIB
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        answer: Answer = tuple(work(job))
    except MemoryError:
        answer = RehearsalError(f"the replay needed more than {limits.memory_mib} MiB of memory")
    except Exception as error:
        answer = RehearsalError(str(error) or repr(error))
    results.send(answer)


def _address_space() -> int:
    """Bytes of it in use: libraries take some for each core, before they are told to use one."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()
