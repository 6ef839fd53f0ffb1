"""What the loop needs from the outside, as protocols; adapters and the replay fulfil them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from controller.core.choosing import Choice, Trial
from controller.core.forecasting.fitting import FitJob, Fitted
from controller.core.overrides import Override
from controller.core.planning import Planner
from controller.core.rehearsal import Rehearsal
from controller.core.types import Action, DeploymentId, Outcome, Readings, Replicas, Tick

Known = Mapping[DeploymentId, Replicas | None]


class Source(Protocol):
    """Where readings come from. What could not be asked is None in the answers, and said in
    `failures` until the next call."""

    @property
    def failures(self) -> tuple[str, ...]:
        """What went wrong in the last round."""
        ...

    async def replicas(self) -> Known:
        """Serve's account of each deployment of ours; None where it gives none."""
        ...

    async def readings(self, now_s: float, replicas: Known) -> Mapping[DeploymentId, Readings]:
        """The readings of each of those deployments."""
        ...


class Planners(Protocol):
    """Makes planners for deployments seen for the first time."""

    async def prepare(self, targets: Iterable[DeploymentId]) -> Mapping[DeploymentId, Planner]:
        """A planner each, with what was learned before and as much history as there is."""
        ...

    async def refill(self, planners: Mapping[DeploymentId, Planner], now_s: float) -> None:
        """Give history to planners that were made while none could be read."""
        ...


class Overridden(Protocol):
    """Whoever knows the overrides in force."""

    def of(self, target: DeploymentId, at_s: float) -> tuple[Override, ...]:
        """Those of a deployment that have not ended at `at_s`."""
        ...


class Actuator(Protocol):
    """Whoever sets replicas."""

    async def apply(self, action: Action) -> Outcome:
        """Carry an action out; an expected failure is an outcome, never an exception."""
        ...


class Lease(Protocol):
    """The right to write, held by one daemon at a time until a deadline. `epoch` counts who had
    it; `inherited` tells whether it was another's, or nobody's, before it was ours."""

    epoch: int
    inherited: bool

    @property
    def lease_s(self) -> float:
        """How long it is given for."""
        ...

    @property
    def problem(self) -> str:
        """What stands in the way of keeping it; empty if nothing does."""
        ...

    def renew(self, healthy: bool = True) -> bool:
        """Take it or keep it if possible, and say whether we have it; who is not healthy leaves
        it to a standby that is."""
        ...

    def left_s(self) -> float:
        """Seconds for which we may write, checked now; 0 if we may not."""
        ...

    def release(self) -> None:
        """Give it up."""
        ...


class Recorder(Protocol):
    """Whoever keeps or shows what happened."""

    def record(self, tick: Tick) -> None:
        """Take one tick."""
        ...


class Fits(Protocol):
    """Whoever runs forecast fits elsewhere."""

    @property
    def idle(self) -> bool:
        """Whether every job has been answered."""
        ...

    def submit(self, target: DeploymentId, job: FitJob) -> None:
        """Have a job run."""
        ...

    def poll(self) -> list[tuple[DeploymentId, Fitted | Exception]]:
        """Results that have come since the last call."""
        ...


class Chooser(Protocol):
    """Whoever replays the past of deployments elsewhere with each candidate for model and price."""

    def submit(self, target: DeploymentId, job: Rehearsal) -> None:
        """Have a past replayed."""
        ...

    def poll(self) -> Sequence[tuple[DeploymentId, Sequence[Trial] | Exception]]:
        """What has come since the last call: each candidate's trial, or why there is none."""
        ...


class Watch(Protocol):
    """Whoever hears of what nobody expected."""

    def failed_tick(self, error: BaseException) -> None:
        """A tick, or a part of it, failed."""
        ...

    def ticked(self, seconds: float) -> None:
        """A tick took this long."""
        ...

    def fitted(self, target: DeploymentId, result: str, detail: str = "") -> None:
        """A fit came back."""
        ...

    def chose(self, target: DeploymentId, choice: Choice) -> None:
        """A replay of the past came back."""
        ...
