"""From counts per bin to requests: the recipe of the public traces, and six series made by it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from controller.replay.trace import (
    DAY_S,
    Bins,
    Counts,
    Floats,
    Recorded,
    Requests,
    Trace,
    joined,
    read,
    scaled,
    spread,
)

BLOCK_STEPS = 360


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lognormal lengths in tokens: mean, and standard deviation of the logarithm.

    The defaults are one full replica's 1.64 requests/s on the plant's defaults (prefill 6000
    tokens/s, 0.02 s a token, 16 slots, beta 0.06): 16 x 0.526 / (800/6000 + 250 x 0.02) = 1.64.
    """

    prompt_mean: float = 800.0
    prompt_sigma: float = 1.0
    output_mean: float = 250.0
    output_sigma: float = 0.8


@dataclass(frozen=True, slots=True)
class Recipe:
    """How counts per bin become requests.

    The rate is interpolated between bin centres, scaled to `mean_rps` (None: as recorded),
    multiplied by a mean-one lognormal AR(1), raised by spikes, and drawn as a Poisson process in
    steps of `step_s`. `bridge_gaps` draws the interpolated load inside recording gaps too, so that
    a closed loop sees no fall to zero there; the gaps stay listed in the trace.
    """

    mean_rps: float | None = None
    seed: int = 3
    spikes: int = 0
    noise_sd: float = 0.15
    noise_correlation_s: float = 180.0
    step_s: float = 10.0
    lengths: Lengths = Lengths()
    recorded_lengths: bool = False
    bridge_gaps: bool = True


