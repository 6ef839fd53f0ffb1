"""Trace files, CSV or gzipped CSV, in two layouts: one row a request, or one row a bin."""

import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from serve_app.arrivals import Arrivals, Bins, FloatArray, Lengths

MOST_REQUESTS = 5e7
MOST_STEPS = 1e7
"""19 days of bins of a second."""


class BadTrace(ValueError):
    """A trace file that cannot be read; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which part of a trace to play, and how. Times are the trace's own, from its start.

    `mean_rps` is the mean that the whole trace would have as played; `stretch` multiplies time
    (0.01 plays a day in 14.4 minutes); `tick_s` spreads arrivals recorded on ticks.
    """

    start_s: float = 0.0
    end_s: float | None = None
    mean_rps: float | None = None
    stretch: float = 1.0
    tick_s: float = 0.0


def read_trace(
    path: Path,
    rng: np.random.Generator,
    selection: Selection | None = None,
    lengths: Lengths | None = None,
) -> Arrivals:
    """The requests of a trace file of either layout; `lengths` where it has none.

    BadTrace on a file that is neither; OSError if it cannot be opened.
    """
    selection = selection or Selection()
    lengths = lengths or Lengths()
    header, rows = _read_rows(path)
    if "arrival_s" in header:
        return _requests(_Table(path, header, rows), rng, selection, lengths)
    if "t_s" in header and "requests" in header:
        bins = _bins(_Table(path, header, rows))
        return _from_bins(path, bins, rng, selection, lengths)
    raise BadTrace(
        f"{path}: line 1: needs a column arrival_s, or the columns t_s and requests; "
        f"has {', '.join(header) or 'nothing'}"
    )


@dataclass(frozen=True, slots=True)
class _Table:
    path: Path
    header: Sequence[str]
    rows: Sequence[tuple[int, Sequence[str]]]
    """Each with its line in the file."""

    def column(self, name: str, *, blank: bool = False) -> FloatArray | None:
        """A column's numbers; None if the file has no such column; `blank` cells become NaN."""
        if name not in self.header:
            return None
        at = self.header.index(name)
        cells = (self._number(line, row, at, blank) for line, row in self.rows)
        return np.fromiter(cells, dtype=np.float64, count=len(self.rows))

    def ascending(self, name: str, *, strictly: bool) -> FloatArray:
        values = self.column(name)
        assert values is not None
        steps = np.diff(values)
        wrong = np.flatnonzero(steps <= 0 if strictly else steps < 0)
        if len(wrong):
            self._fail(self.rows[wrong[0] + 1][0], name, "goes back in time")
        return values

    def _number(self, line: int, row: Sequence[str], at: int, blank: bool) -> float:
        cell = row[at].strip() if at < len(row) else ""
        if not cell and blank:
            return math.nan
        try:
            value = float(cell)
        except ValueError:
            self._fail(line, self.header[at], f"{cell!r} is no number")
        if not math.isfinite(value) or value < 0:
            self._fail(line, self.header[at], f"{cell} is not a finite number >= 0")
        return value

    def _fail(self, line: int, column: str, fault: str) -> None:
        raise BadTrace(f"{self.path}: line {line}: column {column}: {fault}")


def _read_rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    with _opened(path) as file:
        try:
            reader = csv.reader(file)
            rows = [(reader.line_num, row) for row in reader if row]
        except (csv.Error, UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BadTrace(f"{path}: not a CSV file: {error}") from error
    if len(rows) < 2:
        raise BadTrace(f"{path}: holds no rows")
    return [name.strip() for name in rows[0][1]], rows[1:]


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", newline="") as file:
        yield file


def _requests(
    table: _Table, rng: np.random.Generator, selection: Selection, lengths: Lengths
) -> Arrivals:
    arrival_s = table.ascending("arrival_s", strictly=False)
    prompts, outputs = lengths.draw(len(arrival_s), rng)
    own_prompts, own_outputs = table.column("prompt_tokens"), table.column("output_tokens")
    arrivals = Arrivals(
        arrival_s - arrival_s[0],
        prompts if own_prompts is None else np.maximum(own_prompts, 1).astype(np.int64),
        outputs if own_outputs is None else np.maximum(own_outputs, 1).astype(np.int64),
        float(arrival_s[-1] - arrival_s[0]),
    )
    if selection.tick_s:
        arrivals = arrivals.spread(selection.tick_s, rng)
    if selection.mean_rps is not None:
        arrivals = arrivals.scaled_to(selection.mean_rps * selection.stretch, rng)
    end_s = arrivals.span_s if selection.end_s is None else selection.end_s
    return arrivals.between(selection.start_s, end_s).stretched(selection.stretch)


def _from_bins(
    path: Path, bins: Bins, rng: np.random.Generator, selection: Selection, lengths: Lengths
) -> Arrivals:
    scale = 1.0
    if selection.mean_rps is not None:
        scale = selection.mean_rps * selection.stretch / bins.mean_rps
    steps, expected = bins.size(selection.start_s, selection.end_s)
    if steps > MOST_STEPS or not expected * scale <= MOST_REQUESTS:
        raise BadTrace(
            f"{path}: about {expected * scale:.3g} requests in {steps:.3g} steps are too many to "
            f"draw, {MOST_REQUESTS:.0e} in {MOST_STEPS:.0e} the most: play a part, or scale it"
        )
    arrivals = bins.draw(
        rng, lengths, start_s=selection.start_s, end_s=selection.end_s, scale=scale
    )
    return arrivals.stretched(selection.stretch)


def _bins(table: _Table) -> Bins:
    t_s = table.ascending("t_s", strictly=True)
    requests = table.column("requests")
    assert requests is not None
    if len(t_s) < 2 or not requests.any():
        raise BadTrace(f"{table.path}: needs two bins or more, and a request in one of them")
    return Bins.of(
        t_s - t_s[0],
        requests,
        prompt_mean=_filled(table.column("prompt_tokens_mean", blank=True)),
        output_mean=_filled(table.column("output_tokens_mean", blank=True)),
        idc=_filled(table.column("idc", blank=True)),
    )


def _filled(values: FloatArray | None) -> FloatArray | None:
    """Blanks filled from their neighbours; None where nothing is known."""
    if values is None or np.isnan(values).all():
        return None
    known = np.flatnonzero(~np.isnan(values))
    return np.asarray(np.interp(np.arange(len(values)), known, values[known]))
