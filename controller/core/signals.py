"""What a missing, stale or impossible signal means: one rule for all of them.

A number may be used only if its trust is PRESENT or ZERO. No data is never zero: a mapping
without samples is MISSING, an old sample is STALE, a NaN, infinite, negative or absurd one is
NON_FINITE. Without arrivals or without Serve's account of its replicas the view is blind and
the planner holds; with another signal in doubt it may grow but not shrink.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from controller.core.counters import CounterTracker, is_count
from controller.core.types import (
    Demand,
    Load,
    Observation,
    Readings,
    Reason,
    Sample,
    Signal,
    Trust,
)

TRUSTED = frozenset({Trust.PRESENT, Trust.ZERO})
MISSING = Signal(Trust.MISSING)
COUNTERS = ("completions", "prompt_tokens", "output_tokens")
RATIOS = ("kv_cache_ratio", "gpu_ratio")
OF_REPLICAS = ("ongoing", "waiting", *RATIOS)
OF_DEPLOYMENT = ("queued", "first_tokens_rps", "late_ratio")
OPTIONAL = (*RATIOS, "first_tokens_rps", "late_ratio")


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old a sample may be (`stale_s`: two scrapes) and how long a silent series is waited
    for before it is forgotten (`patience_s`)."""

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
) -> Signal:
    """The sum (or mean) of a gauge's fresh series; with `live`, of living replicas alone."""
    if not samples:
        return MISSING
    joined = [s for key, s in samples.items() if live is None or key in live]
    if not joined:
        return MISSING
    if not all(is_count(sample.value) for sample in joined):
        return Signal(Trust.NON_FINITE)
    fresh = [sample for sample in joined if now_s - sample.at_s <= stale_s]
    if not fresh:
        return Signal(Trust.STALE, now_s - max(sample.at_s for sample in joined))
    total = sum(sample.value for sample in fresh) / (len(fresh) if mean else 1)
    age_s = max(0.0, now_s - min(sample.at_s for sample in fresh))
    return Signal(Trust.PRESENT if total else Trust.ZERO, age_s, total)


def blindness(observation: Observation) -> Reason | None:
    """Why the view is too poor to decide on, or None if it is not."""
    if observation.replicas is None:
        return Reason.SERVE_UNREACHABLE
    trust = observation.signals["arrivals"].trust
    return _REASONS.get(trust)


def doubtful(observation: Observation) -> bool:
    """Whether something is silent or impossible enough that nothing may be taken away."""
    if observation.load is None:
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
        self._arrivals = CounterTracker(freshness.stale_s, freshness.patience_s)
        self._counters = {
            name: CounterTracker(freshness.stale_s, freshness.patience_s) for name in COUNTERS
        }
        self._idle_until_s: float | None = None

    def observe(self, readings: Readings) -> Observation:
        """The judged view; demand is None when no new arrivals could be counted."""
        signals = self._gauges(readings)
        increase = self._arrivals.advance(readings.arrivals or {})
        arrivals = self._judge_arrivals(readings)
        demand = (
            Demand(increase.start_s, increase.end_s, increase.events, increase.complete)
            if (increase is not None)
            else None
        )
        if arrivals.trust is Trust.MISSING and self._is_idle(readings, signals):
            arrivals, demand = self._idle(readings.at_s, signals["ongoing"].age_s)
        usable = arrivals.trust in TRUSTED
        if usable and demand is not None:
            arrivals = replace(arrivals, value=demand.rate_rps)
        signals["arrivals"] = arrivals
        return Observation(
            at_s=readings.at_s,
            age_s=arrivals.age_s,
            demand=demand if usable else None,
            load=self._load(readings, signals),
            replicas=readings.replicas,
            signals=signals,
        )

    def _gauges(self, readings: Readings) -> dict[str, Signal]:
        live = None
        if readings.replicas is not None:
            live = {member.id for member in readings.replicas.members}
        now_s, stale_s = readings.at_s, self._freshness.stale_s
        signals = {
            name: judge(getattr(readings, name), now_s, stale_s, live, mean=name in RATIOS)
            for name in OF_REPLICAS
        }
        for name in OF_DEPLOYMENT:
            signals[name] = judge(getattr(readings, name), now_s, stale_s)
        return signals

    def _judge_arrivals(self, readings: Readings) -> Signal:
        samples = readings.arrivals
        if not samples:
            return Signal(Trust.MISSING)
        if not all(is_count(sample.value) for sample in samples.values()):
            return Signal(Trust.NON_FINITE)
        age_s = max(0.0, readings.at_s - max(sample.at_s for sample in samples.values()))
        if age_s > self._freshness.stale_s:
            return Signal(Trust.STALE, age_s)
        return Signal(Trust.PRESENT, age_s)

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

    def _load(self, readings: Readings, signals: Mapping[str, Signal]) -> Load | None:
        increases = {
            name: tracker.advance(getattr(readings, name) or {})
            for name, tracker in self._counters.items()
        }
        in_router, in_replicas = signals["queued"], signals["ongoing"]
        if in_router.trust is Trust.MISSING and self._arrivals.end_s is None:
            in_router = Signal(Trust.ZERO, 0.0, 0.0)
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


def _value(signal: Signal) -> float | None:
    return signal.value if signal.trust in TRUSTED else None
