"""Observe, plan, act, record, then wait: the only reader of the clock."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from controller.core.budget import Budget
from controller.core.ports import Actuator, Chooser, Fits, Known, Planners, Recorder, Source, Watch
from controller.core.types import DeploymentId, Tick

if TYPE_CHECKING:
    from controller.core.planning import Planner

STOP_PATIENCE_S = 3.0
FIRST_FITS_PATIENCE_S = 30.0


def wall_clock_s() -> float:
    """Seconds since the epoch."""
    return time.time()  # noqa: TID251


class Loop:
    """Runs ticks that neither overlap nor drift, until told to stop."""

    def __init__(
        self,
        source: Source,
        planners: Planners,
        actuator: Actuator,
        recorders: Sequence[Recorder],
        fits: Fits,
        watch: Watch,
        tick_s: float,
        clock: Callable[[], float] = wall_clock_s,
        budget: Budget | None = None,
        chooser: Chooser | None = None,
    ) -> None:
        self.source = source
        self.actuator = actuator
        self.recorders = recorders
        self.fits = fits
        self.watch = watch
        self.tick_s = tick_s
        self.now = clock
        self.budget = budget
        self.chooser = chooser
        self.planners: dict[DeploymentId, Planner] = {}
        self.makes = planners

    async def run(self, stop: asyncio.Event) -> None:
        """Tick until `stop` is set; a tick under way then gets 3 s to finish."""
        ticker = asyncio.get_running_loop()
        due = ticker.time()
        while not stop.is_set():
            await self._guarded_tick(stop)
            late = max(0.0, ticker.time() - due)
            due += self.tick_s * (1 + late // self.tick_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), max(0.0, due - ticker.time()))

    async def tick(self) -> Tick:
        """One round over every deployment."""
        replicas = await self.source.replicas()
        await self._meet(replicas)
        self._take_trials()
        self._take_fits()
        now_s = self.now()
        await self.makes.refill(self.planners, now_s)
        readings = await self.source.readings(now_s, replicas)
        self._share(replicas)
        decisions = [self.planners[target].tick(seen) for target, seen in readings.items()]
        outcomes = [await self.actuator.apply(decision.action) for decision in decisions]
        learned = {
            decision.target: self.planners[decision.target].state() for decision in decisions
        }
        done = zip(decisions, outcomes, strict=True)
        tick = Tick(now_s, tuple(done), learned, self.source.failures)
        self._record(tick)
        self._ask_for_fits()
        self._ask_for_trials()
        return tick

    async def first_fits(self) -> None:
        """Meet the deployments and wait for their first forecast models, so that the first
        decision has one; at most 30 s."""
        await self._meet(await self.source.replicas())
        self._ask_for_fits()
        deadline_s = self.now() + FIRST_FITS_PATIENCE_S
        while not self.fits.idle and self.now() < deadline_s:
            self._take_fits()
            await asyncio.sleep(0.02)
        self._take_fits()

    async def _guarded_tick(self, stop: asyncio.Event) -> None:
        """A tick whose unexpected failure is noted; the next tick is the retry."""
        began_s = time.monotonic()
        work = asyncio.create_task(self.tick())
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        try:
            await asyncio.wait_for(work, None if not stop.is_set() else STOP_PATIENCE_S)
        except Exception as error:
            self.watch.failed_tick(error)
        self.watch.ticked(time.monotonic() - began_s)

    async def _meet(self, replicas: Known) -> None:
        new = [target for target in replicas if target not in self.planners]
        if new:
            self.planners.update(await self.makes.prepare(new))

    def _share(self, replicas: Known) -> None:
        """Tell each planner its share of the budget of GPUs."""
        if self.budget is None:
            return
        claims = {target: planner.claim for target, planner in self.planners.items()}
        wanted = {target: claim for target, claim in claims.items() if claim is not None}
        known = {target: seen for target, seen in replicas.items() if seen is not None}
        for target, most in self.budget.allot(wanted, known).items():
            self.planners[target].grant(most)

    def _record(self, tick: Tick) -> None:
        for recorder in self.recorders:
            try:
                recorder.record(tick)
            except Exception as error:
                self.watch.failed_tick(error)

    def _ask_for_fits(self) -> None:
        for target, planner in self.planners.items():
            job = planner.fit_due()
            if job is not None:
                self.fits.submit(target, job)

    def _take_fits(self) -> None:
        for target, result in self.fits.poll():
            if isinstance(result, Exception):
                self.watch.fitted(target, "failed", repr(result))
            elif target in self.planners:
                self.planners[target].adopt(result)
                models = ", ".join(model.name for model in result.models)
                self.watch.fitted(target, "adopted", models)

    def _ask_for_trials(self) -> None:
        """Once a season each, have the past replayed to choose model and price."""
        if self.chooser is None:
            return
        for target, planner in self.planners.items():
            due = planner.rehearsal_due()
            if due is not None:
                self.chooser.submit(target, due)

    def _take_trials(self) -> None:
        for target, result in self.chooser.poll() if self.chooser is not None else ():
            planner = self.planners.get(target)
            if planner is None:
                continue
            if isinstance(result, Exception):
                self.watch.chose(target, planner.keep(str(result)))
            else:
                self.watch.chose(target, planner.weigh(result))
