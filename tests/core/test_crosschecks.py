"""Signals held against each other. Case ids are those of the field cases that the project
collects; each is tested in kind, on readings that obey or break the law that what goes in comes
out or is inside."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.planning import Planner
from controller.core.signals import Freshness, SignalReader, blindness, doubtful
from controller.core.types import (
    Observation,
    Readings,
    Reason,
    Replica,
    Replicas,
    ReplicaState,
    Sample,
    Trust,
)
from tests.core.worlds import World, planner

TICK_S = 10.0
SLOTS = 8.0
PATIENCE = int(Freshness.of_scrape(10.0).patience_s / TICK_S) + 2
WARM = 60


@dataclass
class Books:
    """Counters and gauges of a deployment that keep to the law; `lie` changes what is read."""

    ready: int = 4
    came: float = 1000.0
    done: float = 1000.0
    waiting: float = 0.0
    running: float = 0.0
    at_s: float = 1000.0
    tokens: float = 0.0
    reader: SignalReader = field(default_factory=lambda: SignalReader(Freshness.of_scrape(10.0)))

    def readings(self, **lie: Any) -> Readings:
        seen_s = self.at_s - 1
        members = tuple(Replica(f"r{i}", ReplicaState.RUNNING, 0.0) for i in range(self.ready))
        share = self.running / max(self.ready, 1)
        honest = Readings(
            self.at_s,
            arrivals={"proxy": Sample(self.came, seen_s)},
            completions={"r0": Sample(self.done, seen_s)},
            queued={"proxy": Sample(self.waiting, seen_s)},
            ongoing={f"r{i}": Sample(share, seen_s) for i in range(self.ready)},
            replicas=Replicas(self.ready, self.ready, members, None, SLOTS),
        )
        return replace(honest, **lie)

    def step(self, arrive: float = 0, finish: float = 0, **lie: Any) -> Observation:
        """Ten seconds in which so many arrive and finish; full replicas leave the rest waiting."""
        self.at_s += TICK_S
        self.came += arrive
        self.done += finish
        inside = self.came - self.done
        self.running = min(inside, SLOTS * self.ready)
        self.waiting = inside - self.running
        given_lies = {
            name: {key: Sample(value, self.at_s - 1) for key, value in said.items()}
            for name, said in lie.items()
        }
        return self.reader.observe(self.readings(**given_lies))


def last(steps: int, step: Callable[[int], Observation]) -> Observation:
    return [step(number) for number in range(steps)][-1]


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param(lambda n: 3.0 if n % 2 else 0.0, id="S1 3 at intervals"),
        pytest.param(lambda n: 3.0, id="S1 3 all the time"),
        pytest.param(lambda n: 42.0, id="S2 constant 42"),
        pytest.param(lambda n: float(n), id="S3 growing, while nothing comes"),
    ],
)
def test_a_queue_without_traffic_is_flagged_and_holds_nothing_up(
    reads: Callable[[int], float],
) -> None:
    books = Books()
    believed = books.step(queued={"proxy": reads(1)})
    assert believed.load is not None
    assert believed.load.queued == reads(1)
    seen = last(2 * PATIENCE, lambda n: books.step(queued={"proxy": reads(n)}))
    assert seen.signals["queued"].trust is Trust.CONTRADICTORY
    assert seen.load is not None
    assert seen.load.queued == 0
    assert not doubtful(seen)


def test_a_stuck_gauge_is_found_beside_light_traffic_too() -> None:
    """S2 in kind: nobody waits for minutes while replicas have free slots."""
    books = Books()
    seen = last(2 * PATIENCE, lambda _: books.step(5, 5, queued={"proxy": 42.0}))
    assert seen.signals["queued"].trust is Trust.CONTRADICTORY
    assert seen.load is not None
    assert seen.load.queued == 0


@pytest.mark.parametrize("rate", [10, 100, 1000])
def test_a_queue_that_counters_do_not_explain_is_untrusted_by_its_slope(rate: float) -> None:
    """S3: arrivals equal completions, replicas are busy, and the gauge rises all the same. It is
    not counted, but as long as replicas are busy nothing is taken away either."""
    books = Books()
    books.step(30)
    leak = max(2.0, 0.1 * rate)
    seen = last(5 * PATIENCE, lambda n: books.step(rate, rate, queued={"proxy": leak * n}))
    assert seen.signals["queued"].trust is Trust.CONTRADICTORY
    assert seen.load is not None
    assert seen.load.queued == 0
    assert doubtful(seen)


def test_a_queue_that_is_real_is_never_untrusted() -> None:
    books = Books()
    for _ in range(6 * PATIENCE):
        seen = books.step(60, 50)
        assert seen.signals["queued"].trust in (Trust.PRESENT, Trust.ZERO)
    assert seen.load is not None
    assert seen.load.queued > 800
    for _ in range(3 * PATIENCE):
        seen = books.step(0, 50)
        assert seen.signals["queued"].trust in (Trust.PRESENT, Trust.ZERO)


def test_clients_that_give_up_prove_nothing() -> None:
    """A third of the requests never complete: arrivals and queue stay trusted."""
    books = Books()
    for _ in range(6 * PATIENCE):
        books.step(30, 20)
        books.came -= 10
        books.done = min(books.done, books.came)
        seen = books.reader.observe(books.readings())
        assert seen.signals["queued"].trust in (Trust.PRESENT, Trust.ZERO)
        assert seen.signals["arrivals"].trust is Trust.PRESENT


def test_arrivals_that_stand_still_while_requests_end_are_frozen() -> None:
    """S12 in kind: `or vector(0)` stands in for the router's series at the peak."""
    books = Books()
    last(PATIENCE, lambda _: books.step(100, 100))
    frozen = books.came
    seen = last(6, lambda _: books.step(100, 100, arrivals={"proxy": frozen}))
    assert seen.signals["arrivals"].trust is Trust.FROZEN
    assert blindness(seen) is None
    assert doubtful(seen)
    assert seen.demand is not None
    assert seen.demand.rate_rps == pytest.approx(10)
    for _ in range(6 * PATIENCE):
        books.came = books.done
        seen = books.step(100, 100)
    assert seen.signals["arrivals"].trust is Trust.PRESENT
    assert not doubtful(seen)


