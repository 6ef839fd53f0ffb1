"""Load as it was recorded or drawn: requests in order of arrival, with their lengths."""

import csv
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int32]
Span = tuple[float, float]

DAY_S = 86_400.0
CHUNK_S = 6 * 3600.0


class TraceError(ValueError):
    """A trace file that cannot be understood; the message names the file and what is wrong."""


class Requests(NamedTuple):
    """Three arrays of one length, sorted by arrival."""

    arrival_s: Floats
    prompt_tokens: Counts
    output_tokens: Counts

    def between(self, start_s: float, end_s: float) -> "Requests":
        """Those that arrive in [start_s, end_s), as views."""
        low, high = np.searchsorted(self.arrival_s, (start_s, end_s))
        return self.at(slice(low, high))

    def at(self, index: slice | NDArray[np.intp]) -> "Requests":
        """Those at `index`, as views where it is a slice."""
        return Requests(self.arrival_s[index], self.prompt_tokens[index], self.output_tokens[index])


class Source(Protocol):
    """Where the requests come from; `draw` gives the same ones however they are cut up."""

    def draw(self, start_s: float, end_s: float) -> Requests:
        """The requests that arrive in [start_s, end_s)."""

    def stretched(self, factor: float) -> "Source":
        """The same requests over `factor` times the time."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Requests held one by one."""

    requests: Requests

    def draw(self, start_s: float, end_s: float) -> Requests:
        return self.requests.between(start_s, end_s)

    def stretched(self, factor: float) -> Self:
        arrival_s = self.requests.arrival_s * factor
        return replace(self, requests=self.requests._replace(arrival_s=arrival_s))


@dataclass(frozen=True, slots=True)
class Trace:
    """Load over [start_s, end_s) on the clock of the recording, held in little memory.

    `gaps` are the spans in which nothing was recorded: whatever is drawn there is neither learned
    from nor scored.
    """

    name: str
    source: Source
    start_s: float
    end_s: float
    gaps: tuple[Span, ...] = ()

    def chunks(self, chunk_s: float = CHUNK_S) -> Iterator[tuple[float, Requests]]:
        """(end of the chunk, its requests), in order."""
        start_s = self.start_s
        while start_s < self.end_s:
            end_s = min(start_s + chunk_s, self.end_s)
            yield end_s, self.source.draw(start_s, end_s)
            start_s = end_s

    def requests(self) -> Requests:
        """All requests at once."""
        return self.source.draw(self.start_s, self.end_s)

    def between(self, start_s: float, end_s: float) -> "Trace":
        """The part in [start_s, end_s); times stay those of the recording."""
        start_s, end_s = max(start_s, self.start_s), min(end_s, self.end_s)
        if end_s <= start_s:
            raise TraceError(f"{self.name}: no load between {start_s:g} s and {end_s:g} s")
        return replace(self, start_s=start_s, end_s=end_s)

    def stretched(self, factor: float) -> "Trace":
        """The same requests over `factor` times the time: rates fall by the factor."""
        return Trace(
            self.name,
            self.source.stretched(factor),
            self.start_s * factor,
            self.end_s * factor,
            tuple((start * factor, end * factor) for start, end in self.gaps),
        )

    def recorded_spans(self, start_s: float, end_s: float) -> tuple[Span, ...]:
        """[start_s, end_s) without the gaps."""
        spans = []
        for gap_start_s, gap_end_s in sorted(self.gaps):
            if gap_start_s > start_s:
                spans.append((start_s, min(gap_start_s, end_s)))
            start_s = max(start_s, gap_end_s)
        spans.append((start_s, end_s))
        return tuple((start, end) for start, end in spans if end > start)


@dataclass(frozen=True, slots=True)
class Bins:
    """Counts per bin. Missing bins are absent, never zero; unknown lengths are NaN."""

    name: str
    bin_s: float
    start_s: Floats
    requests: Floats
    prompt_mean: Floats
    output_mean: Floats

    @property
    def end_s(self) -> float:
        return float(self.start_s[-1]) + self.bin_s

    @property
    def gaps(self) -> tuple[Span, ...]:
        """Spans of at least half a bin that no bin covers."""
        ends_s = self.start_s[:-1] + self.bin_s
        missing = self.start_s[1:] - ends_s > self.bin_s / 2
        return tuple(zip(ends_s[missing].tolist(), self.start_s[1:][missing].tolist(), strict=True))

    def until(self, end_s: float) -> "Bins":
        """The bins that start before end_s."""
        kept = self.start_s < end_s
        columns = (self.start_s, self.requests, self.prompt_mean, self.output_mean)
        return Bins(self.name, self.bin_s, *(column[kept] for column in columns))

    def stretched(self, factor: float) -> "Bins":
        """The same counts in bins `factor` times as long."""
        return replace(self, bin_s=self.bin_s * factor, start_s=self.start_s * factor)


