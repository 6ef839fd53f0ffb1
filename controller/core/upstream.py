"""Demand that waits in front of an outer deployment, where the one behind it cannot see it.

A deployment's own arrivals are what its callers let through. When a caller (the ingress, a
router) is full, requests queue in front of it and the demand behind it looks flat. Here demand
is counted where it reaches the application: to the arrivals of an interval the growth of every
outer queue is added, times the calls that a request of that stage makes here. While a stage
lets x requests a second through and its queue grows by g, x + g arrive; with r calls a request
the deployment behind sees r x and its demand is r (x + g). When the queue drains, what was
counted before is taken off again. Worked: 4 of 8 requests a second let through, one call each:
4 + 1 x 4 = 8 (`test_a_full_ingress_hides_no_demand`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controller.core.counters import CounterTracker, is_count
from controller.core.types import Demand, DeploymentId, Sample, Signal, Stage, Trust

PRIOR_REQUESTS = 1.0
"""A stage is taken to make one call a request, as if that many had been seen to."""
MEMORY_REQUESTS = 500.0
"""Requests through a stage after which what was learned of its calls counts half."""

TOLERANCE = 1.25

Stages = Mapping[DeploymentId, Stage]


@dataclass
class _Passed:
    """What went through one stage: requests let through, and calls made, by callee."""

    arrivals: CounterTracker
    calls: dict[DeploymentId, CounterTracker] = field(default_factory=dict)
    through: float = 0.0
    made: dict[DeploymentId, float] = field(default_factory=dict)

    def calls_a_request(self, callee: DeploymentId) -> float:
        made = self.made.get(callee, 0.0) + PRIOR_REQUESTS
        return made / (self.through + PRIOR_REQUESTS)

    def likely_through(self, made: Mapping[DeploymentId, float]) -> float:
        """How many requests the calls of an interval can stand for, with some to spare."""
        shown = (calls / self.calls_a_request(callee) for callee, calls in made.items())
        return TOLERANCE * max(shown, default=0.0) + 1.0

    def learn(self, through: float, made: Mapping[DeploymentId, float]) -> None:
        keep = 0.5 ** (through / MEMORY_REQUESTS)
        self.through = self.through * keep + through
        for callee in self.made.keys() | made.keys():
            self.made[callee] = self.made.get(callee, 0.0) * keep + made.get(callee, 0.0)


class Upstream:
    """Follows the stages in front of one deployment, tick by tick.

    A sample older than `stale_s` is not used. In an interval a queue grows by no more than what
    arrived, and shrinks by no more than what the stage's calls show was let through: Ray's gauge
    of waiting requests is now and then wrong for one scrape (33, 1, 44), and requests whose
    client or router is gone were demand all the same. A queue whose series falls silent keeps
    its last length for `patience_s` and is then forgotten.
    """

    def __init__(self, stale_s: float, patience_s: float) -> None:
        self._stale_s = stale_s
        self._patience_s = patience_s
        self._passed: dict[DeploymentId, _Passed] = {}
        self._queues: dict[DeploymentId, dict[str, Sample]] = {}
        self._pending = 0.0

    def added(self, demand: Demand | None, stages: Stages, now_s: float) -> Demand | None:
        """The demand with what came to be held back since the last one; never below zero, and
        not complete while a queue that held requests is silent."""
        growth = {stage: self._follow(stage, seen, now_s) for stage, seen in stages.items()}
        self._pending += sum(
            self._calls_a_request(stage, stages) * grown for stage, grown in growth.items() if grown
        )
        if demand is None:
            return None
        arrivals, self._pending = max(demand.arrivals + self._pending, 0.0), 0.0
        complete = demand.complete and not self._silent(stages, now_s)
        return replace(demand, arrivals=arrivals, complete=complete)

    def signals(self, stages: Stages, now_s: float) -> dict[str, Signal]:
        """Calls at this deployment that are held back now, as signal `upstream`; none before a
        queue was seen."""
        known = [(stage, s) for stage in stages for s in self._queues.get(stage, {}).values()]
        if not known:
            return {}
        total = sum(self._calls_a_request(stage, stages) * s.value for stage, s in known)
        age_s = max(0.0, now_s - max(sample.at_s for _, sample in known))
        if age_s > self._stale_s:
            return {"upstream": Signal(Trust.STALE, age_s)}
        return {"upstream": Signal(Trust.PRESENT if total else Trust.ZERO, age_s, total)}

    def _silent(self, stages: Stages, now_s: float) -> bool:
        held = (s for stage in stages for s in self._queues.get(stage, {}).values() if s.value > 0)
        return any(now_s - sample.at_s > self._stale_s for sample in held)

    def _follow(self, stage: DeploymentId, seen: Stage, now_s: float) -> float:
        """By how much the queue in front of a stage grew, as far as its counters bear it out."""
        passed = self._passed.setdefault(stage, _Passed(self._tracker()))
        arrived = passed.arrivals.advance(seen.arrivals)
        made = {}
        for callee, samples in seen.calls.items():
            calls = passed.calls.setdefault(callee, self._tracker()).advance(samples)
            made[callee] = calls.events if calls is not None else 0.0
        grown = self._growth(stage, seen, now_s)
        if arrived is None:
            return 0.0
        borne_out = min(max(grown, -passed.likely_through(made)), arrived.events)
        if borne_out == grown:
            passed.learn(arrived.events - grown, made)
        return borne_out

    def _growth(self, stage: DeploymentId, seen: Stage, now_s: float) -> float:
        """By how much the gauges of a stage's queue grew; 0 at first sight of the stage."""
        first = stage not in self._queues
        known = self._queues.setdefault(stage, {})
        grown = 0.0
        for key, sample in seen.queued.items():
            if not is_count(sample.value) or now_s - sample.at_s > self._stale_s:
                continue
            before = known.get(key, sample if first else Sample(0.0, sample.at_s))
            grown += sample.value - before.value
            known[key] = sample
        for key in [k for k, last in known.items() if now_s - last.at_s > self._patience_s]:
            del known[key]
        return grown

    def _tracker(self) -> CounterTracker:
        return CounterTracker(self._stale_s, self._patience_s)

    def _calls_a_request(
        self, stage: DeploymentId, stages: Stages, above: tuple[DeploymentId, ...] = ()
    ) -> float:
        """Calls here that come of one request of a stage, straight or through other stages; a
        stage that calls back one above it counts once."""
        passed = self._passed.get(stage)
        if passed is None or stage in above:
            return 0.0
        return sum(
            passed.calls_a_request(callee)
            * (self._calls_a_request(callee, stages, (*above, stage)) if callee in stages else 1.0)
            for callee in stages[stage].calls
        )
