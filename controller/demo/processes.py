"""Start processes, know everything that came of them, and end exactly that.

Ray's daemons leave the process tree of whoever started them, so descent is not proof of
origin. Every process started here carries a private mark in its environment, which children
inherit; ending a group signals what bears the mark and nothing else.
"""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

MARK = "LEADTIME_GROUP"


class ProcessGroup:
    """Processes that end together; a context manager that leaves nothing behind.

    `log_dir` receives one file a process, `<name>.log`.
    """

    def __init__(self, log_dir: Path) -> None:
        self.mark = secrets.token_hex(8)
        self.log_dir = log_dir
        self._started: list[subprocess.Popen[bytes]] = []
        log_dir.mkdir(parents=True, exist_ok=True)

    def start(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start `command` in a session of its own, so that a terminal's Ctrl-C reaches only us."""
        with (self.log_dir / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                list(command),
                env={**os.environ, **(env or {}), MARK: self.mark},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def log(self, name: str, last_chars: int = 2000) -> str:
        """The end of a process's log, for error messages."""
        with contextlib.suppress(OSError):
            return (self.log_dir / f"{name}.log").read_text(errors="replace")[-last_chars:]
        return ""

    def members(self) -> list[psutil.Process]:
        """Every living process that bears the group's mark."""
        return [process for process in psutil.process_iter() if self._bears_mark(process)]

    def end(self, patience_s: float = 1.0) -> None:
        """Ask the processes started here to end, then end whatever bears the mark. Each is given
        little time: what is theirs to lose is as short-lived as they are."""
        for process in reversed(self._started):
            stop(process, patience_s)
        self._started.clear()
        left = self.members()
        _signal_all(left, signal.SIGTERM)
        _, alive = psutil.wait_procs(left, timeout=patience_s)
        _signal_all(alive, signal.SIGKILL)
        psutil.wait_procs(alive, timeout=3.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _bears_mark(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return bool(process.environ().get(MARK) == self.mark)
        return False


def stop(process: subprocess.Popen[bytes], patience_s: float = 10.0) -> int:
    """SIGTERM, then SIGKILL after `patience_s`; returns the exit code."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def free_ports(count: int) -> list[int]:
    """Loopback ports that were free a moment ago, all different."""
    with contextlib.ExitStack() as held:
        return [held.enter_context(_bound()).getsockname()[1] for _ in range(count)]


@contextlib.contextmanager
def _bound() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener


def _signal_all(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
