"""What a missing, stale or impossible signal means: one rule for all of them.

A number may be used only if its trust is PRESENT or ZERO. No data is never zero: a mapping
without samples is MISSING, a sample that is old or from the future is STALE, a NaN, infinite,
negative or absurd one is NON_FINITE; what other signals disprove is FROZEN or CONTRADICTORY
(`crosschecks`). Without arrivals or without Serve's account of its replicas the view is blind
and the planner holds. To shrink, arrivals must have a witness: while completions are not known
(and anything runs), or what runs or waits is in doubt, the planner may only grow.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import inf

from controller.core.counters import LARGEST, CounterTracker, Increase, is_count
from controller.core.crosschecks import CrossChecks, Findings, roomy
from controller.core.lag import Lag
from controller.core.types import (
    SERVING,
    Demand,
    Load,
    Observation,
    Readings,
    Reason,
    Sample,
    Signal,
    Trust,
)
from controller.core.upstream import Upstream

TRUSTED = frozenset({Trust.PRESENT, Trust.ZERO})
MISSING = Signal(Trust.MISSING)
COUNTERS = ("completions", "prompt_tokens", "output_tokens", "errors")
RATIOS = ("kv_cache_ratio", "gpu_ratio")
OF_REPLICAS = ("ongoing", "waiting", *RATIOS)
OF_DEPLOYMENT = ("queued", "first_tokens_rps", "late_ratio")
OPTIONAL = (*RATIOS, "first_tokens_rps", "late_ratio")
MOST = {"late_ratio": 1.001, "kv_cache_ratio": 1.001, "gpu_ratio": 1.001}
MOST_SILENT = 0.5
DISPROVED = frozenset({Trust.FROZEN, Trust.CONTRADICTORY})


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old a sample may be (`stale_s`: two scrapes, beyond the `Lag` of all) and how long a
    silent series is waited for before it is forgotten (`patience_s`)."""

    stale_s: float
    patience_s: float

    @classmethod
    def of_scrape(cls, scrape_s: float) -> "Freshness":
        """Two scrapes, at least 5 s so that a busy machine is not taken for a silent one."""
        stale_s = max(2 * scrape_s, 5.0)
        return cls(stale_s, 6 * stale_s)


def judge(
    samples: Mapping[str, Sample] | None,
    now_s: float,
    stale_s: float,
    live: Collection[str] | None = None,
    mean: bool = False,
    most: float = LARGEST,
) -> Signal:
    """The sum (or mean) of a gauge's fresh series; with `live`, of living replicas alone. None
    may be above `most`."""
    if not samples:
        return MISSING
    joined = [s for key, s in samples.items() if live is None or key in live]
    if not joined:
        return MISSING
    total, count, newest_s, oldest_s = 0.0, 0, -inf, inf
    for sample in joined:
        if not 0.0 <= sample.value <= most:
            return Signal(Trust.NON_FINITE)
        newest_s = max(newest_s, sample.at_s)
        if -stale_s <= now_s - sample.at_s <= stale_s:
            total, count = total + sample.value, count + 1
            oldest_s = min(oldest_s, sample.at_s)
    if not count:
        return Signal(Trust.STALE, max(0.0, now_s - newest_s))
    total = total / count if mean else total
    return Signal(Trust.PRESENT if total else Trust.ZERO, max(0.0, now_s - oldest_s), total)


def blindness(observation: Observation) -> Reason | None:
    """Why the view is too poor to decide on, or None if it is not."""
    if observation.replicas is None:
        return Reason.SERVE_UNREACHABLE
    trust = observation.signals["arrivals"].trust
    return _REASONS.get(trust)


def doubtful(observation: Observation) -> bool:
    """Whether something is silent or impossible enough that nothing may be taken away."""
    load, signals = observation.load, observation.signals
    if load is None:
        return True
    if signals["completions"].trust not in TRUSTED and load.ongoing + load.queued > 0:
        return True
    if signals["queued"].trust in DISPROVED and not roomy(load.ongoing, observation.replicas):
        return True
    silent, replicas = signals["ongoing"].silent, observation.replicas
    if silent and replicas is not None and silent > MOST_SILENT * replicas.ready:
        return True
    return observation.demand is not None and not observation.demand.complete


_REASONS = {
    Trust.MISSING: Reason.BLIND,
    Trust.STALE: Reason.STALE,
    Trust.NON_FINITE: Reason.NON_FINITE,
}


