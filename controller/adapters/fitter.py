"""Forecast fits in a process of their own: niced, one thread, one job at a time.

The process ends when it has had nothing to do for a minute, and its memory with it.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import time
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from threadpoolctl import threadpool_limits

from controller.core.forecasting import fitting
from controller.core.forecasting.fitting import FitJob, Fitted
from controller.core.types import DeploymentId

NICENESS = 10
PR_SET_PDEATHSIG = 1
IDLE_S = 60.0


class Fitter:
    """Takes jobs, gives results when they are there; at most one job waits a deployment."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._waiting: deque[tuple[DeploymentId, FitJob]] = deque()
        self._running: tuple[DeploymentId, Future[Fitted]] | None = None
        self._worked_s = time.monotonic()

    @property
    def idle(self) -> bool:
        """Whether every job has been answered."""
        return self._running is None and not self._waiting

    def submit(self, target: DeploymentId, job: FitJob) -> None:
        """Have a job run; a newer one takes the place of an older one that waits."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] != target)
        self._waiting.append((target, job))
        self._next()

    def poll(self) -> list[tuple[DeploymentId, Fitted | Exception]]:
        """Results that have come since the last call; an exception where a job failed."""
        done: list[tuple[DeploymentId, Fitted | Exception]] = []
        if not self.idle:
            self._worked_s = time.monotonic()
        elif time.monotonic() - self._worked_s > IDLE_S:
            self.close()
        while self._running is not None and self._running[1].done():
            target, future = self._running
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                self._pool = None
            done.append((target, future.result() if error is None else _plain(error)))
            self._running = None
            self._next()
        return done

    def close(self) -> None:
        """End the process once its job is done; the other jobs are dropped."""
        self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _next(self) -> None:
        if self._running is not None or not self._waiting:
            return
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1, mp_context=multiprocessing.get_context("spawn"), initializer=_be_modest
            )
        target, job = self._waiting.popleft()
        self._running = target, self._pool.submit(fitting.run, job)


def _be_modest() -> None:
    """A fit must never slow a tick, nor outlive the daemon."""
    os.nice(NICENESS)
    threadpool_limits(1)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _plain(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(repr(error))
