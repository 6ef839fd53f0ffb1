"""Plays the same load and the same faults against one way of scaling, and tells what was seen."""

import math
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from serve_app.load_results import LoadResult
from tests.chaos.invariants import RECOVERY_S, Rules, Strike, Timeline, unrecovered
from tests.chaos.looking import Looking, filled, from_metrics
from tests.chaos.schedule import Fault
from tests.chaos.victims import Chaos
from tests.e2e.served import LAW, LEAD_PRIOR_S, MAX_REPLICAS, SEASON_S, TTFT_S, WORK_S
from tests.e2e.world import World, world

NATIVE = "native"
RULES = Rules(1, MAX_REPLICAS, LAW.capacity_rps(WORK_S), LAW.slots)
AT_ONCE = 8
LOAD_ENDS_IN_S = 70.0
"""A request may take its time-out of 60 s."""
MOMENT_S = 1e-3


def play(
    folder: Path,
    actuation: str,
    seed: int,
    span_s: float,
    faults: Sequence[Fault],
    tell: Callable[[str, float], None],
) -> Timeline:
    """One run on servers of its own, in `folder`; `tell` hears who plays and of each fault's
    second."""
    with world(folder, actuation) as live, Looking(live, actuation != NATIVE) as looking:
        seasons = math.ceil(span_s / SEASON_S)
        load = live.play_load(seasons, seed)
        strikes = _struck(live, Chaos(live), faults, lambda at_s: tell(actuation, at_s))
        live.wait_until(seasons * SEASON_S)
        load.wait(LOAD_ENDS_IN_S)
        played = LoadResult.read_csv(live.requests)
        seen = Timeline(
            looks=looking.looks,
            strikes=strikes,
            wanted=(),
            lead_s=max([LEAD_PRIOR_S, *_median(live.watch.cold_starts_s)]),
            **of_load(played),
        )
        over_s = max((strike.over_s for strike in strikes), default=0.0)
        while not recovered(seen) and looking.now_s() < over_s + RECOVERY_S:
            looking.await_next()
        looks = filled(looking.of_load(), from_metrics(live, looking.now_s()))
        return replace(seen, looks=looks, wanted=wanted(live))


def of_load(played: LoadResult) -> dict[str, Any]:
    """A played load's part of a timeline."""
    ended_s = played.scheduled_s + played.e2e_s
    failed_s = tuple(sorted(float(at_s) for at_s in ended_s[played.failed()]))
    late = played.slo_violation_ratio(TTFT_S)
    return {"due_s": played.scheduled_s, "failed_s": failed_s, "late_ratio": late}


def recovered(seen: Timeline) -> bool:
    """Whether all is well now and was after each fault."""
    return not unrecovered(seen, RULES)


def wanted(live: World) -> tuple[int, ...]:
    """Every number that the daemon has wanted; none where none answers, which is no recovery."""
    found: list[int] = []
    if live.daemon is None or live.get("/healthz").is_error:
        return ()
    page = live.decisions()
    while page:
        found += [decision["wanted"] for decision in page]
        page = live.decisions(until_s=page[0]["at_s"] - MOMENT_S)
    return tuple(found)


def _struck(
    live: World, chaos: Chaos, faults: Sequence[Fault], tell: Callable[[float], None]
) -> list[Strike]:
    """Carry the faults out, each at its time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        struck: list[Future[Strike]] = []
        for fault in faults:
            live.wait_until(fault.at_s)
            tell(fault.at_s)
            struck.append(pool.submit(chaos.strike, fault))
    return [each.result() for each in struck]


def _median(values: Sequence[float]) -> list[float]:
    return [statistics.median(values)] if values else []
