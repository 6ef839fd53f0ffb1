"""One policy through one scenario, and what came of it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache as once
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.core.leadtime import LeadTime
from controller.core.periods import Periods
from controller.core.planning import Planner, PlannerSettings
from controller.core.types import Decision, DeploymentId, Readings, Reason
from controller.replay.cache import Arrays, Cache, code_hash, content_hash
from controller.replay.clairvoyant import HEADROOMS, arriving_work, plan, play_plan
from controller.replay.ours import Leadtime, Rehearse
from controller.replay.rehearsal import trials
from controller.replay.runner import run
from controller.replay.scenario import Scenario
from controller.replay.score import Score
from controller.replay.trace import DAY_S, Floats

if TYPE_CHECKING:
    from controller.replay.rivals.registry import Params, Rival

OURS = "leadtime"
CLAIRVOYANT = "clairvoyant"
LEAD_PRIOR_S = 120.0
STARTS_KNOWN = 10
SEASON_S = DAY_S
EPOCH_S = 19_700 * DAY_S
HOUR_S = 3600.0
LONGEST_PAST_S = 7 * DAY_S
SEASONAL_PREDICTOR = 3
REPORT_STEP_S = 60.0
REASONS = tuple(Reason)

DECISION = np.dtype(
    [
        ("at_s", "f8"),
        ("wanted", "i4"),
        ("ready", "i4"),
        ("reason", "i4"),  # place in REASONS
        ("demand_rps", "f8"),
        ("lead_s", "f8"),
        ("capacity_rps", "f8"),
        ("horizon_s", "f8"),
        ("q50_rps", "f8"),
        ("q90_rps", "f8"),
        ("q99_rps", "f8"),
    ]
)


@dataclass(frozen=True, slots=True)
class Run:
    """What a policy with these parameters came to. `unplanned_s` is the time in minutes of which
    more requests were late than the SLO allows."""

    policy: str
    params: Mapping[str, float]
    requests: int
    violations: int
    prefill_violations: int
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    gpu_hours: float
    changes: int
    starts: int
    unplanned_s: float

    @property
    def violation_ratio(self) -> float:
        return self.violations / self.requests if self.requests else 0.0

    @property
    def attainment(self) -> float:
        return 1 - self.violation_ratio


class Played(NamedTuple):
    """A run with its minutes (layout.REPORT), violations (layout.VIOLATION) and, for our own
    planner, decisions (DECISION); empty where they were not asked for."""

    run: Run
    arrays: Arrays


def past_s(params: Mapping[str, float]) -> float:
    """How much of the past a rival plays before it is scored, by what its style remembers: the
    `days` it averages, a week of a daily season, a day for a predictor that looks at yesterday and
    six hours for any other; a week at most."""
    if params.get("days", 0.0) > 0:
        return min(params["days"] * DAY_S + HOUR_S, LONGEST_PAST_S)
    if params.get("season_s", 0.0) >= DAY_S:
        return LONGEST_PAST_S
    if params.get("predictor") == SEASONAL_PREDICTOR:
        return DAY_S + 6 * HOUR_S
    return 6 * HOUR_S if "predictor" in params else 0.0


def play_rival(
    scenario: Scenario,
    rival: "Rival",
    params: "Params",
    cache: Cache,
    *,
    held: Callable[[], Scenario] | None = None,
    detailed: bool = False,
) -> Played:
    """A rival at one setting; `held` gives the scenario with its requests in memory."""
    key = content_hash("rival", rival.name, params, detailed, scenario, code_hash(False))

    def make() -> tuple[dict[str, Any], Arrays]:
        loaded = scenario if held is None else held()
        score = rival.play(loaded.plant(past_s(params)), params)
        return _values(scenario, rival.name, params, score), _arrays(score) if detailed else {}

    return _played(*cache.kept(key, make))


def play_clairvoyant(
    scenario: Scenario,
    headroom: float,
    cache: Cache,
    work: Callable[[], Floats],
    *,
    detailed: bool = False,
) -> Played:
    """The policy that sees the future, `work_ahead` of the scenario, with so much head-room."""
    key = content_hash(CLAIRVOYANT, headroom, detailed, scenario, code_hash(False))

    def make() -> tuple[dict[str, Any], Arrays]:
        targets = plan(work(), scenario.settings, headroom=headroom, lead_s=scenario.lead_s)
        score = play_plan(scenario.plant(), targets)
        values = _values(scenario, CLAIRVOYANT, {"headroom": headroom}, score)
        return values, _arrays(score) if detailed else {}

    return _played(*cache.kept(key, make))


def play_ours(scenario: Scenario, cache: Cache, *, choosing: bool = False) -> Played:
    """Our planner as it ships, told the SLO and the cap and nothing else; with `choosing` it has
    its past replayed once a season, as live, and goes by the model and price that this chooses."""
    key = content_hash(OURS, choosing, scenario, code_hash(True))
    params = {"choosing": 1.0} if choosing else {}

    def make() -> tuple[dict[str, Any], Arrays]:
        rehearse = trials if choosing else None
        policy = WatchedLeadtime(ready_planner(scenario), scenario.settings.slots, rehearse)
        score = run(scenario.plant(), policy, tick_s=scenario.tick_s)
        arrays = {**_arrays(score), "decisions": policy.decisions()}
        return _values(scenario, OURS, params, score), arrays

    return _played(*cache.kept(key, make))


def work_ahead(scenario: Scenario) -> Floats:
    """The work that will arrive, by step."""
    return arriving_work(scenario.played(), scenario.settings)


def best_clairvoyant(scenario: Scenario, cache: Cache) -> Run | None:
    """The cheapest head-room of HEADROOMS that meets the SLO; None if none does.

    Found by bisection, as more head-room never asks for fewer replicas.
    """
    work = once(lambda: work_ahead(scenario))
    low, high, best = 0, len(HEADROOMS), None
    while low < high:
        middle = (low + high) // 2
        tried = play_clairvoyant(scenario, HEADROOMS[middle], cache, work).run
        if tried.violation_ratio <= scenario.budget:
            high, best = middle, tried
        else:
            low = middle + 1
    return best


class WatchedLeadtime(Leadtime):
    """Our policy, its decisions written down."""

    def __init__(
        self,
        planner: Planner,
        slots: float,
        rehearse: Rehearse | None = None,
    ) -> None:
        super().__init__(planner, slots, EPOCH_S, rehearse)
        self._rows: list[tuple[float, ...]] = []

    def decide(self, readings: Readings) -> Decision:
        decision = super().decide(readings)
        self._rows.append(_row(decision))
        return decision

    def decisions(self) -> NDArray[Any]:
        """One DECISION a tick, on the trace's clock."""
        return np.array(self._rows, DECISION)


