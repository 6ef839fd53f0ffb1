"""Leadtime's own planner in the loop with a plant: the very object that runs live."""

from collections import deque
from collections.abc import Callable, Sequence
from math import isfinite

from controller.core.choosing import Trial
from controller.core.forecasting import fitting
from controller.core.planning import Planner
from controller.core.rehearsal import Rehearsal
from controller.core.types import Decision, Readings, Replica, Replicas, ReplicaState, Sample
from controller.replay import layout
from controller.replay.plant import Members, View
from controller.replay.trace import TraceError

Rehearse = Callable[[Rehearsal], Sequence[Trial]]
"""Trials of candidates in a past; raises TraceError where that cannot be played again."""
LATENESS_WINDOW_S = 20.0
STATES = {
    layout.STARTING: ReplicaState.STARTING,
    layout.READY: ReplicaState.RUNNING,
    layout.DRAINING: ReplicaState.STOPPING,
}


class Leadtime:
    """A policy for `runner.run`: views in, the planner's wanted number out; fits are inline.

    The plant's clock is moved by `epoch_s`, so that times look like a cluster's. `rehearse`
    tries candidates in a replay of the past when one is due; without it none is.
    """

    def __init__(
        self,
        planner: Planner,
        slots: float,
        epoch_s: float = 0.0,
        rehearse: Rehearse | None = None,
    ) -> None:
        self.planner = planner
        self._slots = slots
        self._epoch_s = epoch_s
        self._rehearse = rehearse
        self._tokens: deque[tuple[float, float, float]] = deque()
        self._fleet: Members = []
        self._known: tuple[Replica, ...] = ()

    def tick(self, view: View) -> int:
        """Replicas wanted now."""
        job = self.planner.fit_due()
        if job is not None:
            self.planner.adopt(fitting.run(job))
        if self._rehearse is not None:
            # After the fit, as live: what a new choice needs is fitted after this tick.
            due = self.planner.rehearsal_due()
            if due is not None:
                self._weigh(due, self._rehearse)
        return self.decide(self.readings(view)).plan.wanted

    def _weigh(self, due: Rehearsal, rehearse: Rehearse) -> None:
        try:
            self.planner.weigh(rehearse(due))
        except TraceError as error:
            self.planner.keep(str(error))

    def decide(self, readings: Readings) -> Decision:
        """The planner's decision on these readings."""
        return self.planner.tick(readings)

    def readings(self, view: View) -> Readings:
        """The view as Prometheus and Serve would have put it."""
        at_s = view.at_s + self._epoch_s
        replicas = Replicas(
            requested=view.target,
            setpoint=view.target,
            members=self._members(view.members),
            max_ongoing_requests=self._slots,
        )
        if not isfinite(view.scraped_at_s):
            return Readings(at_s, replicas=replicas)
        seen_s = view.scraped_at_s + self._epoch_s
        late = self._late(view)
        return Readings(
            at_s,
            arrivals={"": Sample(view.arrivals, seen_s)},
            completions={"": Sample(view.completions, seen_s)},
            prompt_tokens={"": Sample(view.prompt_tokens, seen_s)},
            output_tokens={"": Sample(view.output_tokens, seen_s)},
            queued={"": Sample(view.queued, seen_s)},
            ongoing=self._shared_out(view, seen_s),
            first_tokens_rps=late and {"": Sample(late[0], seen_s)},
            late_ratio=late and {"": Sample(late[1], seen_s)},
            replicas=replicas,
        )

    def _shared_out(self, view: View, seen_s: float) -> dict[str, Sample]:
        """Requests running on each ready replica; the plant keeps them even."""
        ready = [m.id for m in self._known if m.state is ReplicaState.RUNNING]
        share = Sample(view.ongoing / max(len(ready), 1), seen_s)
        return dict.fromkeys(ready, share)

    def _late(self, view: View) -> tuple[float, float] | None:
        """First tokens per second and the late share of them over the last 20 s."""
        self._tokens.append((view.scraped_at_s, view.first_tokens, view.late_first_tokens))
        while self._tokens[0][0] < view.scraped_at_s - LATENESS_WINDOW_S:
            self._tokens.popleft()
        began_s, tokens, late = self._tokens[0]
        passed_s = view.scraped_at_s - began_s
        if passed_s <= 0:
            return None
        came = view.first_tokens - tokens
        return came / passed_s, (view.late_first_tokens - late) / came if came > 0 else 0.0

    def _members(self, fleet: Members) -> tuple[Replica, ...]:
        if fleet != self._fleet:
            self._fleet = fleet
            self._known = tuple(
                Replica(str(serial), STATES[phase], since_s + self._epoch_s)
                for serial, phase, since_s in fleet
            )
        return self._known
