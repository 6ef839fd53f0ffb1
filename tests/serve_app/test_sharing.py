"""Processor sharing in virtual time against a naive simulation that integrates each job."""

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.law import Law
from serve_app.sharing import Advance, SharedProcessor


@dataclass(frozen=True)
class Job:
    """What a test submits: after `gap_s`, work in portions, cancelled after a while or not."""

    gap_s: float
    portions: tuple[float, ...]
    patience_s: float = math.inf

    @property
    def work(self) -> float:
        return self.portions[-1]


def law(slots: int = 2, beta: float = 0.5) -> Law:
    return Law(slots=slots, beta=beta, prefill_tokens_per_s=1.0, token_s=1.0)


def steps_to_portions(steps: list[float]) -> tuple[float, ...]:
    total = 0.0
    return tuple(total := total + step for step in steps)


work_steps = st.lists(st.floats(0.01, 5.0), min_size=1, max_size=4)
patience = st.one_of(st.just(math.inf), st.floats(0.0, 20.0))
jobs_without_cancel = st.lists(
    st.builds(Job, st.floats(0.0, 4.0), work_steps.map(steps_to_portions)), min_size=1, max_size=12
)
jobs_with_cancel = st.lists(
    st.builds(Job, st.floats(0.0, 4.0), work_steps.map(steps_to_portions), patience),
    min_size=1,
    max_size=12,
)
laws = st.builds(law, st.integers(1, 4), st.floats(0.0, 2.0))


def arrivals(jobs: list[Job]) -> list[float]:
    return list(steps_to_portions([job.gap_s for job in jobs]))


def run(under: Law, jobs: list[Job], looks_s: list[float] | None = None) -> list[Advance]:
    """Everything the processor reports, looked at only at arrivals, cancels and `looks_s`."""
    processor = SharedProcessor(under)
    calls: list[tuple[float, int, int]] = []
    for index, (at_s, job) in enumerate(zip(arrivals(jobs), jobs, strict=True)):
        calls.append((at_s, 0, index))
        if job.patience_s < math.inf:
            calls.append((at_s + job.patience_s, 1, index))
    calls += [(at_s, 2, 0) for at_s in looks_s or []]
    happened: list[Advance] = []
    for at_s, kind, index in sorted(calls):
        if kind == 0:
            happened += processor.submit(at_s, str(index), jobs[index].portions)
        elif kind == 1:
            happened += processor.cancel(at_s, str(index))
        else:
            happened += processor.advance(at_s)
        assert processor.running <= under.slots
        assert not processor.waiting or processor.running == under.slots
    while (at := processor.next_at_s()) is not None:
        happened += processor.advance(at)
    assert processor.running == processor.waiting == 0
    return happened


def naive_finishes(under: Law, jobs: list[Job]) -> dict[str, float]:
    """Finish moments by decrementing every running job's own remaining work, event by event."""
    comes = {str(index): at_s for index, at_s in enumerate(arrivals(jobs))}
    goes = {name: at_s + jobs[int(name)].patience_s for name, at_s in comes.items()}
    left = {name: jobs[int(name)].work for name in comes}
    queue: list[str] = []
    running: list[str] = []
    finishes: dict[str, float] = {}
    now_s = 0.0
    pending = sorted(comes, key=lambda name: (comes[name], int(name)))
    while pending or queue or running:
        speed = 1.0 / (1.0 + under.beta * (len(running) - 1)) if running else 1.0
        ends = [(now_s + left[name] / speed, 0, int(name)) for name in running]
        leaves = [(goes[name], 2, int(name)) for name in queue + running]
        arrives = [(comes[name], 1, int(name)) for name in pending[:1]]
        at_s, kind, index = min(ends + leaves + arrives)
        name = str(index)
        for other in running:
            left[other] -= (at_s - now_s) * speed
        now_s = at_s
        if kind == 1:
            queue.append(pending.pop(0))
        elif name in queue:
            queue.remove(name)
        else:
            running.remove(name)
            if kind == 0:
                finishes[name] = now_s
        while queue and len(running) < under.slots:
            running.append(queue.pop(0))
    return finishes


