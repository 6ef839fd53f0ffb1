"""Scores a played day from the outside: requests, Serve's replicas and the stand-in's law."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import ceil, isnan
from typing import Any

import numpy as np

from controller.demo.day import Day, Floats, Ramp
from controller.demo.script import Script
from controller.demo.watch import Sight
from serve_app.load_results import LoadResult

LARGEST_CPU_P95 = 85.0
LARGEST_SEND_LAG = 0.05
"""Of the SLO's time to first token: 50 ms of a second."""
STEP_S = 0.1
# Work is offered over about the time that a request stays.
OFFERED_OVER_S = 4.0
LOOKED_AT_S = 15.0


@dataclass(frozen=True)
class Result:
    """One policy's day in numbers."""

    requests: int
    errors: int
    slo_violation_ratio: float
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    replica_seconds: float
    scale_changes: int


@dataclass(frozen=True)
class RampScore:
    """A ramp: when its last-covered replica was needed, when it was ready, the difference.

    Times are seconds of the day; a negative margin is late.
    """

    need_at_s: float
    ready_at_s: float
    margin_s: float


def score_day(script: Script, load: LoadResult, sights: Sequence[Sight], zero_s: float) -> Result:
    """Score the requests and replicas of the season that begins at `zero_s` (monotonic)."""
    counted = load.scheduled_s >= script.warm_up_s
    ttft_s = load.ttft_s[counted]
    failed = load.failed()[counted]
    late = failed | ~(ttft_s <= script.ttft_s)
    came = ttft_s[~np.isnan(ttft_s)]
    p50, p95, p99 = (float(np.percentile(came, q)) for q in (50, 95, 99))
    inside = [s for s in sights if zero_s <= s.at_s <= zero_s + script.season_s]
    targets = [sight.target for sight in inside]
    return Result(
        requests=int(counted.sum()),
        errors=int(failed.sum()),
        slo_violation_ratio=float(late.mean()),
        ttft_p50_s=p50,
        ttft_p95_s=p95,
        ttft_p99_s=p99,
        replica_seconds=_replica_seconds(sights, zero_s, zero_s + script.season_s),
        scale_changes=sum(a != b for a, b in pairwise(targets)),
    )


def score_ramps(played: Day, sights: Sequence[Sight], zero_s: float) -> list[RampScore]:
    """For each ramp the replica that came latest, or least early, before it was needed.

    The k-th replica is needed from the first moment within 15 s of the ramp's beginning at
    which the work offered by the seeded requests, over the last 4 s, exceeds what k - 1
    replicas get done with every slot taken. It is ready since ready replicas last rose to k.
    """
    times_s: Floats = np.arange(0.0, played.script.season_s, STEP_S, dtype=np.float64)
    offered = _offered(played, times_s)
    ready = _ready(sights, times_s + zero_s)
    full = _full_speed(played.script)
    return [_score_ramp(ramp, full, times_s, offered, ready) for ramp in played.ramps]


def why_void(
    script: Script, cpu_p95: float, send_lag_p99_s: float, cold_starts_s: Sequence[float]
) -> list[str]:
    """Why a run measured the machine and not the policy; nothing if it did not. Engines that
    compute on the machine's own cores make it busy and their starts slow: that is the day."""
    problems = []
    if script.machine_is_judged and not cpu_p95 <= LARGEST_CPU_P95:
        problems.append(f"host CPU p95 {cpu_p95:.0f} % > {LARGEST_CPU_P95:.0f} %")
    largest_lag_s = LARGEST_SEND_LAG * script.ttft_s
    if not send_lag_p99_s <= largest_lag_s:
        problems.append(
            f"send lag p99 {send_lag_p99_s * 1000:.0f} ms > {largest_lag_s * 1000:.0f} ms"
        )
    if cold_starts_s and script.machine_is_judged:
        median, worst = float(np.median(cold_starts_s)), max(cold_starts_s)
        if worst > 2 * median:
            problems.append(f"a cold start of {worst:.1f} s, the median is {median:.1f} s")
    return problems


def as_json(result: Any) -> dict[str, Any]:
    """A result's fields, NaN as None."""
    fields = asdict(result).items()
    return {k: None if isinstance(v, float) and isnan(v) else v for k, v in fields}


def busy_replicas(played: Day, times_s: Floats) -> Floats:
    """Work offered at each time, in replicas kept wholly busy."""
    return _offered(played, times_s) / _full_speed(played.script)


def _full_speed(script: Script) -> float:
    """Seconds of lone work that a replica with every slot taken gets done a second."""
    return script.law.slots * script.law.speed(script.law.slots)


def _offered(played: Day, times_s: Floats) -> Floats:
    """Seconds of lone work a second that arrived over the last 4 s."""
    requests = played.arrivals
    pairs = zip(requests.prompt_tokens, requests.output_tokens, strict=True)
    law = played.script.law
    work = np.array([law.lone_work_s(int(prompt), int(output)) for prompt, output in pairs])
    total = np.concatenate([[0.0], np.cumsum(work)])
    upto = np.searchsorted(played.times_s, times_s)
    since = np.searchsorted(played.times_s, times_s - OFFERED_OVER_S)
    offered: Floats = (total[upto] - total[since]) / OFFERED_OVER_S
    return offered


def _ready(sights: Sequence[Sight], times_s: Floats) -> Floats:
    """Ready replicas at each time, as last seen."""
    seen_s = np.array([sight.at_s for sight in sights])
    running = np.array([sight.running for sight in sights])
    found: Floats = running[np.maximum(np.searchsorted(seen_s, times_s, side="right") - 1, 0)]
    return found


def _score_ramp(
    ramp: Ramp, full: float, times_s: Floats, offered: Floats, ready: Floats
) -> RampScore:
    scores = []
    near = (times_s >= ramp.begins_s) & (times_s < ramp.begins_s + LOOKED_AT_S)
    for number in range(ceil(ramp.before) + 1, ceil(ramp.after) + 1):
        over = near & (offered > (number - 1) * full)
        if over.any():
            scores.append(_score_replica(number, int(np.argmax(over)), times_s, ready))
    if not scores:
        return RampScore(ramp.begins_s, ramp.begins_s, 0.0)
    return min(scores, key=lambda score: score.margin_s)


def _score_replica(number: int, needed: int, times_s: Floats, ready: Floats) -> RampScore:
    place = needed
    if ready[needed] >= number:
        while place > 0 and ready[place - 1] >= number:
            place -= 1
    else:
        while place < len(ready) - 1 and ready[place] < number:
            place += 1
    need_s, ready_s = float(times_s[needed]), float(times_s[place])
    return RampScore(round(need_s, 1), round(ready_s, 1), round(need_s - ready_s, 1))


def _replica_seconds(sights: Sequence[Sight], start_s: float, end_s: float) -> float:
    """Integral of starting + running + stopping replicas, each look holding until the next."""
    total = 0.0
    ends = [*(sight.at_s for sight in sights[1:]), end_s]
    for sight, until_s in zip(sights, ends, strict=True):
        held_s = min(until_s, end_s) - max(sight.at_s, start_s)
        total += max(held_s, 0.0) * (sight.starting + sight.running + sight.stopping)
    return total
