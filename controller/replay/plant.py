"""The simulated cluster as Python sees it: settings in, time forward, a view and a score out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from controller.replay import layout
from controller.replay.compiled import compiled
from controller.replay.events import advance, cross_bound, observe, report
from controller.replay.fleet import place, set_target
from controller.replay.layout import Cluster
from controller.replay.score import Score, read_score
from controller.replay.trace import Floats, Requests, Span, Trace, joined

COLD_STARTS_DRAWN = 65_536

Members = list[tuple[int, int, float]]
"""(serial number, phase of `layout`, time it was asked for) of each replica."""
DRAIN_STEP_S = 60.0


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Seconds from asking for a replica to having it: lognormal around a mean, or given samples.

    `jitter` is the standard deviation of the logarithm; 0 is a fixed time.
    """

    mean_s: float = 120.0
    jitter: float = 0.15
    samples_s: tuple[float, ...] = ()

    def draw(self, rng: np.random.Generator, size: int) -> Floats:
        if self.samples_s:
            return rng.choice(np.array(self.samples_s, np.float64), size)
        factor = np.exp(self.jitter * rng.standard_normal(size) - self.jitter**2 / 2)
        return self.mean_s * factor


@dataclass(frozen=True, slots=True)
class MetricsPath:
    """How metrics reach a policy: pushed by the workers, scraped, and readable `lag_s` later.

    Pushes happen at offset + k push_s, scrapes at k scrape_s after the start. With the defaults a
    tick on a whole 10 s reads data that is 5 s old.
    """

    push_s: float = 10.0
    push_offset_s: float = 5.0
    scrape_s: float = 5.0
    lag_s: float = 1.0

    @property
    def pushes_kept(self) -> int:
        """Enough that the newest scrape a query can see still finds its push."""
        return math.ceil((self.lag_s + self.scrape_s) / self.push_s) + 2


@dataclass(frozen=True, slots=True)
class PlantSettings:
    """One deployment: what a replica can do, how it starts and stops, what may exist at once."""

    slots: int = 16
    beta: float = 0.06
    prefill_tokens_per_s: float = 6000.0
    tpot_s: float = 0.02
    slo_ttft_s: float = 2.0
    cold_start: ColdStart = ColdStart()
    cap: int = 48
    cap_counts_draining: bool = True
    drain_timeout_s: float = 60.0
    metrics: MetricsPath = field(default_factory=MetricsPath)

    @property
    def full_speed(self) -> float:
        """Seconds of work, alone, that a full replica serves per second: C v(C)."""
        return self.slots / (1 + self.beta * (self.slots - 1))


class View(NamedTuple):
    """What a policy may know at `at_s`.

    From `arrivals` to `late_first_tokens`: the newest scrape that can be read, taken at
    `scraped_at_s` (counters since the start, `queued` and `ongoing` gauges); NaN before the first.
    The rest is Serve's own account of its replicas, fresh. "Late" is beyond the SLO.
    """

    at_s: float
    scraped_at_s: float
    arrivals: float
    completions: float
    failures: float
    queued: float
    ongoing: float
    prompt_tokens: float
    output_tokens: float
    first_tokens: float
    late_first_tokens: float
    target: int
    ready: int
    starting: int
    draining: int
    starting_since_s: Floats
    members: Members


