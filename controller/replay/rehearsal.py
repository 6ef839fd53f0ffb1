"""A deployment's own past, played again with each candidate model and price: which would have cost
least.

The load is the one that was seen, bin by bin; the cluster has the capacity law and the start times
that were learned; the planner is our own. The last seven seasons are scored, fewer where the
history is short or the requests would be too many. What came before is what the planner begins
with.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.core.choosing import Candidate, Trial
from controller.core.leadtime import LeadTime
from controller.core.planning import Planner
from controller.core.rehearsal import Rehearsal
from controller.core.types import DeploymentId
from controller.replay.ours import Leadtime
from controller.replay.plant import ColdStart, MetricsPath, Plant, PlantSettings
from controller.replay.runner import run
from controller.replay.series import Lengths, lognormal_tokens
from controller.replay.trace import Floats, Requests, Span, Trace, TraceError, joined

SEASONS = 7
LEARNED_SEASONS = 2
WARM_UP_SEASONS = 1 / 24
MOST_REQUESTS = 6_000_000
MOST_A_SEASON = 20_000_000
STARTS_ENOUGH = 10
PREFILL_SHARE = 0.1
FULLEST = 0.7
BLOCK_BINS = 360


@dataclass(frozen=True, slots=True)
class Seen:
    """As many requests in each bin as were seen there, up to rounding; arrivals inside a bin and
    lengths are drawn, each block of 360 bins from a generator of its own."""

    rates: Floats
    bin_s: float
    seed: int

    def draw(self, start_s: float, end_s: float) -> Requests:
        block_s = BLOCK_BINS * self.bin_s
        first, last = int(start_s // block_s), math.ceil(end_s / block_s)
        blocks = [self._block(number) for number in range(first, max(last, first + 1))]
        return joined(blocks).between(start_s, end_s)

    def stretched(self, factor: float) -> "Seen":
        return replace(self, rates=self.rates / factor, bin_s=self.bin_s * factor)

    def _block(self, number: int) -> Requests:
        rng, first = np.random.default_rng([self.seed, number]), number * BLOCK_BINS
        rates = self.rates[first : first + BLOCK_BINS]
        counts = np.floor(rates * self.bin_s + rng.random(len(rates))).astype(np.int64)
        bins = np.repeat(np.arange(first, first + len(rates)), counts)
        of = Lengths()
        return Requests(
            np.sort((bins + rng.random(len(bins))) * self.bin_s),
            lognormal_tokens(rng, len(bins), of.prompt_mean, of.prompt_sigma),
            lognormal_tokens(rng, len(bins), of.output_mean, of.output_sigma),
        )


@dataclass(frozen=True)
class Stage:
    """Where candidates play: the load with its gaps, a cluster, what counts, and the clock."""

    trace: Trace
    settings: PlantSettings
    scored: Span
    initial: int
    known: Floats
    """Arrivals per second by bin before the play; NaN in gaps."""
    epoch_s: float
    seed: int


def trials(job: Rehearsal) -> tuple[Trial, ...]:
    """What each candidate came to, in order; equal jobs give equal results. Raises TraceError
    where there is too little or too much to play."""
    stage = stage_of(job)
    return tuple(play(job, stage, candidate) for candidate in job.candidates)


def stage_of(job: Rehearsal) -> Stage:
    """The stage for the past of a deployment."""
    periods, stated = job.settings.periods, job.settings
    bins, season, bin_s = len(job.rates), periods.season_bins, periods.bin_s
    known = np.isfinite(job.rates)
    played = seasons_played(job.rates, periods.season_s, season) * season
    scored_from = bins - played
    begin = scored_from - max(1, round(WARM_UP_SEASONS * season))
    seed = job.end_bin // season
    bridged = np.interp(np.arange(bins), np.flatnonzero(known), job.rates[known])
    trace = Trace(
        "past", Seen(bridged, bin_s, seed), begin * bin_s, bins * bin_s, _gaps(known, bin_s)
    )
    first_rps = float(bridged[begin : begin + periods.window_bins].mean())
    enough = math.ceil(first_rps / (FULLEST * job.law.capacity_rps))
    return Stage(
        trace,
        _cluster(job),
        (scored_from * bin_s, bins * bin_s),
        min(max(enough, stated.min_replicas, 1), stated.max_replicas),
        job.rates[:begin],
        (job.end_bin - bins) * bin_s,
        seed,
    )


def seasons_played(rates: Floats, season_s: float, season_bins: int) -> int:
    """How many of the last seasons are scored, at least one; raises TraceError where that is too
    little or too much."""
    played = min(SEASONS, len(rates) // season_bins - LEARNED_SEASONS)
    if played < 1 or not np.isfinite(rates).any():
        raise TraceError("too little of the past is known to play it again")
    requests = float(np.nanmean(rates)) * season_s
    if requests > MOST_A_SEASON:
        raise TraceError(f"a season of {requests:.2g} requests is too many to be played again")
    return max(1, min(played, int(MOST_REQUESTS / max(requests, 1.0))))


def play(job: Rehearsal, stage: Stage, candidate: Candidate) -> Trial:
    """One candidate on the stage."""
    planner = Planner(DeploymentId("replay", "llm"), replace(job.settings, writes=True))
    planner.lead = LeadTime(job.lead_s, job.starts_s, job.settings.start_timeout_s)
    planner.put_in_force(candidate)
    planner.forecaster.backfill(stage.known, stage.epoch_s)
    spans = stage.trace.recorded_spans(*stage.scored)
    plant = Plant(stage.settings, stage.trace, initial=stage.initial, seed=stage.seed, scored=spans)
    policy = Leadtime(planner, stage.settings.slots, stage.epoch_s)
    score = run(plant, policy, tick_s=job.settings.tick_s)
    if not score.requests:
        raise TraceError("nothing arrived in the past that would be played again")
    return Trial(candidate, score.gpu_hours, score.violations / score.requests)


def _cluster(job: Rehearsal) -> PlantSettings:
    """A cluster whose replicas carry what ours do. The prefill alone takes a tenth of the SLO, as
    the planner takes it to, but at most half of a request's work."""
    stated, law, of = job.settings, job.law, Lengths()
    prefill_s = min(PREFILL_SHARE * stated.ttft_s, law.work_s / 2)
    seen = job.starts_s if len(job.starts_s) >= STARTS_ENOUGH else ()
    return PlantSettings(
        slots=max(1, round(law.slots)),
        beta=law.beta,
        prefill_tokens_per_s=of.prompt_mean / prefill_s,
        tpot_s=(law.work_s - prefill_s) / of.output_mean,
        slo_ttft_s=stated.ttft_s,
        cold_start=ColdStart(job.lead_s, samples_s=tuple(seen)),
        cap=stated.max_replicas,
        metrics=MetricsPath(scrape_s=stated.scrape_s),
    )


def _gaps(known: Sequence[bool] | Floats, bin_s: float) -> tuple[Span, ...]:
    """Spans of bins that are not known."""
    edges = np.flatnonzero(np.diff(np.concatenate(([True], known, [True])).astype(np.int8)))
    return tuple((low * bin_s, high * bin_s) for low, high in edges.reshape(-1, 2).tolist())