@dataclass(frozen=True, slots=True)
class Drawn:
    """Poisson counts per step; arrivals inside the steps and lengths are drawn when asked for.

    Blocks of 360 steps have a generator each, so a slice holds the very requests of the whole.
    """

    counts: Counts
    step_s: float
    seed: int
    lengths: Lengths
    prompt_mean: Floats | None = None
    output_mean: Floats | None = None

    def draw(self, start_s: float, end_s: float) -> Requests:
        block_s = BLOCK_STEPS * self.step_s
        first, last = int(start_s // block_s), math.ceil(end_s / block_s)
        blocks = [self._block(index) for index in range(first, max(last, first + 1))]
        return joined(blocks).between(start_s, end_s)

    def stretched(self, factor: float) -> Self:
        return replace(self, step_s=self.step_s * factor)

    def _block(self, index: int) -> Requests:
        rng = np.random.default_rng([self.seed, 1, index])
        low = index * BLOCK_STEPS
        counts = self.counts[low : low + BLOCK_STEPS]
        step = np.repeat(np.arange(low, low + len(counts)), counts)
        arrival_s = np.sort((step + rng.random(len(step))) * self.step_s)
        shape = self.lengths
        prompt_mean = shape.prompt_mean if self.prompt_mean is None else self.prompt_mean[step]
        output_mean = shape.output_mean if self.output_mean is None else self.output_mean[step]
        return Requests(
            arrival_s,
            lognormal_tokens(rng, len(step), prompt_mean, shape.prompt_sigma),
            lognormal_tokens(rng, len(step), output_mean, shape.output_sigma),
        )


def lognormal_tokens(
    rng: np.random.Generator, size: int, mean: float | Floats, sigma: float
) -> Counts:
    """Token counts, at least 1, lognormal around a mean (one for all, or one each)."""
    factor = np.exp(sigma * rng.standard_normal(size) - sigma**2 / 2)
    tokens: Counts = np.maximum(np.rint(mean * factor), 1).astype(np.int32)
    return tokens


def load(path: Path, recipe: Recipe | None = None, *, tick_s: float = 0.0) -> Trace:
    """A trace file of either layout as a trace.

    For a request a row, `recipe` gives only mean rate and seed, and `tick_s` says that arrivals
    were recorded on ticks of that many seconds (mooncake: 3).
    """
    recipe = recipe or Recipe()
    recording = read(path)
    if isinstance(recording, Bins):
        return draw(recording, recipe)
    rng = np.random.default_rng(recipe.seed)
    requests = spread(recording, tick_s, rng) if tick_s else recording
    end_s = float(requests.arrival_s[-1]) + 1.0
    if recipe.mean_rps is not None:
        requests = scaled(requests, recipe.mean_rps * end_s / len(requests.arrival_s), rng)
    return Trace(path.name.split(".")[0], Recorded(requests), 0.0, end_s)


def draw(bins: Bins, recipe: Recipe) -> Trace:
    """Requests drawn from counts per bin."""
    rng = np.random.default_rng(recipe.seed)
    centre_s: Floats = np.arange(0.5, bins.end_s / recipe.step_s, dtype=np.float64) * recipe.step_s
    recorded = _recorded(centre_s, bins)
    bin_centre_s = bins.start_s + bins.bin_s / 2
    rate_rps = np.interp(centre_s, bin_centre_s, bins.requests / bins.bin_s)
    if recipe.mean_rps is not None:
        rate_rps *= recipe.mean_rps / rate_rps[recorded].mean()
    mean_rps = float(rate_rps[recorded].mean())
    rate_rps *= noise(len(rate_rps), recipe, rng)
    rate_rps += spikes(centre_s, mean_rps, recipe.spikes, rng)
    if not recipe.bridge_gaps:
        rate_rps[~recorded] = 0.0
    counts = rng.poisson(rate_rps * recipe.step_s).astype(np.int32)
    means = _length_means(centre_s, bin_centre_s, bins, recipe)
    source = Drawn(counts, recipe.step_s, recipe.seed, recipe.lengths, *means)
    return Trace(bins.name, source, 0.0, bins.end_s, bins.gaps)


def noise(size: int, recipe: Recipe, rng: np.random.Generator) -> Floats:
    """A mean-one lognormal AR(1), started in its stationary law."""
    keep = math.exp(-recipe.step_s / recipe.noise_correlation_s)
    shocks = rng.standard_normal(size) * recipe.noise_sd
    shocks[1:] *= math.sqrt(1 - keep**2)
    log = np.fromiter(accumulate(shocks.tolist(), lambda x, e: keep * x + e), np.float64, size)
    return np.exp(log - recipe.noise_sd**2 / 2)


def spikes(centre_s: Floats, mean_rps: float, count: int, rng: np.random.Generator) -> Floats:
    """The sum of `count` spikes: height 1-3 x the mean, 120-900 s long, rising over 30 s."""
    extra_rps = np.zeros(len(centre_s))
    end_s = centre_s[-1] if len(centre_s) else 0.0
    for _ in range(count):
        start_s, height_rps = rng.uniform(0, end_s), rng.uniform(1, 3) * mean_rps
        since_s = centre_s - start_s
        inside = (since_s >= 0) & (since_s < rng.uniform(120, 900))
        extra_rps += inside * height_rps * np.clip(since_s / 30, 0, 1)
    return extra_rps


def _recorded(centre_s: Floats, bins: Bins) -> NDArray[np.bool_]:
    inside = np.ones(len(centre_s), bool)
    for start_s, end_s in bins.gaps:
        inside &= (centre_s < start_s) | (centre_s >= end_s)
    return inside


def _length_means(
    centre_s: Floats, bin_centre_s: Floats, bins: Bins, recipe: Recipe
) -> tuple[Floats | None, Floats | None]:
    """Recorded means per step; none where the recording has none or the recipe wants none."""

    def means(recorded: Floats) -> Floats | None:
        known = ~np.isnan(recorded)
        if not (recipe.recorded_lengths and known.any()):
            return None
        by_step: Floats = np.interp(centre_s, bin_centre_s[known], recorded[known])
        return by_step

    return means(bins.prompt_mean), means(bins.output_mean)


WINDOW_S = 1.25 * DAY_S
WINDOW_DAYS: Mapping[str, tuple[float, ...]] = {
    "azure_s0": (4.1, 5.5),
    "azure_s10": (4.1, 5.5),
    "nyc": (8.1, 10.3, 12.5),
    "nasa": (8.1, 10.3, 12.5),
    "m_mid": (8.1, 10.3, 12.5),
    "m_small": (5.1, 7.5),
}
_SIX = (
    ("azure_s0", "azure_llm_2024_conv", 0),
    ("azure_s10", "azure_llm_2024_conv", 10),
    ("nyc", "nab_nyc_taxi", 6),
    ("nasa", "nasa_jul95", 0),
    ("m_mid", "servegen_m_mid", 4),
    ("m_small", "servegen_m_small", 0),
)


def six_series(folder: Path, *, mean_rps: float = 10.0, seed: int = 3) -> dict[str, Trace]:
    """The six series every figure is measured on, from the folder of public traces."""
    series = {}
    for name, file, count in _SIX:
        bins = read(folder / f"{file}.csv.gz")
        assert isinstance(bins, Bins)
        recipe = Recipe(mean_rps=mean_rps, seed=seed, spikes=count)
        series[name] = replace(draw(bins.until(14 * DAY_S), recipe), name=name)
    return series


def windows(series: Mapping[str, Trace]) -> list[tuple[str, Trace]]:
    """The fifteen windows of 1.25 days, (`name@day`, trace)."""
    return [
        (f"{name}@{day:g}", series[name].between(day * DAY_S, day * DAY_S + WINDOW_S))
        for name, days in WINDOW_DAYS.items()
        for day in days
    ]
