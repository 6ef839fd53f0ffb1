"""Replays in a process of their own: whatever becomes of it, an answer comes and ticks go on."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from controller.adapters.rehearser import Answer, Limits, Rehearser
from controller.core.capacity import CapacityLaw
from controller.core.choosing import DEFAULT, LAST_VALUE, Trial
from controller.core.rehearsal import Rehearsal
from controller.core.types import DeploymentId
from tests.core.worlds import planner

ONE, OTHER = DeploymentId("app", "one"), DeploymentId("app", "other")
PATIENCE_S = 240.0
Made = Callable[..., Rehearser]


def job(lead_s: float = 60.0) -> Rehearsal:
    return Rehearsal(planner().settings, np.ones(10), 10, CapacityLaw(8, 2, 0.05), (), lead_s)


def told(job: Rehearsal) -> Sequence[Trial]:
    """The lead comes back as GPU-hours, the process's niceness as the share late."""
    return [Trial(LAST_VALUE, job.lead_s, os.nice(0) / 1000)]


def raises(job: Rehearsal) -> Sequence[Trial]:
    raise ValueError("too little of the past is known")


def dies(job: Rehearsal) -> Sequence[Trial]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def spins(job: Rehearsal) -> Sequence[Trial]:
    while True:
        pass


def sleeps(job: Rehearsal) -> Sequence[Trial]:
    time.sleep(PATIENCE_S)
    return []


def eats(job: Rehearsal) -> Sequence[Trial]:
    held = np.ones(3 * 1024**3 // 8)
    return [Trial(DEFAULT, float(held[0]), 0.0)]


@pytest.fixture
def made() -> Iterator[Made]:
    all_of_them: list[Rehearser] = []

    def make(work: Callable[[Rehearsal], Sequence[Trial]], **limits: float) -> Rehearser:
        all_of_them.append(Rehearser(work, Limits(**limits)))  # type: ignore[arg-type]
        return all_of_them[-1]

    yield make
    for each in all_of_them:
        each.close()


def answers(rehearser: Rehearser, count: int) -> list[tuple[DeploymentId, Answer]]:
    found: list[tuple[DeploymentId, Answer]] = []
    until_s = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < until_s:
        began_s = time.monotonic()
        found += rehearser.poll()
        assert time.monotonic() - began_s < 0.5
        time.sleep(0.01)
    return found


def test_every_deployment_is_answered_one_after_the_other_by_a_niced_process(made: Made) -> None:
    rehearser = made(told)
    rehearser.submit(ONE, job(1.0))
    rehearser.submit(OTHER, job(2.0))
    rehearser.submit(OTHER, job(3.0))
    assert not rehearser.idle
    one, other = answers(rehearser, 2)
    assert one == (ONE, (Trial(LAST_VALUE, 1.0, 0.019),))
    assert other == (OTHER, (Trial(LAST_VALUE, 3.0, 0.019),))
    assert rehearser.idle


@pytest.mark.parametrize(
    ("work", "limits", "why"),
    [
        (raises, {}, "too little of the past is known"),
        (dies, {}, "died with exit code -9"),
        (spins, {"cpu_s": 1}, "needed more than 1 s of CPU time"),
        (sleeps, {"patience_s": 1.0}, "took longer than 1 s"),
        (eats, {}, "needed more than 2048 MiB of memory"),
    ],
    ids=["fails", "is killed", "spins", "hangs", "eats memory"],
)
def test_a_replay_that_goes_wrong_says_why_and_the_next_one_is_answered(
    made: Made,
    work: Callable[[Rehearsal], Sequence[Trial]],
    limits: dict[str, float],
    why: str,
) -> None:
    rehearser = made(work, **limits)
    rehearser.submit(ONE, job())
    rehearser.submit(OTHER, job())
    (target, answer), (following, _) = answers(rehearser, 2)
    assert target == ONE
    assert isinstance(answer, Exception)
    assert why in str(answer)
    assert following == OTHER


def test_closing_ends_the_process_at_once(made: Made) -> None:
    rehearser = made(sleeps)
    rehearser.submit(ONE, job())
    rehearser.poll()
    process = None
    until_s = time.monotonic() + PATIENCE_S
    while process is None and time.monotonic() < until_s:
        process = rehearser._process  # noqa: SLF001
        time.sleep(0.01)
    assert process is not None
    pid = process.pid
    began_s = time.monotonic()
    rehearser.close()
    assert time.monotonic() - began_s < 5
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
