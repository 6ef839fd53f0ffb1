"""Loads for a backtest: trace files, a user's Prometheus, or a recipe. Errors name the option."""

import csv
import gzip
import importlib
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from controller.replay.series import Lengths
from controller.replay.trace import DAY_S, Bins, Counts, Floats, Requests, TraceError, read

if TYPE_CHECKING:
    from controller.adapters.prometheus.backfill import Past

Recording = Requests | Bins
COLUMNS = (
    "arrival_s",
    "prompt_tokens",
    "output_tokens",
    "t_s",
    "requests",
    "prompt_tokens_mean",
    "output_tokens_mean",
)
UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": DAY_S}
BIN_S = 60.0


class LoadError(ValueError):
    """A load that cannot be had; the message names the option and how to mend it."""


def duration_s(option: str, text: str) -> float:
    """Seconds in `90`, `15m`, `6h`, `14d`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    if match is None or match[2] not in UNITS_S:
        raise LoadError(f"{option}: {text!r} is no duration; write seconds, or as 15m, 6h, 14d")
    return float(match[1]) * UNITS_S[match[2]]


def from_file(path: Path, columns: Mapping[str, str]) -> Recording:
    """A trace file; `columns` gives the file's names for ours, where they differ."""
    if not path.is_file():
        raise LoadError(f"--trace: {path}: no such file")
    try:
        if not columns and path.suffix != ".parquet":
            return read(path)
        return _mapped(path, _table(path), columns)
    except TraceError as error:
        hint = "" if columns else "; name other columns as --column arrival_s=timestamp"
        raise LoadError(f"--trace: {error}{hint}") from None
    except (OSError, UnicodeDecodeError, EOFError, zlib.error, csv.Error) as error:
        raise LoadError(f"--trace: {path}: cannot be read: {error}") from None


def column_names(given: Iterable[str]) -> dict[str, str]:
    """`arrival_s=timestamp` and the like, as our name -> the file's."""
    names = {}
    for text in given:
        ours, equals, theirs = text.partition("=")
        if not equals or ours not in COLUMNS or not theirs:
            known = ", ".join(COLUMNS)
            raise LoadError(f"--column: {text!r}: write OURS=THEIRS, OURS one of {known}")
        names[ours] = theirs
    return names


def _table(path: Path) -> dict[str, Sequence[Any]]:
    """The columns of a CSV or Parquet file, as they stand there."""
    if path.suffix == ".parquet":
        try:
            parquet: Any = importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise LoadError(
                f"--trace: {path}: Parquet needs pyarrow: pip install pyarrow"
            ) from None
        table: dict[str, Sequence[Any]] = parquet.read_table(path).to_pydict()
        return table
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as lines:
        reader = csv.reader(lines)
        header = next(reader, [])
        rows = [row for row in reader if len(row) == len(header)]
    return dict(zip(header, zip(*rows, strict=True), strict=False)) if rows else {}


def _mapped(
    path: Path, table: Mapping[str, Sequence[Any]], columns: Mapping[str, str]
) -> Recording:
    names = {ours: columns.get(ours, ours) for ours in COLUMNS}
    held = {ours: table[theirs] for ours, theirs in names.items() if theirs in table}
    if missing := [theirs for theirs in columns.values() if theirs not in table]:
        found = ", ".join(table) or "nothing"
        raise TraceError(f"{path}: no column {', '.join(missing)} among {found}")
    numbers = {name: _numbers(path, name, cells) for name, cells in held.items()}
    if "arrival_s" in numbers:
        return _requests(numbers)
    if {"t_s", "requests"} <= numbers.keys():
        return _bins(path, numbers)
    raise TraceError(f"{path}: neither arrival_s nor t_s and requests among the columns")


def _numbers(path: Path, name: str, cells: Sequence[Any]) -> Floats:
    """Numbers, or times as seconds; an empty cell is NaN."""
    try:
        return np.array([_number(cell) for cell in cells], np.float64)
    except ValueError as error:
        raise TraceError(f"{path}: column {name}: {error}") from None


def _number(cell: Any) -> float:
    if cell is None or cell == "":
        return float("nan")
    if isinstance(cell, datetime):
        return cell.timestamp()
    try:
        return float(cell)
    except ValueError:
        # Seven digits of a second, as Azure writes them, are one too many for fromisoformat.
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", cell)).timestamp()


def _requests(numbers: Mapping[str, Floats]) -> Requests:
    order = np.argsort(numbers["arrival_s"], kind="stable")
    arrival_s = numbers["arrival_s"][order] - np.nanmin(numbers["arrival_s"])
    usual = Lengths()

    def tokens(name: str, otherwise: float) -> Counts:
        given = numbers.get(name, np.full(len(order), otherwise))[order]
        counts: Counts = np.rint(np.nan_to_num(given, nan=otherwise)).astype(np.int32)
        return counts

    return Requests(
        arrival_s,
        tokens("prompt_tokens", usual.prompt_mean),
        tokens("output_tokens", usual.output_mean),
    )