def test_arrivals_of_which_some_are_not_counted_contradict_completions() -> None:
    books = Books()
    last(PATIENCE, lambda _: books.step(100, 100))
    base = books.came
    seen = last(
        2 * PATIENCE, lambda n: books.step(100, 100, arrivals={"proxy": base + 50 * (n + 1)})
    )
    assert seen.signals["arrivals"].trust is Trust.CONTRADICTORY
    assert doubtful(seen)
    assert seen.demand is not None
    assert seen.demand.rate_rps == pytest.approx(10)


def test_requests_that_make_no_token_for_long_do_not_run() -> None:
    """S1 in kind: a leaking gauge of what runs, with the engines' counters as the witness."""
    books = Books()
    stuck = {f"r{i}": 3.0 for i in range(4)}
    seen = last(2 * PATIENCE, lambda _: books.step(ongoing=stuck, output_tokens={"r0": 500.0}))
    assert seen.signals["ongoing"].trust is Trust.CONTRADICTORY
    assert seen.load is not None
    assert seen.load.ongoing == 0
    long_job = last(
        PATIENCE, lambda n: books.step(ongoing=stuck, output_tokens={"r0": 500.0 + 10 * n})
    )
    assert long_job.signals["ongoing"].trust is Trust.PRESENT


def test_one_silent_replica_is_flagged_and_most_silent_ones_forbid_shrinking() -> None:
    """S15: five of six report; the decision is made on five, and the sixth is told."""
    books = Books(ready=6)
    seen = books.step(10, 10, ongoing={f"r{i}": 2.0 for i in range(5)})
    seen = books.step(10, 10, ongoing={f"r{i}": 2.0 for i in range(5)})
    assert seen.signals["ongoing"].trust is Trust.PRESENT
    assert seen.signals["ongoing"].silent == 1
    assert seen.load is not None
    assert seen.load.ongoing == 10
    assert not doubtful(seen)
    assert doubtful(books.step(10, 10, ongoing={f"r{i}": 2.0 for i in range(2)}))


def test_nothing_runs_where_no_replica_serves() -> None:
    """D14 in kind: at zero replicas the queue alone is the load."""
    books = Books(ready=0)
    books.step()
    seen = books.step(1000, 0)
    assert seen.load is not None
    assert (seen.load.queued, seen.load.ongoing) == (1000, 0)


def test_without_completions_nothing_vouches_for_arrivals() -> None:
    books = Books()
    books.step(100, 100)
    seen = books.step(100, 90, completions={})
    assert doubtful(seen)


