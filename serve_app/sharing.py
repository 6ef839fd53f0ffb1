"""Processor sharing in virtual time: who gets how far by when, under a `Law`.

All running requests advance at one speed, so one virtual clock serves them all: it moves by
v(n) a second while n run, and a request admitted at virtual time V reaches work w at V + w.
Nothing here reads a clock; every moment is exact however late the caller looks.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from serve_app.law import Law


@dataclass(frozen=True, slots=True)
class Advance:
    """A request got somewhere at `at_s`: `reached` 0 says it started, k that it has done its
    k-th portion of work, `finished` that this was the last and its slot is free again."""

    at_s: float
    request_id: str
    reached: int
    finished: bool


@dataclass(slots=True)
class _Job:
    request_id: str
    portions: tuple[float, ...]
    admitted_at: float = 0.0
    reached: int = 0


@dataclass(slots=True)
class SharedProcessor:
    """Runs up to `law.slots` jobs at once and queues the rest first come, first served.

    Times passed in must not decrease; a call never sees events later than its `now_s`.
    """

    law: Law
    _now_s: float = 0.0
    _virtual_s: float = 0.0
    _jobs: dict[str, _Job] = field(default_factory=dict)
    _queue: deque[str] = field(default_factory=deque)
    _milestones: list[tuple[float, int, str]] = field(default_factory=list)
    _running: int = 0
    _tie: int = 0

    @property
    def running(self) -> int:
        """Jobs that hold a slot."""
        return self._running

    @property
    def waiting(self) -> int:
        """Jobs that wait for a slot."""
        return len(self._jobs) - self._running

    def submit(self, now_s: float, request_id: str, portions: Sequence[float]) -> list[Advance]:
        """Take in a job of `portions`: increasing amounts of lone work, the last one its all.

        Returns everything that happened up to `now_s`, the job's own start included if a slot
        was free. ValueError on an id that is still here, or on portions that do not increase.
        """
        if request_id in self._jobs:
            raise ValueError(f"request {request_id!r} is already here")
        if not portions or portions[0] < 0 or any(b < a for a, b in pairwise(portions)):
            raise ValueError("portions must be a non-empty increasing sequence of work")
        happened = self.advance(now_s)
        self._jobs[request_id] = _Job(request_id, tuple(portions))
        self._queue.append(request_id)
        self._admit(happened)
        return happened

    def cancel(self, now_s: float, request_id: str) -> list[Advance]:
        """Drop a job, running or waiting, and return what happened up to `now_s`.

        The freed slot goes to the next in line. A job that has finished is no error.
        """
        happened = self.advance(now_s)
        job = self._jobs.pop(request_id, None)
        if job is None:
            return happened
        if request_id in self._queue:
            self._queue.remove(request_id)
            return happened
        self._running -= 1
        self._milestones = [entry for entry in self._milestones if entry[2] != request_id]
        heapq.heapify(self._milestones)
        self._admit(happened)
        return happened

    def advance(self, now_s: float) -> list[Advance]:
        """Everything that happened up to `now_s`, in order, each with its exact moment."""
        happened: list[Advance] = []
        while self._milestones:
            due_s = self._due_s(self._milestones[0][0])
            if due_s > now_s:
                break
            self._now_s = due_s
            self._virtual_s, _, request_id = heapq.heappop(self._milestones)
            self._pass_milestone(self._jobs[request_id], happened)
        if now_s > self._now_s:
            self._virtual_s += (now_s - self._now_s) * self.law.speed(self._running)
            self._now_s = now_s
        return happened

    def next_at_s(self) -> float | None:
        """When something happens next if no job comes or goes; None while idle."""
        return self._due_s(self._milestones[0][0]) if self._milestones else None

    def _due_s(self, milestone: float) -> float:
        return self._now_s + max(milestone - self._virtual_s, 0.0) / self.law.speed(self._running)

    def _pass_milestone(self, job: _Job, happened: list[Advance]) -> None:
        job.reached += 1
        finished = job.reached == len(job.portions)
        happened.append(Advance(self._now_s, job.request_id, job.reached, finished))
        if not finished:
            self._await_milestone(job)
            return
        del self._jobs[job.request_id]
        self._running -= 1
        self._admit(happened)

    def _admit(self, happened: list[Advance]) -> None:
        if not self._running:
            self._virtual_s = 0.0  # keeps the clock small, hence exact, over weeks of running
        while self._queue and self._running < self.law.slots:
            job = self._jobs[self._queue.popleft()]
            job.admitted_at = self._virtual_s
            self._running += 1
            happened.append(Advance(self._now_s, job.request_id, 0, finished=False))
            self._await_milestone(job)

    def _await_milestone(self, job: _Job) -> None:
        self._tie += 1
        due = job.admitted_at + job.portions[job.reached]
        heapq.heappush(self._milestones, (due, self._tie, job.request_id))
