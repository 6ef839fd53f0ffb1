"""What happened to every request of a played load."""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serve_app.arrivals import Arrivals, FloatArray, IntArray

COLUMNS = (
    "scheduled_s", "send_lag_s", "ttft_s", "e2e_s", "chunks", "prompt_tokens", "output_tokens",
    "error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Summary:
    """A played load in a few numbers, seconds; percentiles leave out what never came.

    TTFT percentiles are of the requests that got a first token, end-to-end ones of those that
    ended without an error: read them beside `errors`. NaN where there is none.
    """

    requests: int
    errors: int
    error_kinds: dict[str, int]
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    e2e_p50_s: float
    e2e_p95_s: float
    e2e_p99_s: float
    send_lag_p50_s: float
    send_lag_p99_s: float
    send_lag_max_s: float
    chunks: int

    def as_json(self) -> dict[str, Any]:
        """Ready for json.dumps: NaN becomes None."""
        return {
            name: None if isinstance(value, float) and np.isnan(value) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One entry a request, in order of schedule; second 0 is `started_at_s` (time.monotonic).

    `ttft_s` and `e2e_s` count from the *scheduled* moment, so a late sender cannot hide a wait.
    `ttft_s` is NaN where no token came, `send_lag_s` where the request was never sent. `e2e_s`
    of a failed request is when it failed. `error` is "" or its kind (see `loadgen.py`).
    """

    started_at_s: float
    scheduled_s: FloatArray
    send_lag_s: FloatArray
    ttft_s: FloatArray
    e2e_s: FloatArray
    chunks: IntArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    error: Sequence[str]

    def __len__(self) -> int:
        return len(self.scheduled_s)

    @classmethod
    def unsent(cls, arrivals: Arrivals, started_at_s: float, error: str) -> "LoadResult":
        """A result to be filled in: nothing sent yet, every request with `error`."""
        count = len(arrivals)
        return cls(
            started_at_s,
            arrivals.arrival_s,
            send_lag_s=np.full(count, np.nan),
            ttft_s=np.full(count, np.nan),
            e2e_s=np.full(count, np.nan),
            chunks=np.zeros(count, dtype=np.int64),
            prompt_tokens=arrivals.prompt_tokens,
            output_tokens=arrivals.output_tokens,
            error=[error] * count,
        )

    def failed(self) -> NDArray[np.bool_]:
        return np.array([bool(error) for error in self.error], dtype=np.bool_)

    def slo_violation_ratio(self, slo_ttft_s: float) -> float:
        """Share of all requests that failed, or whose first token came after the SLO."""
        if not len(self):
            return 0.0
        kept = ~self.failed() & (self.ttft_s <= slo_ttft_s)
        return 1.0 - float(np.count_nonzero(kept)) / len(self)

    def summary(self) -> Summary:
        failed = self.failed()
        answered_s = self.e2e_s[~failed]
        return Summary(
            requests=len(self),
            errors=int(np.count_nonzero(failed)),
            error_kinds=dict(Counter(error for error in self.error if error)),
            ttft_p50_s=_percentile(self.ttft_s, 50),
            ttft_p95_s=_percentile(self.ttft_s, 95),
            ttft_p99_s=_percentile(self.ttft_s, 99),
            e2e_p50_s=_percentile(answered_s, 50),
            e2e_p95_s=_percentile(answered_s, 95),
            e2e_p99_s=_percentile(answered_s, 99),
            send_lag_p50_s=_percentile(self.send_lag_s, 50),
            send_lag_p99_s=_percentile(self.send_lag_s, 99),
            send_lag_max_s=_percentile(self.send_lag_s, 100),
            chunks=int(self.chunks.sum()),
        )

    def save_csv(self, path: Path) -> None:
        """One row a request; blank where a number is NaN."""
        with path.open("w", newline="") as file:
            file.write(f"# started_at_s={self.started_at_s!r} (time.monotonic)\n")
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            columns = (getattr(self, name) for name in COLUMNS)
            for row in zip(*columns, strict=True):
                writer.writerow([_cell(value) for value in row])

    @classmethod
    def read_csv(cls, path: Path) -> "LoadResult":
        """What `save_csv` wrote; ValueError if it is something else."""
        with path.open(newline="") as file:
            first = file.readline()
            reader = csv.DictReader(file)
            if not first.startswith("# started_at_s=") or tuple(reader.fieldnames or ()) != COLUMNS:
                raise ValueError(f"{path}: not a result of the load generator")
            rows = list(reader)
        started_at_s = float(first.split("=")[1].split()[0])
        numbers = [[float(row[name] or "nan") for row in rows] for name in COLUMNS[:-1]]
        scheduled, lag, ttft, e2e = (np.array(column) for column in numbers[:4])
        chunks, prompts, outputs = (np.array(column, dtype=np.int64) for column in numbers[4:])
        errors = [row["error"] for row in rows]
        return cls(started_at_s, scheduled, lag, ttft, e2e, chunks, prompts, outputs, errors)


def _percentile(values: FloatArray, rank: float) -> float:
    present = values[~np.isnan(values)]
    return float(np.percentile(present, rank)) if len(present) else float("nan")


def _cell(value: float | str) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.6f}"
    return str(value)
