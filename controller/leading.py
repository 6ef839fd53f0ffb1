"""One of several daemons leads: what it may do, and what changes when it becomes so or ceases."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Protocol

from controller.core.planning import Planner
from controller.core.ports import Actuator, Lease, Planners, Recorder
from controller.core.types import Action, DeploymentId, Hold, Outcome, Tick

RENEWALS_A_LEASE = 5
HUNG_AFTER_TICKS = 3.0
HUNG_AFTER_S = 30.0

Learned = Callable[[DeploymentId], Mapping[str, Any] | None]


class Telling(Protocol):
    """Whoever hears of leadership."""

    def leads(self, leader: bool) -> None:
        """We lead, or not."""
        ...

    def failed_source(self, source: str, error: str) -> None:
        """Something could not be used."""
        ...


class Alone:
    """The lease of a daemon that writes nothing: nobody else minds."""

    lease_s = inf
    problem = ""
    epoch = 0
    inherited = False

    def renew(self, healthy: bool = True) -> bool:
        """Always."""
        return True

    def left_s(self) -> float:
        """For ever."""
        return inf

    def release(self) -> None:
        """Nothing to give up."""


class Leadership:
    """Keeps the lease while the ticks go on, and hands planners over at tick boundaries.

    `reachable` tells whether the last tick reached Serve: a leader cut off from it leaves the lead
    to a standby that is not. A standby ticks as well, so that it knows the load when it takes over.
    `began` is called whenever it does.
    """

    def __init__(
        self,
        lease: Lease,
        learned: Learned,
        reachable: Callable[[], bool],
        tell: Telling,
        tick_s: float,
        clock: Callable[[], float],
        began: Callable[[], None] = lambda: None,
    ) -> None:
        self.lease = lease
        self._began = began
        self._learned = learned
        self._reachable = reachable
        self._tell = tell
        self._patience_s = max(HUNG_AFTER_TICKS * tick_s, HUNG_AFTER_S)
        self._clock = clock
        self._ticked_s: float | None = None
        self._reached = False
        self._led = False
        self._problem = ""

    @property
    def leads(self) -> bool:
        """Whether we may act now."""
        return self.lease.left_s() > 0

    def begin(self) -> None:
        """Take the lease if it is free; call it before planners are made from the journal."""
        self._led = self._renew()
        if self._led:
            self._began()

    async def keep(self, stop: asyncio.Event) -> None:
        """Renew until `stop`, on the loop's own thread: a loop that hangs ceases to lead."""
        while not stop.is_set():
            self._renew()
            with contextlib.suppress(TimeoutError):
                pause_s = min(self.lease.lease_s / RENEWALS_A_LEASE, 60.0)
                await asyncio.wait_for(stop.wait(), pause_s)

    def at_tick(self, planners: Mapping[DeploymentId, Planner]) -> bool:
        """Whether we lead in the tick that begins. Who begins to lead goes on where the one before
        stopped; what Serve shows is never held against a standby."""
        self._ticked_s, self._reached = self._clock(), self._reachable()
        leads = self.leads
        if leads and not self._led:
            self._began()
        for target, planner in planners.items():
            if leads and not self._led:
                self._continue(target, planner)
            if not (leads and self._led):
                planner.forget_writes()
        self._led = leads
        return leads

    def _continue(self, target: DeploymentId, planner: Planner) -> None:
        try:
            learned = self._learned(target)
            if learned is not None:
                planner.restore(learned)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            self._tell.failed_source("journal", f"learned state of {target}: {error!r}")

    def _renew(self) -> bool:
        leads = self.lease.renew(self._healthy())
        self._tell.leads(leads)
        if self.lease.problem != self._problem:
            self._problem = self.lease.problem
            if self._problem:
                self._tell.failed_source("journal", self._problem)
        return leads

    def _healthy(self) -> bool:
        ticked_s = self._ticked_s
        return (
            ticked_s is not None and self._clock() - ticked_s < self._patience_s and self._reached
        )


class LedPlanners:
    """Planners that learn at each tick whether they lead."""

    def __init__(self, inner: Planners, leadership: Leadership) -> None:
        self._inner = inner
        self._leadership = leadership

    async def prepare(self, targets: Iterable[DeploymentId]) -> Mapping[DeploymentId, Planner]:
        """A planner each."""
        return await self._inner.prepare(targets)

    async def refill(self, planners: Mapping[DeploymentId, Planner], now_s: float) -> None:
        """What each tick begins with."""
        self._leadership.at_tick(planners)
        await self._inner.refill(planners, now_s)


class FencedActuator:
    """An actuator for who leads; a standby says what it would have done."""

    def __init__(self, inner: Actuator, lease: Lease) -> None:
        self._inner = inner
        self._lease = lease

    async def apply(self, action: Action) -> Outcome:
        """Carry an action out before the lease ends, or not at all."""
        left_s = self._lease.left_s()
        if isinstance(action, Hold) or left_s == inf:
            return await self._inner.apply(action)
        if left_s <= 0:
            return Outcome(action, False, f"standby: would set {action.replicas}")
        try:
            async with asyncio.timeout(left_s):
                return await self._inner.apply(action)
        except TimeoutError:
            return Outcome(action, False, "the lease ended before Serve answered")


class LeadersRecorder:
    """A recorder that takes the ticks of the one that leads."""

    def __init__(self, inner: Recorder, lease: Lease) -> None:
        self._inner = inner
        self._lease = lease

    def record(self, tick: Tick) -> None:
        """Take one tick if we lead."""
        if self._lease.left_s() > 0:
            self._inner.record(tick)
