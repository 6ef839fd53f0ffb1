"""Both trace layouts are read, and what is wrong with a file is said by line and column."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from serve_app.arrivals import Arrivals
from serve_app.trace_files import BadTrace, Selection, read_trace

TRACES = Path(__file__).resolve().parents[3] / "shared/traces"
PER_REQUEST = "arrival_s,prompt_tokens,output_tokens\n0,10,1\n0.5,20,0\n4,30,3\n"
PER_BIN = "t_s,requests,prompt_tokens_mean,idc,other\n0,600,100,1,x\n60,1200,,,\n120,600,300,1,\n"


def read(path: Path, text: str, selection: Selection | None = None) -> Arrivals:
    path.write_text(text)
    return read_trace(path, np.random.default_rng(3), selection)


def test_reads_one_row_a_request(tmp_path: Path) -> None:
    arrivals = read(tmp_path / "a.csv", PER_REQUEST)
    assert arrivals.between(0.0, 9.0).arrival_s.tolist() == [0.0, 0.5]
    assert arrivals.prompt_tokens.tolist()[:2] == [10, 20]
    assert arrivals.output_tokens.tolist()[:2] == [1, 1]


def test_reads_one_row_a_bin_and_fills_blanks(tmp_path: Path) -> None:
    arrivals = read(tmp_path / "a.csv", PER_BIN)
    assert arrivals.span_s == 180.0
    assert len(arrivals) == pytest.approx(2400, rel=0.2)
    middle = arrivals.between(60.0, 120.0)
    assert middle.prompt_tokens.mean() == pytest.approx(200.0, rel=0.2)


def test_reads_gzip(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(PER_REQUEST.encode()))
    assert len(read_trace(path, np.random.default_rng(3))) == 2


def test_draws_lengths_where_the_trace_has_none(tmp_path: Path) -> None:
    arrivals = read(tmp_path / "a.csv", "arrival_s\n0\n1\n2\n")
    assert arrivals.prompt_tokens.min() >= 1


@pytest.mark.parametrize("text", [PER_BIN, PER_REQUEST], ids=["a row a bin", "a row a request"])
def test_selects_scales_and_stretches(tmp_path: Path, text: str) -> None:
    rows = text if text is PER_BIN else text.splitlines()[0] + "\n" + requests_of(180, 10)
    played = read(
        tmp_path / "a.csv", rows, Selection(start_s=60.0, end_s=120.0, mean_rps=40.0, stretch=0.5)
    )
    assert played.span_s == pytest.approx(30.0, abs=0.1)
    peak = 1.35 if text is PER_BIN else 1.0  # the middle bin is the busiest of the trace
    assert played.mean_rps == pytest.approx(40.0 * peak, rel=0.25)


def requests_of(span_s: int, rps: int) -> str:
    return "\n".join(f"{index / rps},5,5" for index in range(span_s * rps)) + "\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no rows"),
        ("arrival_s\n", "holds no rows"),
        ("time,n\n0,1\n", "line 1: needs a column arrival_s.*has time, n"),
        ("arrival_s\n0\nsoon\n", "line 3: column arrival_s: 'soon' is no number"),
        ("arrival_s\n0\n\n-1\n", "line 4: column arrival_s: -1 is not a finite number"),
        ("arrival_s\n0\n2\n1\n", "line 4: column arrival_s: goes back in time"),
        ("arrival_s,prompt_tokens\n0,1\n1\n", "line 3: column prompt_tokens: '' is no number"),
        ("t_s,requests\n0,1\n0,2\n", "line 3: column t_s: goes back in time"),
        ("t_s,requests\n0,nan\n60,2\n", "line 2: column requests: nan is not a finite"),
        ("t_s,requests\n0,5\n", "needs two bins or more"),
        ("t_s,requests\n0,0\n60,0\n", "a request in one of them"),
        ("t_s,requests\n0,1e20\n60,1\n", "too many to draw"),
        ("t_s,requests\n0,1\n1,1\n9e9,1\n", "too many to draw"),
        ("t_s,requests\n0,1\n5e-324,1\n", "too many to draw"),
    ],
    ids=[
        "empty",
        "a header alone",
        "neither layout",
        "no number",
        "negative, after a blank line",
        "disorder",
        "a short row",
        "a bin twice",
        "not finite",
        "one bin",
        "no request",
        "more than there is room for",
        "a span of centuries",
        "bins of no length",
    ],
)
def test_says_what_is_wrong_and_where(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadTrace, match=says) as caught:
        read(tmp_path / "bad.csv", text)
    assert "bad.csv" in str(caught.value)


def test_a_file_that_is_no_gzip_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match=r"a\.csv\.gz: not a CSV file"):
        read(tmp_path / "a.csv.gz", PER_BIN)


@pytest.mark.skipif(not TRACES.exists(), reason=f"no traces at {TRACES}")
@pytest.mark.parametrize("path", sorted(TRACES.glob("*.csv.gz")), ids=lambda path: path.name)
def test_real_traces_play_at_the_rate_asked(path: Path) -> None:
    arrivals = read_trace(path, np.random.default_rng(3), Selection(mean_rps=0.2))
    assert 0.85 * 0.2 < arrivals.mean_rps < 1.1 * 0.2  # recording gaps stay gaps
    assert arrivals.prompt_tokens.min() >= 1
    assert arrivals.output_tokens.min() >= 1
