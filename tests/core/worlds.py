"""Readings of a small, obedient world, for tests of the planner: what it is told it does."""

from dataclasses import dataclass, field, replace
from typing import Any

from controller.core.periods import Periods
from controller.core.planning import Planner, PlannerSettings
from controller.core.types import (
    Decision,
    DeploymentId,
    Readings,
    Replica,
    Replicas,
    ReplicaState,
    Sample,
    ScaleDeployment,
)

TARGET = DeploymentId("app", "llm")
START_S = 1_000_000.0
WORK_S, SLOTS, BETA = 2.0, 8.0, 0.05


def planner(**changes: Any) -> Planner:
    """A planner of a day-long season with 10 s ticks."""
    settings = PlannerSettings(
        periods=Periods.of_season(86_400, 10),
        tick_s=10,
        scrape_s=5,
        ttft_s=2.0,
        attainment=0.99,
        min_replicas=1,
        max_replicas=16,
        lead_prior_s=60,
    )
    return Planner(TARGET, replace(settings, **changes))


@dataclass
class World:
    """A deployment that serves `rate_rps` at once: Little's law gives what runs. A replica asked
    for is ready after `lead_s`; setpoint and target are one."""

    rate_rps: float = 5.0
    lead_s: float = 60.0
    at_s: float = START_S
    replicas: list[tuple[int, float]] = field(default_factory=lambda: [(0, START_S - 999)] * 1)
    arrived: float = 1000.0
    done: float = 1000.0
    queued: float = 0.0
    serial: int = 100
    room: int | None = None

    @classmethod
    def with_replicas(cls, count: int, **changes: Any) -> "World":
        """So many replicas, all ready."""
        return cls(replicas=[(n, START_S - 999.0) for n in range(count)], **changes)

    @property
    def target(self) -> int:
        return len(self.replicas)

    def readings(self, **changes: Any) -> Readings:
        """What Prometheus and Serve would say now."""
        ready = [n for n, since_s in self.replicas if self.at_s - since_s >= self.lead_s]
        running = self.rate_rps * WORK_S * (1 + BETA) / max(len(ready), 1)
        members = tuple(
            Replica(
                f"r{number}",
                ReplicaState.RUNNING if number in ready else ReplicaState.STARTING,
                since_s,
            )
            for number, since_s in self.replicas
        )
        seen_s = self.at_s - 1
        readings = Readings(
            self.at_s,
            arrivals={"router": Sample(self.arrived, seen_s)},
            completions={"all": Sample(self.done, seen_s)},
            queued={"router": Sample(self.queued, seen_s)},
            ongoing={f"r{n}": Sample(min(running, SLOTS), seen_s) for n in ready},
            replicas=Replicas(self.target, self.target, members, self.room, SLOTS),
        )
        return replace(readings, **changes)

    def step(self, planner: Planner, obey: bool = True, **changes: Any) -> Decision:
        """Ten seconds pass, the planner ticks, and its action is carried out."""
        self.at_s += 10
        self.arrived += 10 * self.rate_rps
        self.done += 10 * self.rate_rps
        decision = planner.tick(self.readings(**changes))
        if obey and isinstance(decision.action, ScaleDeployment):
            self.scale(decision.action.replicas)
        return decision

    def scale(self, count: int) -> None:
        """Set the number of replicas: starting ones go first."""
        while len(self.replicas) > count:
            self.replicas.pop()
        while len(self.replicas) < count:
            self.serial += 1
            self.replicas.append((self.serial, self.at_s))

    def run(self, planner: Planner, ticks: int, **changes: Any) -> list[Decision]:
        """Many steps."""
        return [self.step(planner, **changes) for _ in range(ticks)]