class SignalReader:
    """Judges one deployment's readings tick by tick; remembers its counters' last samples."""

    def __init__(self, freshness: Freshness) -> None:
        self._freshness = freshness
        self._lag = Lag(freshness.stale_s)
        self._arrivals = CounterTracker(freshness.stale_s, freshness.patience_s)
        self._counters = {
            name: CounterTracker(freshness.stale_s, freshness.patience_s) for name in COUNTERS
        }
        # Ray exports it from the first one on, so that its absence is no signal.
        self._preemptions = CounterTracker(freshness.stale_s, freshness.patience_s)
        self._checks = CrossChecks(freshness.stale_s, freshness.patience_s)
        self._upstream = Upstream(freshness.stale_s, freshness.patience_s)
        self._idle_until_s: float | None = None

    def observe(self, readings: Readings) -> Observation:
        """The judged view; demand is None when no new arrivals could be counted.

        It is judged as of the time that the path of the metrics has got to (`Lag`)."""
        lag_s = self._lag.observe(readings)
        seen = self._judged(replace(readings, at_s=readings.at_s - lag_s))
        if not lag_s:
            return seen
        signals = {name: _older(signal, lag_s) for name, signal in seen.signals.items()}
        return replace(seen, at_s=readings.at_s, age_s=seen.age_s + lag_s, signals=signals)

    def _judged(self, readings: Readings) -> Observation:
        signals = self._gauges(readings)
        arrivals = self._counter(readings.arrivals, readings.at_s)
        counted = arrivals.trust in TRUSTED
        increase = self._arrivals.advance(readings.arrivals or {}) if counted else None
        increases: dict[str, Increase | None] = {}
        for name, tracker in self._counters.items():
            samples = getattr(readings, name)
            signals[name] = self._counter(samples, readings.at_s)
            usable = signals[name].trust in TRUSTED
            increases[name] = tracker.advance(samples) if usable else None
        found = self._checks.observe(readings.at_s, increase, increases, signals, readings.replicas)
        arrivals, demand = _demand(arrivals, increase, found)
        if readings.stages:
            demand = self._upstream.added(demand, readings.stages, readings.at_s)
            signals |= self._upstream.signals(readings.stages, readings.at_s)
        if arrivals.trust is Trust.MISSING and self._is_idle(readings, signals):
            arrivals, demand = self._idle(readings.at_s, signals["ongoing"].age_s)
        signals["arrivals"] = arrivals
        if found.queued is not None:
            signals["queued"] = replace(signals["queued"], trust=found.queued)
        if found.ongoing is not None:
            signals["ongoing"] = replace(signals["ongoing"], trust=found.ongoing)
        return Observation(
            at_s=readings.at_s,
            age_s=arrivals.age_s,
            demand=demand,
            load=self._load(readings, signals, increases),
            replicas=readings.replicas,
            signals=signals,
        )

    def _gauges(self, readings: Readings) -> dict[str, Signal]:
        live = None
        if readings.replicas is not None:
            live = {member.id for member in readings.replicas.members}
        now_s, stale_s = readings.at_s, self._freshness.stale_s
        signals = {
            name: judge(
                *(getattr(readings, name), now_s, stale_s, live),
                mean=name in RATIOS,
                most=MOST.get(name, LARGEST),
            )
            for name in OF_REPLICAS
        }
        for name in OF_DEPLOYMENT:
            most = MOST.get(name, LARGEST)
            signals[name] = judge(getattr(readings, name), now_s, stale_s, most=most)
        signals["ongoing"] = _covered(signals["ongoing"], readings, stale_s)
        return signals

    def _counter(self, samples: Mapping[str, Sample] | None, now_s: float) -> Signal:
        """Whether a counter's newest samples may be counted; its value is not judged."""
        if not samples:
            return MISSING
        newest_s = -inf
        for sample in samples.values():
            if not is_count(sample.value):
                return Signal(Trust.NON_FINITE)
            newest_s = max(newest_s, sample.at_s)
        if abs(now_s - newest_s) > self._freshness.stale_s:
            return Signal(Trust.STALE, max(0.0, now_s - newest_s))
        return Signal(Trust.PRESENT, max(0.0, now_s - newest_s))

    def _is_idle(self, readings: Readings, signals: Mapping[str, Signal]) -> bool:
        """A deployment that nobody ever called has no arrival counter; its replicas say so
        when every one of them reports no request and no router holds one."""
        if readings.arrivals is None or readings.replicas is None:
            return False
        if self._arrivals.end_s is not None or signals["ongoing"].trust is not Trust.ZERO:
            return False
        reporting = (readings.ongoing or {}).keys()
        silent = [m for m in readings.replicas.members if m.id not in reporting]
        return len(silent) == len(readings.replicas.starting) and signals["queued"].trust in (
            Trust.ZERO,
            Trust.MISSING,
        )

    def _idle(self, now_s: float, age_s: float) -> tuple[Signal, Demand | None]:
        start_s, end_s = self._idle_until_s, now_s - age_s
        self._idle_until_s = end_s
        demand = Demand(start_s, end_s, 0.0) if start_s is not None and end_s > start_s else None
        return Signal(Trust.ZERO, age_s, 0.0), demand

    def _load(
        self,
        readings: Readings,
        signals: Mapping[str, Signal],
        increases: Mapping[str, Increase | None],
    ) -> Load | None:
        preempted = self._preemptions.advance(readings.preemptions or {})
        in_router, in_replicas = _held(signals["queued"]), _held(signals["ongoing"])
        if in_router.trust is Trust.MISSING and self._arrivals.end_s is None:
            in_router = NONE_HELD
        if not TRUSTED.issuperset({in_replicas.trust, in_router.trust}):
            return None
        in_engine = signals["waiting"].value if signals["waiting"].trust in TRUSTED else 0.0
        in_engine = min(in_engine, in_replicas.value)
        done = increases["completions"]
        return Load(
            queued=in_router.value + in_engine,
            ongoing=in_replicas.value - in_engine,
            company=self._company(readings),
            interval_s=done.end_s - done.start_s if done is not None else 0.0,
            preemptions=preempted and preempted.events,
            **{name: _value(signals[name]) for name in OPTIONAL},
            **{name: increase and increase.events for name, increase in increases.items()},
        )

    def _company(self, readings: Readings) -> float:
        """How many others a running request shares its replica with: sum n (n - 1) / sum n
        over the living replicas, what waits in their engines left out."""
        live = {m.id for m in readings.replicas.members} if readings.replicas else set()
        ongoing, waiting = readings.ongoing or {}, readings.waiting or {}
        running = [
            max(sample.value - (waiting[key].value if key in waiting else 0.0), 0.0)
            for key, sample in ongoing.items()
            if key in live and readings.at_s - sample.at_s <= self._freshness.stale_s
        ]
        running = [n for n in running if is_count(n)]
        total = sum(running)
        return sum(n * max(n - 1.0, 0.0) for n in running) / total if total > 0 else 0.0


