"""The planner in a random world: Hypothesis plays load, faults, other writers, redeploys, lost
replicas, hanging starts, restarts and clock gaps against it, in any order."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from controller.core.signals import blindness, doubtful
from controller.core.types import Decision, Hold, Reason, Replicas, Sample, ScaleDeployment
from tests.core.worlds import SLOTS, World, planner

MINIMUM, MAXIMUM = 1, 12
VALUES = st.sampled_from([0.0, -1.0, 1e300, float("nan"), float("inf"), 42.0])
GAUGES = ("queued", "ongoing", "waiting", "kv_cache_ratio", "gpu_ratio", "late_ratio")
COUNTERS = ("arrivals", "completions", "errors", "output_tokens")
BLIND = {Reason.BLIND, Reason.STALE, Reason.NON_FINITE, Reason.SERVE_UNREACHABLE}


class RandomWorld(RuleBasedStateMachine):
    """What the planner sees and what it must never do, whatever happens."""

    @initialize(rate=st.floats(0, 20), count=st.integers(1, 6))
    def begin(self, rate: float, count: int) -> None:
        self.live = World.with_replicas(count, rate_rps=rate)
        self.made = self._planner()
        self.decision: Decision | None = None
        self.before: int | None = None
        self.deployed_s = 0.0

    def _planner(self) -> Any:
        return planner(min_replicas=MINIMUM, max_replicas=MAXIMUM, start_timeout_s=600.0)

    def _tick(self, **changes: Any) -> None:
        self.before = self.made.state()["wanted"]
        changes.setdefault("replicas", self._now())
        self.decision = self.live.step(self.made, **changes)

    def _now(self) -> Replicas:
        """Serve's account at the coming tick."""
        later = replace(self.live, at_s=self.live.at_s + 10).readings().replicas
        assert later is not None
        return replace(later, deployed_s=self.deployed_s)

    @rule(ticks=st.integers(1, 12), rate=st.floats(0, 30))
    def load(self, ticks: int, rate: float) -> None:
        self.live.rate_rps = rate
        for _ in range(ticks):
            self._tick()

    @rule(queued=st.floats(0, 2000), ticks=st.integers(1, 4))
    def backlog(self, queued: float, ticks: int) -> None:
        self.live.queued = queued
        for _ in range(ticks):
            self._tick()
        self.live.queued = 0.0

    @rule(
        names=st.sets(st.sampled_from((*GAUGES, *COUNTERS)), min_size=1, max_size=5),
        value=st.one_of(st.none(), VALUES),
        age_s=st.sampled_from([1.0, 239.0, -3600.0]),
        ticks=st.integers(1, 8),
    )
    def lie(self, names: set[str], value: float | None, age_s: float, ticks: int) -> None:
        for _ in range(ticks):
            at_s = self.live.at_s + 10 - age_s
            said = None if value is None else {"r0": Sample(value, at_s)}
            self._tick(**dict.fromkeys(names, said))

    @rule(ticks=st.integers(1, 30))
    def serve_is_away(self, ticks: int) -> None:
        for _ in range(ticks):
            self._tick(replicas=None)

    @rule(ticks=st.integers(1, 30))
    def prometheus_is_away(self, ticks: int) -> None:
        for _ in range(ticks):
            self._tick(arrivals=None, completions=None, queued=None, ongoing=None)

    @rule(count=st.integers(0, 14))
    def another_writes(self, count: int) -> None:
        self.live.scale(count)
        self._tick()

    @rule()
    def redeployed(self) -> None:
        self.live.scale(1)
        self.deployed_s = self.live.at_s
        self._tick()

    @rule(count=st.integers(1, 6))
    def replicas_die(self, count: int) -> None:
        target = self.live.target
        self.live.scale(max(0, target - count))
        self.live.scale(target)
        self._tick()

    @rule(lead_s=st.sampled_from([5.0, 60.0, 400.0, 1e6]))
    def starts_take(self, lead_s: float) -> None:
        self.live.replicas = [
            (number, -1e7 if self.live.at_s - since_s >= self.live.lead_s else since_s)
            for number, since_s in self.live.replicas
        ]
        self.live.lead_s = lead_s
        self._tick()

    @rule(room=st.one_of(st.none(), st.integers(0, 3)))
    def room_is(self, room: int | None) -> None:
        self.live.room = room

    @rule(most=st.one_of(st.none(), st.integers(0, 10)))
    def budget_is(self, most: int | None) -> None:
        self.made.grant(most)

    @rule()
    def restarts(self) -> None:
        state = json.loads(json.dumps(self.made.state()))
        self.made = self._planner()
        self.made.restore(state)
        assert self.made.state()["wanted"] == state["wanted"]
        self._tick()

    @rule(gap_s=st.sampled_from([60.0, 3600.0, 86_400.0]))
    def clock_jumps(self, gap_s: float) -> None:
        self.live.at_s += gap_s
        self._tick()

    @invariant()
    def keeps_its_promises(self) -> None:
        decision = getattr(self, "decision", None)
        if decision is None:
            return
        plan, seen = decision.plan, decision.observation
        assert MINIMUM <= plan.wanted <= MAXIMUM
        assert json.dumps(self.made.state(), allow_nan=False)
        limited = {step.guard for step in plan.trail}
        scarce = {"within_gpu_budget", "within_free_resources", "within_reach", "within_bounds"}
        unsure = blindness(seen) is not None or doubtful(seen)
        if unsure and self.before is not None and not limited & scarce:
            assert plan.wanted >= min(self.before, MAXIMUM), plan
        if seen.replicas is None or plan.reason is Reason.CONFLICT:
            assert isinstance(decision.action, Hold)
        if isinstance(decision.action, ScaleDeployment):
            assert decision.action.replicas == plan.wanted
        if plan.reason in BLIND:
            assert blindness(seen) is plan.reason
        if seen.load is not None:
            assert 0 <= seen.load.queued < 1e15
            assert 0 <= seen.load.ongoing <= SLOTS * 1e15


RandomWorld.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestRandomWorld = RandomWorld.TestCase