@pytest.mark.parametrize("ahead_s", [60.0, 3600.0, 1e9])
def test_samples_from_the_future_are_not_counted(ahead_s: float) -> None:
    """S13 in kind: a clock that is off makes a sample as useless as age; it is right again once
    the clock is."""
    books = Books()
    books.step(10, 10)
    books.step(10, 10)
    later = {"proxy": Sample(books.came, books.at_s + ahead_s)}
    seen = books.reader.observe(books.readings(arrivals=later))
    assert blindness(seen) is Reason.STALE
    seen = books.step(10, 10)
    assert blindness(seen) is None
    assert seen.demand is not None
    assert seen.demand.arrivals == 10


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.5, 5.0, 50.0]), st.integers(0, 2))
def test_an_honest_world_is_never_accused(seed: int, rate: float, late_ticks: int) -> None:
    """Bursts, idle spells, queues, clients that leave, counters read up to two ticks apart."""
    rng = np.random.default_rng(seed)
    books = Books(ready=int(rng.integers(1, 6)))
    past: list[tuple[float, float]] = []
    bursts = np.repeat(rng.choice([0.0, 1.0, 4.0], 10), 20)
    for burst in bursts:
        arrive = float(rng.poisson(rate * 10 * burst))
        inside = books.came + arrive - books.done
        finish = float(np.floor(min(inside, SLOTS * books.ready * 2) * rng.uniform(0.5, 1.0)))
        past.append((books.came, books.done))
        lie = {"arrivals": {"proxy": past[max(0, len(past) - 1 - late_ticks)][0]}}
        seen = books.step(arrive, finish, **lie if late_ticks else {})
        for name in ("queued", "ongoing"):
            assert seen.signals[name].trust in (Trust.PRESENT, Trust.ZERO), name
        if late_ticks < 2:
            assert seen.signals["arrivals"].trust is Trust.PRESENT


def _each(change: Callable[[Sample, float], Sample]) -> Callable[[Any, float], Any]:
    return lambda samples, at_s: {key: change(sample, at_s) for key, sample in samples.items()}


FALSEHOODS: dict[str, Callable[[Any, float], Any]] = {
    "not asked": lambda *_: None,
    "empty": lambda *_: {},
    "vector(0)": lambda _, at_s: {"": Sample(0.0, at_s - 1)},
    "zero": _each(lambda s, _: Sample(0.0, s.at_s)),
    "nan": _each(lambda s, _: Sample(float("nan"), s.at_s)),
    "infinite": _each(lambda s, _: Sample(float("inf"), s.at_s)),
    "absurd": _each(lambda s, _: Sample(1e300, s.at_s)),
    "negative": _each(lambda s, _: Sample(-1.0, s.at_s)),
    "stale": _each(lambda s, at_s: Sample(s.value, at_s - 239)),
    "future": _each(lambda s, at_s: Sample(s.value, at_s + 3600)),
    "frozen": _each(lambda s, _: Sample(5.0, s.at_s)),
    "dead": lambda samples, at_s: {f"{k} gone": s for k, s in (samples or {}).items()},
}
FIELDS = ("arrivals", "completions", "queued", "ongoing")


@cache
def warm() -> tuple[World, Planner, Planner]:
    """A steady world, its planner, and the same planner again, which will only see the truth."""
    live, made = World.with_replicas(6, rate_rps=12), planner()
    live.run(made, WARM)
    return live, made, copy.deepcopy(made)


fault = st.fixed_dictionaries(
    {name: st.one_of(st.none(), st.sampled_from(sorted(FALSEHOODS))) for name in FIELDS}
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(fault, st.integers(1, 20)), min_size=1, max_size=4),
    st.sampled_from(["arrivals", "completions"]),
    st.booleans(),
)
def test_no_combination_of_false_signals_shrinks_below_the_need_of_the_last_trusted_view(
    faults: list[tuple[dict[str, str | None], int]], witness: str, silent_serve: bool
) -> None:
    """S1-S15 in kind: one of the two witnesses of the load stays true, or is seen to be gone;
    whatever the rest says, for as long as it likes, nothing is taken away."""
    live, made, control = copy.deepcopy(warm())
    need = made.state()["wanted"]
    for lies, ticks in faults:
        for _ in range(ticks):
            said: dict[str, Any] = {}
            for name, lie in lies.items():
                gone = lie in ("not asked", "empty", "nan", "infinite", "absurd", "negative")
                if lie is not None and (name != witness or gone):
                    said[name] = lie
            live.at_s += 10
            live.arrived += 120
            live.done += 120
            honest = live.readings()
            false = {
                name: FALSEHOODS[lie](getattr(honest, name), live.at_s)
                for name, lie in said.items()
            }
            if silent_serve:
                false["replicas"] = None
            decision = made.tick(replace(honest, **false))
            need = min(need, control.tick(honest).plan.wanted)
            assert decision.plan.wanted >= need, (said, decision.plan)


def test_twenty_replicas_are_held_through_ten_minutes_of_empty_vectors() -> None:
    """S10: and the input is shown as not trusted, which is what alerts."""
    live, made = World.with_replicas(20, rate_rps=60), planner(max_replicas=32)
    before = live.run(made, 30)[-1].plan.wanted
    seen = live.run(made, 60, arrivals={}, queued={}, ongoing={}, completions={})
    assert {d.plan.wanted for d in seen} == {before}
    assert all(d.observation.signals["arrivals"].trust is Trust.MISSING for d in seen)