def _older(signal: Signal, lag_s: float) -> Signal:
    return signal if signal.trust is Trust.MISSING else replace(signal, age_s=signal.age_s + lag_s)


def _value(signal: Signal) -> float | None:
    return signal.value if signal.trust in TRUSTED else None


NONE_HELD = Signal(Trust.ZERO, 0.0, 0.0)


def _held(signal: Signal) -> Signal:
    """What a gauge counts for: requests that other signals disprove are none."""
    return NONE_HELD if signal.trust in DISPROVED else signal


def _demand(
    arrivals: Signal, increase: Increase | None, found: Findings
) -> tuple[Signal, Demand | None]:
    """The demand that was counted. Where more ended than came, what ended is the least that
    can have come, and the count is not complete."""
    if increase is None:
        return arrivals, None
    complete = increase.complete and found.arrivals is None
    came = increase.events if found.arrivals is None else found.came
    demand = Demand(increase.start_s, increase.end_s, came, complete)
    return Signal(found.arrivals or arrivals.trust, arrivals.age_s, demand.rate_rps), demand


def _covered(ongoing: Signal, readings: Readings, stale_s: float) -> Signal:
    """What runs, with the number of serving replicas that do not say; where none serves,
    nothing runs."""
    replicas, samples = readings.replicas, readings.ongoing
    if replicas is None or samples is None:
        return ongoing
    serving = [m.id for m in replicas.members if m.state in SERVING]
    if not serving:
        return NONE_HELD if not samples else ongoing
    since_s, until_s = readings.at_s - stale_s, readings.at_s + stale_s
    silent = sum(id not in samples or not since_s <= samples[id].at_s <= until_s for id in serving)
    return replace(ongoing, silent=silent) if silent and ongoing.trust in TRUSTED else ongoing