def _bins(path: Path, numbers: Mapping[str, Floats]) -> Bins:
    known = ~np.isnan(numbers["requests"])
    start_s = numbers["t_s"][known] - numbers["t_s"][known].min(initial=np.inf)
    if len(start_s) < 2 or np.any(np.diff(start_s) <= 0):
        raise TraceError(f"{path}: fewer than two bins, or bins out of order")
    unknown = np.full(len(known), np.nan)
    return Bins(
        path.name.split(".")[0],
        float(np.sort(np.diff(start_s))[(len(start_s) - 2) // 2]),
        start_s,
        numbers["requests"][known],
        numbers.get("prompt_tokens_mean", unknown)[known],
        numbers.get("output_tokens_mean", unknown)[known],
    )


@dataclass(frozen=True)
class Synthetic:
    """Load by a recipe: a daily cycle x gamma bursts x spikes at set hours, drawn with `seed`.

    The rate is 1 + `daily` x a cosine with its peak at 14:00, times a mean-one gamma variable of
    coefficient of variation `burst` drawn every `burst_s`, times `spike` for `spike_s` from each of
    the hours `at` on, every day.
    """

    seed: float = 1
    days: float = 7
    daily: float = 0.5
    burst: float = 0.2
    burst_s: float = 300
    spike: float = 2
    spike_s: float = 900
    at: tuple[float, ...] = (9.0,)

    def bins(self) -> Bins:
        """Its counts per minute; the scale is set later."""
        size = round(self.days * DAY_S / BIN_S)
        start_s = np.arange(size, dtype=np.float64) * BIN_S
        hour = start_s % DAY_S / 3600
        rate = 1 + self.daily * np.cos(2 * np.pi * (hour - 14) / 24)
        rng = np.random.default_rng(int(self.seed))
        if self.burst > 0:
            block = (start_s // self.burst_s).astype(np.int64)
            shape = self.burst**-2
            rate *= rng.gamma(shape, 1 / shape, block[-1] + 1)[block]
        for begins in self.at:
            rate[(hour >= begins) & (hour < begins + self.spike_s / 3600)] *= self.spike
        unknown = np.full(size, np.nan)
        return Bins("synthetic", BIN_S, start_s, 600 * rate, unknown, unknown)


def synthetic(text: str) -> Synthetic:
    """A recipe from `seed=1,days=7,daily=0.5,burst=0.2,spike=2,at=9;18`."""
    known = {entry.name for entry in fields(Synthetic)}
    given: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or name not in known:
            raise LoadError(
                f"--synthetic: {part!r}: write NAME=NUMBER, NAME one of {sorted(known)}"
            )
        try:
            given[name] = (
                tuple(map(float, filter(None, value.split(";")))) if name == "at" else float(value)
            )
        except ValueError:
            raise LoadError(f"--synthetic: {name}: {value!r} is no number") from None
    recipe = replace(Synthetic(), **given)
    limits = {"days": (0.05, 60), "daily": (0, 1), "burst": (0, 2), "burst_s": (BIN_S, DAY_S)}
    for name, (least, most) in limits.items():
        if not least <= getattr(recipe, name) <= most:
            raise LoadError(f"--synthetic: {name}: must be between {least:g} and {most:g}")
    return recipe


def cut(recording: Recording, start_s: float, end_s: float, stretch: float) -> Recording:
    """The part in [start_s, end_s), its start at 0, over `stretch` times the time."""
    if isinstance(recording, Bins):
        kept = (recording.start_s >= start_s) & (recording.start_s < end_s)
        if kept.sum() < 2:
            raise LoadError(
                f"--start, --end: fewer than two bins between {start_s:g} and {end_s:g} s"
            )
        columns = (recording.requests, recording.prompt_mean, recording.output_mean)
        times_s = recording.start_s[kept] - max(start_s, 0.0)
        part = Bins(recording.name, recording.bin_s, times_s, *(c[kept] for c in columns))
        return part.stretched(stretch)
    requests = recording.between(start_s, end_s)
    if len(requests.arrival_s) < 2:
        raise LoadError(
            f"--start, --end: fewer than two requests between {start_s:g} and {end_s:g} s"
        )
    return requests._replace(arrival_s=(requests.arrival_s - max(start_s, 0.0)) * stretch)


def from_past(past: "Past", bin_s: float) -> dict[str, Bins]:
    """What Prometheus knew of each deployment's arrivals, by name; what it did not stays a gap."""
    found = {}
    for target, rates in past.rates.items():
        known = np.flatnonzero(np.isfinite(rates))
        if len(known) < 2 or rates[known].sum() <= 0:
            continue
        unknown = np.full(len(known), np.nan)
        found[str(target)] = Bins(
            str(target),
            bin_s,
            known.astype(np.float64) * bin_s,
            rates[known] * bin_s,
            unknown,
            unknown,
        )
    return found