def ready_planner(scenario: Scenario) -> Planner:
    """A planner as after a restart of the daemon: the shipped defaults, the SLO and the cap; the
    arrivals of the last 14 days as Prometheus kept them, and the last start times as the
    journal kept them."""
    settings = scenario.settings
    planner = Planner(
        DeploymentId("replay", "llm"),
        PlannerSettings(
            periods=Periods.of_season(SEASON_S, scenario.tick_s),
            tick_s=scenario.tick_s,
            scrape_s=settings.metrics.scrape_s,
            ttft_s=settings.slo_ttft_s,
            attainment=scenario.attainment,
            min_replicas=1,
            max_replicas=settings.cap,
            lead_prior_s=LEAD_PRIOR_S,
        ),
    )
    rates, start_s = scenario.past_rates(planner.settings.periods.bin_s)
    if len(rates):
        earlier = np.random.default_rng([scenario.seed, 1])
        starts_s = settings.cold_start.draw(earlier, STARTS_KNOWN).tolist()
        planner.lead = LeadTime(LEAD_PRIOR_S, starts_s)
        planner.forecaster.backfill(rates, start_s + EPOCH_S)
    return planner


def _row(decision: Decision) -> tuple[float, ...]:
    observation, ahead = decision.observation, decision.ahead
    demand, replicas = observation.demand, observation.replicas
    quantiles = [math.nan] * 3 if ahead is None else [ahead.at(q) for q in (0.5, 0.9, 0.99)]
    capacity_rps = decision.learned.capacity_rps
    return (
        observation.at_s - EPOCH_S,
        decision.plan.wanted,
        0 if replicas is None else replicas.ready,
        REASONS.index(decision.plan.reason),
        math.nan if demand is None else demand.rate_rps,
        decision.learned.lead_s,
        math.nan if capacity_rps is None else capacity_rps,
        math.nan if ahead is None else ahead.horizon_s,
        *quantiles,
    )


def _values(
    scenario: Scenario, policy: str, params: Mapping[str, float], score: Score
) -> dict[str, Any]:
    late = score.reports["violations"] > scenario.budget * score.reports["arrivals"]
    run = Run(
        policy=policy,
        params=dict(params),
        requests=score.requests,
        violations=score.violations,
        prefill_violations=score.prefill_violations,
        ttft_p50_s=score.ttft_quantile_s(0.5),
        ttft_p95_s=score.ttft_quantile_s(0.95),
        ttft_p99_s=score.ttft_quantile_s(0.99),
        gpu_hours=score.gpu_hours,
        changes=score.changes,
        starts=score.starts,
        unplanned_s=float(late.sum()) * REPORT_STEP_S,
    )
    return asdict(run)


def _arrays(score: Score) -> Arrays:
    return {"reports": score.reports, "log": score.log}


def _played(values: dict[str, Any], arrays: Arrays) -> Played:
    return Played(Run(**values), arrays)
