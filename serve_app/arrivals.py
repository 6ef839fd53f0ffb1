"""Who arrives when, with how much to read and to write: pure, seeded, in seconds from zero."""

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Bins to requests, as traces/README.md says.
NOISE_SD = 0.15
NOISE_CORRELATION_S = 180.0
MAX_STEP_S = 10.0
# The window in which a trace's `idc` (variance / mean of counts) is taken to be counted.
IDC_WINDOW_S = 1.0
MAX_NOISE_SD = 1.0
# Copies of a request, made to reach a higher rate, fall within this time around the original.
COPY_SPREAD_S = 30.0


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lognormal token counts by mean and coefficient of variation (sd / mean); 0 is constant."""

    prompt_mean: float = 512.0
    prompt_cv: float = 1.0
    output_mean: float = 128.0
    output_cv: float = 0.8
    max_tokens: int = 16_384

    def draw(
        self,
        count: int,
        rng: np.random.Generator,
        prompt_mean: FloatArray | None = None,
        output_mean: FloatArray | None = None,
    ) -> tuple[IntArray, IntArray]:
        """`count` prompt and output lengths, each 1..max_tokens; means a request may be given."""
        prompts = np.full(count, self.prompt_mean) if prompt_mean is None else prompt_mean
        outputs = np.full(count, self.output_mean) if output_mean is None else output_mean
        return self._tokens(prompts, self.prompt_cv, rng), self._tokens(
            outputs, self.output_cv, rng
        )

    def _tokens(self, means: FloatArray, cv: float, rng: np.random.Generator) -> IntArray:
        factors = lognormal_factors(rng.standard_normal(len(means)), np.full(len(means), cv))
        return np.clip(np.rint(means * factors), 1, self.max_tokens).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests in order of arrival within `span_s` seconds."""

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    span_s: float

    def __post_init__(self) -> None:
        if not len(self.arrival_s) == len(self.prompt_tokens) == len(self.output_tokens):
            raise ValueError("arrivals need one prompt and one output length each")
        if np.any(np.diff(self.arrival_s) < 0):
            raise ValueError("arrivals must be in order of time")

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def mean_rps(self) -> float:
        return len(self) / self.span_s if self.span_s > 0 else 0.0

    def between(self, start_s: float, end_s: float) -> "Arrivals":
        """Those of start_s <= t < end_s, with start_s as the new zero."""
        chosen = (self.arrival_s >= start_s) & (self.arrival_s < end_s)
        span_s = max(min(end_s, self.span_s) - start_s, 0.0)
        return self._chosen(np.flatnonzero(chosen), self.arrival_s[chosen] - start_s, span_s)

    def stretched(self, factor: float) -> "Arrivals":
        """The same requests over `factor` times the time: 0.5 doubles the rate."""
        return self._chosen(np.arange(len(self)), self.arrival_s * factor, self.span_s * factor)

    def spread(self, tick_s: float, rng: np.random.Generator) -> "Arrivals":
        """Each arrival moved forward by a uniform share of `tick_s`: undoes rounding to ticks."""
        moved = self.arrival_s + rng.uniform(0.0, tick_s, len(self))
        return self._chosen(np.arange(len(self)), moved, self.span_s + tick_s)

    def scaled_to(self, mean_rps: float, rng: np.random.Generator) -> "Arrivals":
        """Thinned, or copied with the copies scattered nearby, to about `mean_rps`.

        The time axis stays; copies beyond either end come back in at it.
        """
        factor = mean_rps / self.mean_rps
        copies = np.floor(factor + rng.random(len(self))).astype(np.int64)
        picked = np.repeat(np.arange(len(self)), copies)
        is_copy = np.concatenate(([False], picked[1:] == picked[:-1])) if len(picked) else picked
        shifts = rng.uniform(-COPY_SPREAD_S, COPY_SPREAD_S, len(picked)) * is_copy
        moved = np.abs(self.arrival_s[picked] + shifts)
        moved = np.where(moved > self.span_s, 2 * self.span_s - moved, moved)
        return self._chosen(picked, np.clip(moved, 0.0, self.span_s), self.span_s)

    def save(self, path: Path) -> None:
        """Write the per-request trace layout, readable by `trace_files.read_trace`."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("arrival_s", "prompt_tokens", "output_tokens"))
            rows = zip(self.arrival_s, self.prompt_tokens, self.output_tokens, strict=True)
            writer.writerows((f"{at_s:.6f}", prompt, output) for at_s, prompt, output in rows)

    def _chosen(self, index: IntArray, arrival_s: FloatArray, span_s: float) -> "Arrivals":
        order = np.argsort(arrival_s, kind="stable")
        index = index[order]
        return Arrivals(
            arrival_s[order], self.prompt_tokens[index], self.output_tokens[index], span_s
        )


@dataclass(frozen=True, slots=True)
class Bins:
    """Counts a bin: `t_s` starts of bins of `bin_s` seconds; missing bins are gaps, rate 0.

    `prompt_mean`, `output_mean` and `idc` are one value a bin, or None where the trace has none.
    """

    t_s: FloatArray
    requests: FloatArray
    bin_s: float
    prompt_mean: FloatArray | None = None
    output_mean: FloatArray | None = None
    idc: FloatArray | None = None

    @property
    def span_s(self) -> float:
        return float(self.t_s[-1] + self.bin_s)

    @property
    def mean_rps(self) -> float:
        """Over the recorded bins: gaps do not count."""
        return float(self.requests.mean() / self.bin_s)

    @classmethod
    def of(cls, t_s: FloatArray, requests: FloatArray, **means: FloatArray | None) -> Self:
        """Bins whose width is the commonest distance between their starts."""
        widths, counts = np.unique(np.diff(t_s), return_counts=True)
        return cls(t_s, requests, float(widths[np.argmax(counts)]), **means)

    def at(self, times_s: FloatArray, values: FloatArray) -> FloatArray:
        """A value a bin, interpolated between bin centres."""
        return np.asarray(np.interp(times_s, self.t_s + self.bin_s / 2, values))

    def rate_at(self, times_s: FloatArray) -> FloatArray:
        """Requests a second: interpolated between bin centres, 0 in gaps and outside."""
        bin_of = np.searchsorted(self.t_s, times_s, side="right") - 1
        recorded = (bin_of >= 0) & (times_s < self.t_s[np.maximum(bin_of, 0)] + self.bin_s)
        return np.where(recorded, self.at(times_s, self.requests / self.bin_s), 0.0)

    def noise_sd_at(self, times_s: FloatArray) -> FloatArray:
        """Relative sd of the rate inside a bin: 0.15, or what the trace's `idc` implies.

        Counts of mean m under a rate of relative sd s have variance / mean = 1 + m s^2; so
        idc 9.6 at 987 requests/s means s = sqrt(8.6 / 987) = 0.093
        (test_arrivals.py::test_idc_sets_the_noise).
        """
        if self.idc is None:
            return np.full(len(times_s), NOISE_SD)
        expected = np.maximum(self.requests / self.bin_s * IDC_WINDOW_S, 1e-9)
        sd = np.sqrt(np.maximum(self.idc - 1.0, 0.0) / expected)
        return self.at(times_s, np.minimum(sd, MAX_NOISE_SD))

    @property
    def step_s(self) -> float:
        """The grid that they are drawn on."""
        return min(MAX_STEP_S, self.bin_s / 6)

    def size(self, start_s: float, end_s: float | None) -> tuple[float, float]:
        """Steps and requests, about, in start_s..end_s: what drawing that would cost."""
        end_s = self.span_s if end_s is None else min(end_s, self.span_s)
        inside = (self.t_s < end_s) & (self.t_s + self.bin_s > start_s)
        steps = (end_s - start_s) / self.step_s if self.step_s > 0 else math.inf
        return steps, float(sum(self.requests[inside].tolist()))

    def draw(
        self,
        rng: np.random.Generator,
        lengths: Lengths,
        *,
        start_s: float = 0.0,
        end_s: float | None = None,
        scale: float = 1.0,
    ) -> Arrivals:
        """Requests of start_s..end_s at `scale` times the recorded rate; start_s becomes zero.

        Rate between bin centres x mean-one AR(1) lognormal noise, then a Poisson process.
        """
        step_s = self.step_s
        end_s = self.span_s if end_s is None else min(end_s, self.span_s)
        steps = max(int(np.ceil((end_s - start_s) / step_s)), 0)
        middles_s = start_s + step_middles(steps, step_s)
        wander = autoregressive(steps, np.exp(-step_s / NOISE_CORRELATION_S), rng)
        noise = lognormal_factors(wander, self.noise_sd_at(middles_s))
        arrival_s = poisson_times(self.rate_at(middles_s) * noise * scale, step_s, rng)
        arrival_s = arrival_s[arrival_s < end_s - start_s]
        means = [
            None if mean is None else self.at(arrival_s + start_s, mean)
            for mean in (self.prompt_mean, self.output_mean)
        ]
        prompts, outputs = lengths.draw(len(arrival_s), rng, *means)
        return Arrivals(arrival_s, prompts, outputs, end_s - start_s)


def lognormal_factors(normal: FloatArray, sd: FloatArray) -> FloatArray:
    """Standard normal values turned into mean-one lognormal ones of that relative sd."""
    variance = np.log1p(sd**2)
    return np.asarray(np.exp(np.sqrt(variance) * normal - variance / 2))


def autoregressive(count: int, memory: float, rng: np.random.Generator) -> FloatArray:
    """A stationary AR(1) series of unit variance; `memory` is the correlation of neighbours."""
    shocks = rng.standard_normal(count) * np.sqrt(1.0 - memory**2)
    values = np.empty(count)
    value = rng.standard_normal()
    for index in range(count):
        value = values[index] = memory * value + shocks[index]
    return values


def step_middles(count: int, step_s: float) -> FloatArray:
    """The middle of each of `count` steps from zero."""
    return np.linspace(step_s / 2, (count - 0.5) * step_s, count)


def poisson_times(rate_rps: FloatArray, step_s: float, rng: np.random.Generator) -> FloatArray:
    """Sorted moments of a Poisson process whose rate is constant within each step."""
    counts = rng.poisson(rate_rps * step_s)
    starts_s = np.repeat(np.arange(len(counts)) * step_s, counts)
    return np.sort(starts_s + rng.uniform(0.0, step_s, len(starts_s)))


def draw_from_rate(
    rate_at: Callable[[FloatArray], FloatArray],
    span_s: float,
    lengths: Lengths,
    rng: np.random.Generator,
    step_s: float = 0.1,
) -> Arrivals:
    """A Poisson process of a rate that `rate_at` gives for moments in 0..span_s."""
    rate_rps = rate_at(step_middles(int(np.ceil(span_s / step_s)), step_s))
    arrival_s = poisson_times(rate_rps, step_s, rng)
    arrival_s = arrival_s[arrival_s < span_s]
    return Arrivals(arrival_s, *lengths.draw(len(arrival_s), rng), span_s)