class Plant:
    """A simulated cluster under a trace; whoever holds it decides when time passes.

    `scored` are the spans whose requests and GPU time count (None: all of the trace that was
    recorded). Equal arguments give equal runs; the k-th replica started takes the same time to
    start under every policy.
    """

    def __init__(
        self,
        settings: PlantSettings,
        trace: Trace,
        *,
        initial: int = 1,
        seed: int = 0,
        scored: Sequence[Span] | None = None,
        report_step_s: float = 60.0,
        logged_violations: int = 262_144,
    ) -> None:
        self.settings = settings
        self.start_s, self.end_s = trace.start_s, trace.end_s
        if scored is None:
            scored = trace.recorded_spans(trace.start_s, trace.end_s)
        self._chunks = trace.chunks()
        self._fed_until_s = trace.start_s
        self._requests = Requests(np.zeros(0), np.zeros(0, np.int32), np.zeros(0, np.int32))
        self._view = np.zeros(layout.VIEW_SIZE)
        steps = math.ceil((self.end_s - self.start_s) / report_step_s)
        spans = [(max(a, self.start_s), min(b, self.end_s)) for a, b in scored]
        places = settings.cap if settings.cap_counts_draining else 4 * settings.cap + 16
        crowd = np.arange(settings.slots + 1)
        self.cluster = Cluster(
            state=np.zeros(1, layout.STATE),
            replicas=np.zeros(places, layout.REPLICA),
            slots=np.zeros((places, settings.slots), layout.SLOT),
            speed=1 / (1 + settings.beta * np.maximum(crowd - 1.0, 0)),
            cold_start_s=settings.cold_start.draw(np.random.default_rng(seed), COLD_STARTS_DRAWN),
            scored=np.array(spans, np.float64).reshape(-1, 2),
            samples=np.zeros(
                (settings.metrics.pushes_kept, layout.SAMPLE_END - layout.SAMPLE_START)
            ),
            reports=np.zeros(steps, layout.REPORT),
            histogram=np.zeros(layout.HISTOGRAM_BINS, np.int64),
            log=np.zeros(logged_violations, layout.VIOLATION),
        )
        self.cluster.replicas["finish_s"] = math.inf
        _write_state(self.cluster.state[0], settings, self.start_s, report_step_s)
        self._start_ready(min(initial, settings.cap))
        cross_bound(self.cluster)

    @property
    def now_s(self) -> float:
        return float(self.cluster.state[0]["now_s"])

    @property
    def fed_until_s(self) -> float:
        """How far the requests in memory reach."""
        return self._fed_until_s

    @property
    def requests(self) -> Requests:
        """The requests in memory, for a compiled loop; replaced by each `feed`."""
        return self._requests

    def feed(self) -> float:
        """Load the next chunk, forget requests that have begun; how far they reach now."""
        state = self.cluster.state[0]
        self._fed_until_s, fresh = next(self._chunks, (math.inf, self._requests.at(slice(0))))
        head = int(state["head"])
        self._requests = joined([self._requests.at(slice(head, None)), fresh])
        state["tail"] -= head
        state["head"] = 0
        return self._fed_until_s

    def advance(self, until_s: float) -> None:
        """Let time pass; requests stop arriving at the end of the trace."""
        self._feed_until(until_s)
        advance(self.cluster, self._requests, until_s)

    def view(self) -> View:
        """What a policy may know now."""
        observe(self.cluster, self._view)
        return self._seen()

    def view_at(self, until_s: float) -> View:
        """`advance`, then `view`; every tick of a replay asks for both."""
        self._feed_until(until_s)
        _advance_and_observe(self.cluster, self._requests, until_s, self._view)
        return self._seen()

    def _feed_until(self, until_s: float) -> None:
        while self._fed_until_s < until_s:
            advance(self.cluster, self._requests, self._fed_until_s)
            self.feed()

    def _seen(self) -> View:
        values = self._view.tolist()
        counts = map(int, values[layout.TARGET : layout.DRAINING_REPLICAS + 1])
        fleet = self._starting_since_s(), self._members()
        return View._make((*values[: layout.TARGET], *counts, *fleet))

    def set_target(self, replicas: int) -> None:
        """Ask for so many replicas, starting ones included; held within 0 and the cap."""
        set_target(self.cluster, replicas)

    def finish(self, grace_s: float = 3600.0) -> Score:
        """Run to the end of the trace, then on until its requests have ended, at most `grace_s`.

        No GPU time counts after the end; a request still without a first token is a violation.
        """
        self.advance(max(self.end_s, self.now_s))
        state = self.cluster.state[0]
        if state["reports"] < len(self.cluster.reports):
            report(self.cluster)
        stop_s = self.now_s + grace_s
        while self._busy(state) and self.now_s < stop_s:
            self.advance(min(self.now_s + DRAIN_STEP_S, stop_s))
        return read_score(self.cluster, self._requests)

    @staticmethod
    def _busy(state: np.void) -> bool:
        can_serve = state["ready"] or state["starting"]
        return bool(state["running"] or (state["head"] < state["tail"] and can_serve))

    def _members(self) -> Members:
        held = self.cluster.replicas[: int(self.cluster.state[0]["used"])]
        columns = (held[name].tolist() for name in ("serial", "phase", "since_s"))
        return [member for member in zip(*columns, strict=True) if member[1] != layout.FREE]

    def _starting_since_s(self) -> Floats:
        if not self.cluster.state[0]["starting"]:
            return np.zeros(0)
        replicas = self.cluster.replicas
        return np.sort(replicas["since_s"][replicas["phase"] == layout.STARTING])

    def _start_ready(self, count: int) -> None:
        state = self.cluster.state[0]
        for index in range(count):
            place(self.cluster, index, layout.READY, self.start_s)
        state["target"] = state["ready"] = state["used"] = count


@compiled
def _advance_and_observe(
    cluster: Cluster, requests: Requests, until_s: float, view: Floats
) -> None:
    advance(cluster, requests, until_s)
    observe(cluster, view)


def _write_state(
    state: np.void, settings: PlantSettings, start_s: float, report_step_s: float
) -> None:
    metrics = settings.metrics
    values: dict[str, float] = {
        "cap": settings.cap,
        "cap_counts_draining": settings.cap_counts_draining,
        "slots": settings.slots,
        "slo_ttft_s": settings.slo_ttft_s,
        "prefill_s": 1 / settings.prefill_tokens_per_s,
        "tpot_s": settings.tpot_s,
        "drain_timeout_s": settings.drain_timeout_s,
        "push_s": metrics.push_s,
        "push_offset_s": metrics.push_offset_s,
        "scrape_s": metrics.scrape_s,
        "lag_s": metrics.lag_s,
        "report_step_s": report_step_s,
        "start_s": start_s,
        "now_s": start_s,
        "settled_s": start_s,
        "next_rare_s": start_s,
        "next_push_s": start_s + metrics.push_offset_s,
        "next_report_s": start_s + report_step_s,
        "next_ready_s": math.inf,
        "next_deadline_s": math.inf,
        "next_finish_s": math.inf,
        "next_finish_replica": layout.NOT_A_REPLICA,
    }
    for name, value in values.items():
        state[name] = value
