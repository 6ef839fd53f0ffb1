"""A budget of GPUs shared by priority. Case ids are those of the field cases that the project
collects."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.budget import Budget, Claim, shares
from controller.core.types import DeploymentId, Reason
from tests.core.worlds import World, planner

HIGH, LOW = DeploymentId("a", "high"), DeploymentId("b", "low")
BUDGET = 8.0


@dataclass
class Fleet:
    """What each deployment asked for and what still drains; `drain_ticks` until GPUs are free."""

    requested: dict[DeploymentId, int]
    wanted: dict[DeploymentId, int]
    drain_ticks: int = 3
    draining: list[tuple[int, DeploymentId]] = field(default_factory=list)
    stubborn: bool = False
    tick: int = 0

    def step(self) -> float:
        """One round of sharing; returns the GPUs held afterwards."""
        self.tick += 1
        self.draining = [(until, t) for until, t in self.draining if until > self.tick]
        claims = {
            target: Claim(
                self.wanted[target],
                count,
                sum(t == target for _, t in self.draining),
                minimum=1 if target == LOW else 0,
                gpus=1.0,
                priority=1 if target == HIGH else 0,
            )
            for target, count in self.requested.items()
        }
        for target, most in shares(claims, BUDGET).items():
            goal = min(self.wanted[target], most)
            if goal < self.requested[target] and self.stubborn:
                continue
            for _ in range(self.requested[target] - goal):
                self.draining.append((self.tick + self.drain_ticks, target))
            self.requested[target] = goal
        return sum(self.requested.values()) + len(self.draining)


def test_high_priority_gets_its_share_within_the_drain_time() -> None:
    """A9: 8 GPUs are held by low priority, high needs 4: it has them when they are drained, and
    no more than 8 are ever held."""
    fleet = Fleet({LOW: 8, HIGH: 0}, {LOW: 8, HIGH: 4})
    held = [fleet.step() for _ in range(5)]
    assert max(held) <= BUDGET
    assert fleet.requested == {LOW: 4, HIGH: 4}


def test_what_is_not_freed_is_not_given_on() -> None:
    """A10: the other's shrink fails: free first, then grow."""
    fleet = Fleet({LOW: 8, HIGH: 0}, {LOW: 8, HIGH: 4}, stubborn=True)
    assert max(fleet.step() for _ in range(10)) <= BUDGET
    assert fleet.requested[HIGH] == 0
    fleet.stubborn = False
    assert max(fleet.step() for _ in range(10)) <= BUDGET
    assert fleet.requested[HIGH] == 4


def test_minimums_come_before_priority() -> None:
    claims = {HIGH: Claim(8, 0, 0, 0, 1.0, 5), LOW: Claim(8, 0, 0, 2, 1.0, 0)}
    assert shares(claims, BUDGET) == {HIGH: 6, LOW: 2}


def test_a_replica_of_many_gpus_gets_whole_ones() -> None:
    claims = {HIGH: Claim(3, 0, 0, 0, 3.0, 1), LOW: Claim(9, 0, 0, 0, 0.5, 0)}
    assert shares(claims, BUDGET) == {HIGH: 2, LOW: 4}


claim = st.builds(
    Claim,
    wanted=st.integers(0, 20),
    requested=st.integers(0, 8),
    draining=st.integers(0, 3),
    minimum=st.integers(0, 2),
    gpus=st.sampled_from([0.0, 0.25, 1.0, 2.0, 4.0]),
    priority=st.integers(-2, 2),
)


@given(st.lists(claim, min_size=1, max_size=6), st.floats(0.5, 40))
def test_no_growth_ever_exceeds_the_budget(claims: list[Claim], budget_gpus: float) -> None:
    named = {DeploymentId("a", str(number)): claim for number, claim in enumerate(claims)}
    granted = shares(named, budget_gpus)
    held = sum((c.requested + c.draining) * c.gpus for c in claims)
    grown = sum(
        max(0, granted[target] - claim.requested) * claim.gpus for target, claim in named.items()
    )
    assert grown <= max(0.0, budget_gpus - held) + 1e-3
    assert (
        sum(min(granted[t], c.requested) * c.gpus for t, c in named.items()) <= budget_gpus + 1e-3
    )


def test_a_planner_keeps_to_its_share_and_still_says_what_it_wants() -> None:
    live, made = World.with_replicas(3, rate_rps=5), planner()
    live.run(made, 60)
    made.grant(3)
    live.rate_rps = 20
    limited = live.run(made, 30)[-1]
    assert limited.plan.wanted == 3
    assert limited.plan.reason is Reason.BUDGET
    assert limited.plan.limited_by == "capacity"
    assert made.claim is not None
    assert made.claim[0] > 5
    made.grant(None)
    assert live.run(made, 5)[-1].plan.wanted > 5


def test_the_budget_reads_what_serve_shows() -> None:
    live = World.with_replicas(6)
    members = live.readings().replicas
    assert members is not None
    budget = Budget(BUDGET, {HIGH: 1})
    seen = {LOW: members, HIGH: members}
    assert budget.allot({LOW: (6, 1), HIGH: (6, 1)}, seen) == {LOW: 6, HIGH: 6}


@pytest.mark.parametrize("gpus", [1.0, 2.0])
def test_what_is_not_planned_yet_counts_as_requested(gpus: float) -> None:
    live = World.with_replicas(3)
    members = live.readings().replicas
    assert members is not None
    held = replace(members, gpus=gpus)
    assert Budget(3 * gpus, {}).allot({}, {LOW: held}) == {LOW: 3}
