"""What is compared on: a load, a lead, an SLO, a cap, and which part of the time counts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from controller.replay.plant import ColdStart, Plant, PlantSettings
from controller.replay.series import WINDOW_DAYS, Lengths, Recipe, draw, six_series, windows
from controller.replay.trace import (
    DAY_S,
    Bins,
    Floats,
    Recorded,
    Requests,
    Span,
    Trace,
    TraceError,
    scaled,
)

LEADS_S = (45.0, 120.0, 300.0)
INITIAL_REPLICAS = 8
WARM_UP_S = 3600.0
HISTORY_S = 14 * DAY_S
BIN_S = 10.0


@dataclass(frozen=True)
class Scenario:
    """One deployment under one load. Only `scored` counts; what the trace holds before it is the
    past: every policy plays the last `warm_up_s` of it, and one that learns has more."""

    name: str
    trace: Trace
    scored: Span
    settings: PlantSettings = field(default_factory=PlantSettings)
    attainment: float = 0.99
    mean_replicas: float = 6.1
    warm_up_s: float = WARM_UP_S
    initial: int = INITIAL_REPLICAS
    seed: int = 0
    tick_s: float = 10.0
    """How often our planner decides; rivals have ticks of their own."""

    @property
    def lead_s(self) -> float:
        """Mean time from asking for a replica to having it."""
        return self.settings.cold_start.mean_s

    @property
    def budget(self) -> float:
        """Share of requests that may be late."""
        return 1 - self.attainment

    @property
    def play_start_s(self) -> float:
        """Where every policy begins."""
        return max(self.scored[0] - self.warm_up_s, self.trace.start_s)

    def played(self, past_s: float = 0.0) -> Trace:
        """The load a policy meets that plays `past_s` before the scored span, or the warm-up if
        that is longer."""
        start_s = min(self.play_start_s, self.scored[0] - past_s)
        return self.trace.between(start_s, self.scored[1])

    def held(self, past_s: float) -> "Scenario":
        """The same, all its requests from `past_s` before the scored span on in memory: drawing
        them again is a third of the time that a run takes."""
        trace = self.played(past_s)
        return replace(self, trace=replace(trace, source=Recorded(trace.requests())))

    def plant(self, past_s: float = 0.0) -> Plant:
        """A cluster under that load, ready to be played once."""
        spans = self.trace.recorded_spans(*self.scored)
        trace = self.played(past_s)
        return Plant(self.settings, trace, initial=self.initial, seed=self.seed, scored=spans)

    def past_rates(
        self, bin_s: float = BIN_S, at_most_s: float = HISTORY_S
    ) -> tuple[Floats, float]:
        """(arrivals per second in bins before the play, the first bin's start); NaN in gaps.

        Bins lie on whole multiples of `bin_s`; the past of a trace that begins there is empty.
        """
        last = int(np.floor(self.play_start_s / bin_s))
        first = int(np.ceil(max(self.trace.start_s, self.play_start_s - at_most_s) / bin_s))
        if last <= first:
            return np.zeros(0), last * bin_s
        counts = np.zeros(last - first)
        for _, requests in self.trace.between(first * bin_s, last * bin_s).chunks():
            index = np.floor(requests.arrival_s / bin_s).astype(np.int64) - first
            counts += np.bincount(index, minlength=len(counts))[: len(counts)]
        middle_s = (np.arange(first, last) + 0.5) * bin_s
        for start_s, end_s in self.trace.gaps:
            counts[(middle_s >= start_s) & (middle_s < end_s)] = np.nan
        return counts / bin_s, first * bin_s

    def with_lead(self, lead_s: float) -> "Scenario":
        """The same with another mean time to start."""
        cold_start = replace(self.settings.cold_start, mean_s=lead_s)
        return replace(self, settings=replace(self.settings, cold_start=cold_start))


def full_replica_rps(settings: PlantSettings, prompt_tokens: float, output_tokens: float) -> float:
    """Requests of these mean lengths that a full replica completes per second.

    800 and 250 tokens on the plant's defaults: 16 x 0.526 / (800/6000 + 250 x 0.02) = 1.64
    (`test_a_full_replica_of_the_defaults_completes_1_64_a_second`).
    """
    alone_s = prompt_tokens / settings.prefill_tokens_per_s + output_tokens * settings.tpot_s
    return settings.full_speed / alone_s


def scale(
    name: str,
    recording: Requests | Bins,
    mean_replicas: float | None,
    settings: PlantSettings,
    *,
    seed: int = 3,
    spikes: int = 0,
) -> tuple[Trace, float]:
    """(a trace whose mean load fills `mean_replicas` replicas, that number).

    None leaves the rate as it was recorded. Recorded lengths are used where there are any.
    """
    if isinstance(recording, Bins):
        prompt, output = _mean_lengths(recording)
        full_rps = full_replica_rps(settings, prompt, output)
        mean_rps = None if mean_replicas is None else mean_replicas * full_rps
        recipe = Recipe(mean_rps=mean_rps, seed=seed, spikes=spikes, recorded_lengths=True)
        trace = replace(draw(recording, recipe), name=name)
        recorded_rps = float(recording.requests.mean()) / recording.bin_s
        return trace, mean_replicas or recorded_rps / full_rps
    arrival_s = recording.arrival_s - recording.arrival_s[0]
    requests, end_s = recording._replace(arrival_s=arrival_s), float(arrival_s[-1]) + 1.0
    full_rps = full_replica_rps(
        settings, float(requests.prompt_tokens.mean()), float(requests.output_tokens.mean())
    )
    recorded_rps = len(arrival_s) / end_s
    if mean_replicas is not None:
        ratio = mean_replicas * full_rps / recorded_rps
        requests = scaled(requests, ratio, np.random.default_rng(seed))
    return Trace(name, Recorded(requests), 0.0, end_s), mean_replicas or recorded_rps / full_rps


def _mean_lengths(bins: Bins) -> tuple[float, float]:
    """Mean prompt and output tokens of a request; the usual ones where none were recorded."""
    usual = Lengths()

    def mean(recorded: Floats, otherwise: float) -> float:
        known = ~np.isnan(recorded) & (bins.requests > 0)
        if not known.any():
            return otherwise
        return float(np.average(recorded[known], weights=bins.requests[known]))

    return (
        mean(bins.prompt_mean, usual.prompt_mean),
        mean(bins.output_mean, usual.output_mean),
    )


def split(trace: Trace, warm_up_s: float) -> Span:
    """The scored span of a trace whose first `warm_up_s` are only learned from."""
    start_s = trace.start_s + warm_up_s
    if start_s >= trace.end_s:
        length_s = trace.end_s - trace.start_s
        raise TraceError(
            f"{trace.name}: a warm-up of {warm_up_s:g} s leaves nothing of {length_s:g} s to score"
        )
    return start_s, trace.end_s


def fifteen_windows(
    folder: Path, leads_s: Sequence[float] = LEADS_S, *, last_only: bool = False
) -> list[Scenario]:
    """The set every figure is measured on: 15 windows of six series, at each lead.

    10 requests/s, cap 48, 99 % within 2 s; `last_only` keeps each series' last window.
    """
    missing = [name for name in SERIES_FILES if not (folder / name).is_file()]
    if missing:
        raise TraceError(f"{folder}: the public traces are not there: no {', '.join(missing)}")
    return [
        window.with_lead(lead_s)
        for window in _windows(six_series(folder), last_only)
        for lead_s in leads_s
    ]


SERIES_FILES = tuple(
    f"{name}.csv.gz"
    for name in (
        "azure_llm_2024_conv",
        "nab_nyc_taxi",
        "nasa_jul95",
        "servegen_m_mid",
        "servegen_m_small",
    )
)


def _windows(series: Mapping[str, Trace], last_only: bool) -> Iterator[Scenario]:
    settings = PlantSettings(cold_start=ColdStart())
    mean = Lengths()
    replicas = 10.0 / full_replica_rps(settings, mean.prompt_mean, mean.output_mean)
    for name, window in windows(series):
        of, day = name.split("@")
        if last_only and float(day) != WINDOW_DAYS[of][-1]:
            continue
        span = (window.start_s, window.end_s)
        yield Scenario(name, series[of], span, settings, mean_replicas=replicas)