def finishes_of(happened: list[Advance]) -> dict[str, float]:
    return {advance.request_id: advance.at_s for advance in happened if advance.finished}


def starts_of(happened: list[Advance]) -> dict[str, float]:
    return {advance.request_id: advance.at_s for advance in happened if advance.reached == 0}


@given(laws, jobs_without_cancel)
def test_finishes_equal_a_naive_integration(under: Law, jobs: list[Job]) -> None:
    assert finishes_of(run(under, jobs)) == pytest.approx(naive_finishes(under, jobs))


@given(laws, jobs_with_cancel)
def test_cancelled_jobs_leave_the_others_as_a_naive_integration_says(
    under: Law, jobs: list[Job]
) -> None:
    naive = naive_finishes(under, jobs)
    ours = finishes_of(run(under, jobs))
    for name in naive.keys() & ours.keys():
        assert ours[name] == pytest.approx(naive[name])
    for name in naive.keys() ^ ours.keys():  # only a job cancelled as it finishes may differ
        came_s, job = arrivals(jobs)[int(name)], jobs[int(name)]
        assert {**naive, **ours}[name] == pytest.approx(came_s + job.patience_s)


@given(laws, jobs_without_cancel)
def test_work_is_conserved(under: Law, jobs: list[Job]) -> None:
    happened = run(under, jobs)
    done, running = 0.0, 0
    for earlier, later in pairwise([*happened, happened[-1]]):
        running += (earlier.reached == 0) - earlier.finished
        done += running * under.speed(running) * (later.at_s - earlier.at_s)
    assert done == pytest.approx(sum(job.work for job in jobs))


@given(laws, jobs_with_cancel)
def test_first_come_first_served(under: Law, jobs: list[Job]) -> None:
    started = [int(name) for name in starts_of(run(under, jobs))]
    assert started == sorted(started)


@given(laws, jobs_without_cancel, st.lists(st.floats(0.0, 60.0), max_size=30))
def test_looking_more_often_changes_nothing(
    under: Law, jobs: list[Job], looks_s: list[float]
) -> None:
    seldom, often = run(under, jobs), run(under, jobs, looks_s)
    assert finishes_of(often) == pytest.approx(finishes_of(seldom))
    assert starts_of(often) == pytest.approx(starts_of(seldom))


@given(laws, jobs_without_cancel)
def test_events_come_in_order_of_time_and_of_portions(under: Law, jobs: list[Job]) -> None:
    happened = run(under, jobs)
    assert all(earlier.at_s <= later.at_s for earlier, later in pairwise(happened))
    for index, job in enumerate(jobs):
        reached = [one.reached for one in happened if one.request_id == str(index)]
        assert reached == list(range(len(job.portions) + 1))


def test_a_newcomer_slows_those_on_their_way() -> None:
    # Alone for 1 s, then two at 1 / 1.5: the first's last second of work takes 1.5 s.
    happened = run(law(slots=2, beta=0.5), [Job(0.0, (2.0,)), Job(1.0, (2.0,))])
    assert finishes_of(happened) == pytest.approx({"0": 2.5, "1": 3.5})


def test_the_next_in_line_starts_the_moment_a_slot_is_free_however_late_we_look() -> None:
    processor = SharedProcessor(law(slots=1))
    processor.submit(0.0, "a", (2.0,))
    processor.submit(0.0, "b", (2.0,))
    assert starts_of(processor.advance(100.0)) == {"b": 2.0}


def test_refuses_a_request_that_is_here_and_work_that_goes_back() -> None:
    processor = SharedProcessor(law())
    processor.submit(0.0, "a", (1.0,))
    with pytest.raises(ValueError, match="already here"):
        processor.submit(0.0, "a", (1.0,))
    for portions in ((), (-1.0,), (2.0, 1.0)):
        with pytest.raises(ValueError, match="increasing"):
            processor.submit(0.0, "b", portions)