def from_requests(
    name: str, arrival_s: Floats, prompt_tokens: Counts, output_tokens: Counts, end_s: float
) -> Trace:
    """A trace over [0, end_s) of requests given as sorted arrays."""
    if np.any(np.diff(arrival_s) < 0):
        raise TraceError(f"{name}: arrivals are not sorted")
    columns = Requests(
        np.ascontiguousarray(arrival_s, np.float64),
        np.ascontiguousarray(prompt_tokens, np.int32),
        np.ascontiguousarray(output_tokens, np.int32),
    )
    return Trace(name, Recorded(columns), 0.0, end_s)


def spread(requests: Requests, tick_s: float, rng: np.random.Generator) -> Requests:
    """Arrivals that sit on ticks, each moved by a uniform part of its tick."""
    return reordered(requests, requests.arrival_s + rng.uniform(0, tick_s, len(requests.arrival_s)))


def scaled(requests: Requests, ratio: float, rng: np.random.Generator) -> Requests:
    """Each request kept (or repeated) `ratio` times on average; repeats arrive within 5 s of it."""
    whole = int(ratio)
    copies = whole + (rng.random(len(requests.arrival_s)) < ratio - whole)
    first = np.concatenate(([0], np.cumsum(copies)[:-1]))
    repeated = requests.at(np.repeat(np.arange(len(copies)), copies))
    shift_s = rng.uniform(-5, 5, len(repeated.arrival_s))
    shift_s[first[copies > 0]] = 0
    span = (requests.arrival_s[0], requests.arrival_s[-1])
    return reordered(repeated, np.clip(repeated.arrival_s + shift_s, *span))


def reordered(requests: Requests, arrival_s: Floats) -> Requests:
    """The requests at new arrival times, sorted again."""
    return requests._replace(arrival_s=arrival_s).at(np.argsort(arrival_s, kind="stable"))


def joined(parts: Sequence[Requests]) -> Requests:
    """Requests one part after another."""
    return Requests(
        np.concatenate([part.arrival_s for part in parts]),
        np.concatenate([part.prompt_tokens for part in parts]),
        np.concatenate([part.output_tokens for part in parts]),
    )


def read_columns(path: Path) -> dict[str, Floats]:
    """A CSV file (`.gz` or not) as columns of numbers; an empty cell is NaN."""
    with _open(path) as lines:
        reader = csv.reader(lines)
        header = next(reader, [])
        try:
            rows = [[float(cell or "nan") for cell in row] for row in reader]
        except ValueError as error:
            raise TraceError(f"{path}: line {reader.line_num}: {error}") from None
    if not rows or any(len(row) != len(header) for row in rows):
        raise TraceError(f"{path}: no rows, or rows of another length than the header")
    return dict(zip(header, np.array(rows, np.float64).T.copy(), strict=True))


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def read(path: Path) -> Requests | Bins:
    """A trace file of either layout: a request a row, or a bin a row."""
    columns = read_columns(path)
    if "arrival_s" in columns:
        return _requests(path, columns)
    if {"t_s", "requests"} <= columns.keys():
        return _bins(path, columns)
    found = ", ".join(columns)
    raise TraceError(f"{path}: neither arrival_s nor t_s,requests among the columns {found}")


def _requests(path: Path, columns: dict[str, Floats]) -> Requests:
    names: Sequence[str] = ("arrival_s", "prompt_tokens", "output_tokens")
    if missing := [name for name in names if name not in columns]:
        raise TraceError(f"{path}: no column {', '.join(missing)}")
    if any(np.isnan(columns[name]).any() for name in names):
        raise TraceError(f"{path}: empty cells in {', '.join(names)}")
    tokens = [np.rint(columns[name]).astype(np.int32) for name in names[1:]]
    arrival_s = columns["arrival_s"]
    return reordered(Requests(arrival_s, *tokens), arrival_s)


def _bins(path: Path, columns: dict[str, Floats]) -> Bins:
    known = ~np.isnan(columns["requests"])
    start_s = columns["t_s"][known]
    if len(start_s) < 2 or np.any(np.diff(start_s) <= 0):
        raise TraceError(f"{path}: fewer than two bins, or bins out of order")
    unknown = np.full(len(known), np.nan)
    return Bins(
        name=path.name.split(".")[0],
        bin_s=float(np.sort(np.diff(start_s))[(len(start_s) - 2) // 2]),
        start_s=start_s,
        requests=columns["requests"][known],
        prompt_mean=columns.get("prompt_tokens_mean", unknown)[known],
        output_mean=columns.get("output_tokens_mean", unknown)[known],
    )
