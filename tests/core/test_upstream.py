"""Demand behind a full stage: counted where it reaches the application."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.signals import Freshness, SignalReader
from controller.core.types import (
    DeploymentId,
    Observation,
    Readings,
    Replica,
    Replicas,
    ReplicaState,
    Sample,
    Stage,
    Trust,
)

INGRESS, ROUTER, LLM = (DeploymentId("chat", name) for name in ("Ingress", "Router", "LLM"))
FRESH = Freshness.of_scrape(1.0)


@dataclass
class Path:
    """Stages in a row in front of the LLM. Each lets at most `most` requests a second through
    and makes `calls` calls of the next for each; arrivals beyond that wait."""

    most: list[float]
    calls: list[float]
    names: list[DeploymentId] = field(default_factory=lambda: [INGRESS, ROUTER])

    def __post_init__(self) -> None:
        self.names = self.names[: len(self.most)]
        self.arrived = [0.0] * (len(self.most) + 1)
        self.queued = [0.0] * len(self.most)
        self.at_s = 100.0
        self.reader = SignalReader(FRESH)

    def second(self, rate: float, lost: bool = False) -> Observation:
        """One second of `rate` requests a second at the front door; one observation of the LLM."""
        self.at_s += 1.0
        came = rate
        for place, most in enumerate(self.most):
            self.arrived[place] += came
            waiting = self.queued[place] + came
            through = min(most, waiting)
            self.queued[place] = waiting - through
            came = through * self.calls[place]
        self.arrived[-1] += came
        return self.reader.observe(self.readings(lost))

    def readings(self, lost: bool = False) -> Readings:
        at_s = self.at_s
        stages = {}
        for place, name in enumerate(self.names):
            callee = self.names[place + 1] if place + 1 < len(self.names) else LLM
            stages[name] = Stage(
                {"in": Sample(self.arrived[place], at_s)},
                {} if lost else {"in": Sample(self.queued[place], at_s)},
                {callee: {f"out{place}": Sample(self.arrived[place + 1], at_s)}},
            )
        replica = Replica("r", ReplicaState.RUNNING, 0.0)
        return Readings(
            at_s,
            arrivals={"a": Sample(self.arrived[-1], at_s)},
            queued={"a": Sample(0.0, at_s)},
            ongoing={"r": Sample(1.0, at_s)},
            replicas=Replicas(1, 1, (replica,)),
            stages=stages,
        )


def rate_of(seen: Observation) -> float:
    assert seen.demand is not None
    return seen.demand.rate_rps


def test_a_full_ingress_hides_no_demand() -> None:
    path = Path(most=[4.0], calls=[1.0])
    path.second(8)
    for _ in range(30):
        seen = path.second(8)
    assert rate_of(seen) == pytest.approx(8.0)
    assert seen.signals["upstream"].value == pytest.approx(31 * 4.0)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [(0.25, 2.0), (1.0, 8.0), (3.0, 24.0)],
    ids=["most are answered on the way", "one call each", "three calls each"],
)
def test_demand_behind_follows_the_calls_of_a_request(calls: float, expected: float) -> None:
    path = Path(most=[4.0], calls=[calls])
    for _ in range(300):
        seen = path.second(8)
    assert rate_of(seen) == pytest.approx(expected, rel=0.02)


def test_two_stages_multiply_and_either_may_be_the_full_one() -> None:
    for most in ([4.0, 1e9], [1e9, 8.0], [6.0, 5.0]):
        path = Path(most=most, calls=[2.0, 0.5])
        for _ in range(400):
            seen = path.second(9)
        assert rate_of(seen) == pytest.approx(9.0, rel=0.03), most


def test_nothing_changes_where_nothing_waits() -> None:
    path = Path(most=[1e9], calls=[1.0])
    path.second(8)
    assert rate_of(path.second(8)) == 8.0
    assert path.second(3).signals["upstream"].trust is Trust.ZERO


def test_what_was_counted_when_it_came_is_not_counted_when_it_passes() -> None:
    path = Path(most=[4.0], calls=[1.0])
    path.second(0)
    rates = [rate_of(path.second(8)) for _ in range(20)]
    path.most = [20.0]
    rates += [rate_of(path.second(2)) for _ in range(20)]
    assert sum(rates) == pytest.approx(20 * 8 + 20 * 2)
    assert rates[-1] == pytest.approx(2.0)
    assert max(rates[20:]) < 2.5


def test_a_gauge_that_is_wrong_for_one_scrape_changes_little() -> None:
    """Seen on Ray 2.60: 33, 1, 44 waiting, with 8 a second coming and 2 let through."""
    path = Path(most=[2.0], calls=[1.0])
    path.second(8)
    for _ in range(5):
        path.second(8)
    waiting = path.queued[0]
    path.at_s += 1.0
    path.arrived = [path.arrived[0] + 8.0, path.arrived[1] + 2.0]
    path.queued = [1.0]
    wrong = path.reader.observe(path.readings())
    path.queued = [waiting + 6.0]
    right = path.second(8)
    assert rate_of(wrong) + rate_of(right) == pytest.approx(16.0, abs=6.5)
    for _ in range(20):
        seen = path.second(8)
    assert rate_of(seen) == pytest.approx(8.0, rel=0.15)


def test_clients_that_give_up_were_demand() -> None:
    path = Path(most=[4.0], calls=[1.0])
    for _ in range(20):
        path.second(8)
    path.queued = [0.0]
    path.at_s += 1.0
    path.arrived = [path.arrived[0] + 8.0, path.arrived[1] + 4.0]
    assert rate_of(path.reader.observe(path.readings())) >= 0
    for _ in range(20):
        seen = path.second(8)
    assert rate_of(seen) == pytest.approx(8.0, rel=0.1)


def test_a_lost_router_s_queue_is_not_taken_off_the_demand() -> None:
    path = Path(most=[4.0], calls=[1.0])
    for _ in range(20):
        path.second(8)
    path.queued = [0.0]
    silent = [path.second(4, lost=True) for _ in range(40)]
    assert all(rate_of(seen) == pytest.approx(4.0) for seen in silent)
    assert "upstream" not in silent[-1].signals


def test_nothing_is_taken_away_while_a_queue_that_held_requests_is_silent() -> None:
    path = Path(most=[4.0], calls=[1.0])
    for _ in range(20):
        path.second(8)
    silent = [path.second(8, lost=True) for _ in range(40)]
    # Two scrapes late is not silent; after the patience it is forgotten.
    whole = [seen.demand.complete for seen in silent if seen.demand is not None]
    assert whole == [True] * 5 + [False] * 25 + [True] * 10


def test_a_daemon_that_starts_into_a_queue_counts_only_what_comes() -> None:
    path = Path(most=[4.0], calls=[1.0])
    for _ in range(20):
        path.second(8)
    path.reader = SignalReader(FRESH)
    path.second(8)
    assert rate_of(path.second(8)) == pytest.approx(8.0)


def test_growth_seen_between_two_scrapes_of_arrivals_is_kept() -> None:
    path = Path(most=[4.0], calls=[1.0])
    path.second(8)
    path.second(8)
    before = path.readings()
    path.second(8)
    reader = SignalReader(FRESH)
    reader.observe(before)
    half = path.readings()
    late = Readings(
        half.at_s,
        arrivals=before.arrivals,
        ongoing=half.ongoing,
        replicas=half.replicas,
        stages=half.stages,
    )
    assert reader.observe(late).demand is None
    seen = reader.observe(half)
    assert rate_of(seen) == pytest.approx(8.0)


def test_a_circle_of_calls_ends() -> None:
    path = Path(most=[4.0, 1e9], calls=[1.0, 1.0])
    path.second(8)
    readings = path.readings()
    back = {**readings.stages[ROUTER].calls, INGRESS: {"back": Sample(1.0, path.at_s)}}
    stages = {
        **readings.stages,
        ROUTER: Stage(readings.stages[ROUTER].arrivals, readings.stages[ROUTER].queued, back),
    }
    seen = SignalReader(FRESH).observe(
        Readings(
            readings.at_s,
            arrivals=readings.arrivals,
            ongoing=readings.ongoing,
            replicas=readings.replicas,
            stages=stages,
        )
    )
    assert seen.signals["upstream"].value >= 0


@given(
    rates=st.lists(st.integers(0, 30), min_size=10, max_size=60),
    most=st.integers(1, 25),
)
def test_every_request_is_counted_once(rates: list[int], most: int) -> None:
    """In all, the demand is what reached the front door, however long it waited there."""
    path = Path(most=[float(most)], calls=[1.0])
    path.second(0)
    counted = sum(rate_of(path.second(rate)) for rate in rates)
    assert counted == pytest.approx(sum(rates), abs=1e-6)
