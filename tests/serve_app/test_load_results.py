"""Results of a played load: summary, violations, and a CSV that comes back the same."""

import json
from pathlib import Path

import numpy as np
import pytest

from serve_app.arrivals import Arrivals
from serve_app.load_results import LoadResult

NAN = float("nan")


def result() -> LoadResult:
    tokens = np.array([5, 5, 5, 5], dtype=np.int64)
    return LoadResult(
        started_at_s=100.25,
        scheduled_s=np.array([0.0, 1.0, 2.0, 3.0]),
        send_lag_s=np.array([0.001, 0.002, 0.003, NAN]),
        ttft_s=np.array([0.5, 2.0, NAN, NAN]),
        e2e_s=np.array([1.0, 3.0, 60.0, NAN]),
        chunks=np.array([2, 2, 0, 0], dtype=np.int64),
        prompt_tokens=tokens,
        output_tokens=tokens,
        error=("", "", "timeout", "unsent"),
    )


def test_a_request_that_failed_or_came_late_violates() -> None:
    assert result().slo_violation_ratio(1.0) == 0.75
    assert result().slo_violation_ratio(2.0) == 0.5


def test_summary_counts_errors_and_leaves_them_out_of_latencies() -> None:
    summary = result().summary()
    assert (summary.requests, summary.errors) == (4, 2)
    assert summary.error_kinds == {"timeout": 1, "unsent": 1}
    assert summary.ttft_p50_s == pytest.approx(1.25)
    assert summary.e2e_p50_s == pytest.approx(2.0)
    assert summary.send_lag_max_s == pytest.approx(0.003)


def test_an_empty_load_is_all_nothing_and_still_json() -> None:
    nothing = Arrivals(np.array([]), np.array([], np.int64), np.array([], np.int64), 0.0)
    empty = LoadResult.unsent(nothing, 0.0, "unsent")
    assert empty.slo_violation_ratio(1.0) == 0.0
    assert json.loads(json.dumps(empty.summary().as_json()))["ttft_p50_s"] is None


def test_csv_comes_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    result().save_csv(path)
    back = LoadResult.read_csv(path)
    assert back.started_at_s == 100.25
    assert list(back.error) == list(result().error)
    for name in ("scheduled_s", "send_lag_s", "ttft_s", "e2e_s", "chunks", "output_tokens"):
        np.testing.assert_allclose(getattr(back, name), getattr(result(), name))


def test_another_csv_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"other\.csv: not a result"):
        LoadResult.read_csv(path)
