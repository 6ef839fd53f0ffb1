"""Trace files and the recipe from bins to requests."""

import gzip
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from controller.replay.series import Lengths, Recipe, draw, load, noise, six_series, windows
from controller.replay.trace import DAY_S, Bins, Requests, Trace, TraceError, from_requests, read


def bins(requests: list[float], *, bin_s: float = 600.0, missing: tuple[int, ...] = ()) -> Bins:
    kept = [k for k in range(len(requests)) if k not in missing]
    unknown = np.full(len(kept), math.nan)
    starts_s = np.array(kept) * bin_s
    counts = np.array([requests[k] for k in kept])
    return Bins("bins", bin_s, starts_s, counts, unknown, unknown)


def rate_rps(trace: Trace, start_s: float, end_s: float) -> float:
    return len(trace.between(start_s, end_s).requests().arrival_s) / (end_s - start_s)


def same(left: Requests, right: Requests) -> bool:
    return bool(
        np.array_equal(left.arrival_s, right.arrival_s)
        and np.array_equal(left.prompt_tokens, right.prompt_tokens)
        and np.array_equal(left.output_tokens, right.output_tokens)
    )


def test_reads_a_request_a_row(tmp_path: Path) -> None:
    path = tmp_path / "calls.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("arrival_s,prompt_tokens,output_tokens\n2,5,6\n0.5,10,20\n")
    trace = load(path)
    requests = trace.requests()
    assert (trace.name, trace.gaps) == ("calls", ())
    assert requests.arrival_s.tolist() == [0.5, 2]
    assert requests.prompt_tokens.tolist() == [10, 5]


def test_reads_a_bin_a_row_and_keeps_gaps_as_gaps(tmp_path: Path) -> None:
    path = tmp_path / "bins.csv"
    path.write_text("t_s,requests,prompt_tokens_mean\n0,5,100\n60,,\n120,7,\n180,9,90\n")
    recording = read(path)
    assert isinstance(recording, Bins)
    assert recording.requests.tolist() == [5, 7, 9]
    assert list(recording.gaps) == list(load(path).gaps) == [(60.0, 120.0)]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="an empty file"),
        pytest.param("t_s,requests\n", id="no rows"),
        pytest.param("a,b\n1,2\n", id="other columns"),
        pytest.param("t_s,requests\n0,x\n", id="a word for a number"),
        pytest.param("t_s,requests\n0\n", id="a short row"),
        pytest.param("t_s,requests\n60,1\n0,1\n", id="bins out of order"),
        pytest.param("arrival_s,prompt_tokens\n0,1\n", id="no output lengths"),
        pytest.param("arrival_s,prompt_tokens,output_tokens\n0,,1\n", id="an empty length"),
    ],
)
def test_says_what_is_wrong_with_a_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(TraceError, match=r"bad\.csv"):
        read(path)


def test_the_rate_is_interpolated_between_bin_centres_and_scaled_to_the_mean() -> None:
    trace = draw(bins([100.0, 300.0] * 72), Recipe(mean_rps=50, noise_sd=0, seed=1))
    assert rate_rps(trace, 0, trace.end_s) == pytest.approx(50, rel=0.01)
    # Bin centres at 300 s (half the mean) and 900 s (one and a half times).
    assert rate_rps(trace, 280, 320) == pytest.approx(25, rel=0.15)
    assert rate_rps(trace, 880, 920) == pytest.approx(75, rel=0.15)
    assert rate_rps(trace, 590, 610) == pytest.approx(50, rel=0.15)


def test_noise_has_mean_one_and_the_stated_spread_and_memory() -> None:
    recipe = Recipe(noise_sd=0.15, noise_correlation_s=180, step_s=10)
    log = np.log(noise(400_000, recipe, np.random.default_rng(0)))
    assert np.exp(log).mean() == pytest.approx(1, abs=0.01)
    assert log.std() == pytest.approx(0.15, rel=0.03)
    centred = log - log.mean()
    lag18 = (centred[18:] * centred[:-18]).mean() / centred.var()
    assert lag18 == pytest.approx(math.exp(-1), abs=0.03)


def test_spikes_add_requests_for_minutes() -> None:
    level = bins([3000.0] * 144)
    calm, spiked = (draw(level, Recipe(spikes=count, noise_sd=0)) for count in (0, 5))
    steps = [np.bincount((t.requests().arrival_s // 60).astype(int)) for t in (calm, spiked)]
    raised = (steps[1] - steps[0]) / 60 > 2.5
    assert 8 <= raised.sum() <= 5 * 16
    assert 5 <= steps[1].max() / 60 < 25


def test_lengths_are_lognormal_around_the_stated_means() -> None:
    lengths = Lengths(prompt_mean=500, prompt_sigma=0.5, output_mean=100, output_sigma=0.3)
    requests = draw(bins([60_000.0] * 6), Recipe(lengths=lengths)).requests()
    assert requests.prompt_tokens.mean() == pytest.approx(500, rel=0.02)
    assert np.log(requests.prompt_tokens).std() == pytest.approx(0.5, rel=0.02)
    assert requests.output_tokens.mean() == pytest.approx(100, rel=0.02)
    assert requests.output_tokens.dtype == np.int32


def test_recorded_lengths_are_used_on_request() -> None:
    level = bins([60_000.0] * 6)
    recorded = Bins("r", 600.0, level.start_s, level.requests, np.full(6, 50.0), level.output_mean)
    requests = draw(recorded, Recipe(recorded_lengths=True)).requests()
    assert requests.prompt_tokens.mean() == pytest.approx(50, rel=0.03)
    assert requests.output_tokens.mean() == pytest.approx(250, rel=0.03)


@pytest.mark.parametrize("bridged", [True, False])
def test_a_gap_is_listed_and_left_out_of_what_counts(bridged: bool) -> None:
    trace = draw(bins([6000.0] * 12, missing=(4, 5)), Recipe(mean_rps=10, bridge_gaps=bridged))
    assert list(trace.gaps) == [(2400.0, 3600.0)]
    assert trace.recorded_spans(600, 7200) == ((600, 2400), (3600, 7200))
    assert trace.recorded_spans(3000, 3500) == ()
    assert trace.recorded_spans(2000, 3000) == ((2000, 2400),)
    assert rate_rps(trace, 2400, 3600) == pytest.approx(10 if bridged else 0, rel=0.3)


def test_a_slice_holds_the_very_requests_of_the_whole() -> None:
    trace = draw(bins([6000.0] * 60), Recipe())
    whole = trace.requests()
    assert np.all(np.diff(whole.arrival_s) >= 0)
    assert same(trace.between(5000, 21_000).requests(), whole.between(5000, 21_000))
    pieces = [requests for _, requests in trace.chunks(777)]
    assert sum(len(piece.arrival_s) for piece in pieces) == len(whole.arrival_s)
    assert same(pieces[3], whole.between(3 * 777, 4 * 777))


def test_equal_seeds_draw_equal_requests() -> None:
    first, again, other = (draw(bins([600.0] * 9), Recipe(seed=s)).requests() for s in (3, 3, 4))
    assert same(first, again)
    assert not same(first, other)


def test_stretching_keeps_the_requests_and_lowers_the_rate() -> None:
    drawn = draw(bins([6000.0] * 12, missing=(4,)), Recipe())
    held = from_requests("held", *drawn.requests(), end_s=drawn.end_s)
    for trace in (drawn, held):
        longer = trace.stretched(2)
        assert longer.end_s == 2 * trace.end_s
        assert longer.requests().arrival_s == pytest.approx(2 * trace.requests().arrival_s)
    assert drawn.stretched(2).gaps == ((4800, 6000),)


def test_a_slice_beyond_the_trace_is_refused() -> None:
    with pytest.raises(TraceError, match="no load between"):
        draw(bins([6.0] * 3), Recipe()).between(5000, 6000)


@pytest.mark.parametrize("ratio", [0.4, 1.0, 2.5])
def test_a_recorded_trace_is_scaled_by_keeping_or_repeating_requests(
    tmp_path: Path, ratio: float
) -> None:
    rng = np.random.default_rng(0)
    arrivals = np.sort(rng.uniform(0, 2000, 20_000))
    path = tmp_path / "calls.csv"
    rows = "\n".join(f"{at:.3f},{k},{k}" for k, at in enumerate(arrivals))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}\n")
    trace = load(path, Recipe(mean_rps=10 * ratio))
    requests = trace.requests()
    assert len(requests.arrival_s) == pytest.approx(20_000 * ratio, rel=0.02)
    assert np.all(np.diff(requests.arrival_s) >= 0)
    repeats = np.unique(requests.prompt_tokens, return_counts=True)[1]
    assert repeats.max() <= math.ceil(ratio * 1.001)


def test_ticks_are_spread_over_their_length(public_traces: Path) -> None:
    trace = load(public_traces / "mooncake_conversation.csv.gz", tick_s=3)
    arrival_s = trace.requests().arrival_s
    assert len(np.unique(arrival_s)) > 0.99 * len(arrival_s)


def test_the_six_series_have_their_mean_and_their_windows(public_traces: Path) -> None:
    series = six_series(public_traces)
    assert [name for name, _ in windows(series)][:3] == [
        "azure_s0@4.1",
        "azure_s0@5.5",
        "azure_s10@4.1",
    ]
    assert len(windows(series)) == 15
    for name, trace in series.items():
        spans = trace.recorded_spans(trace.start_s, trace.end_s)
        recorded_s = sum(end - start for start, end in spans)
        count = sum(len(requests.arrival_s) for _, requests in trace.chunks())
        bridged_s = trace.end_s - recorded_s
        assert count / (recorded_s + bridged_s) == pytest.approx(10, rel=0.03), name
        assert trace.end_s / DAY_S == pytest.approx(
            {"azure_s0": 7, "azure_s10": 7, "m_small": 9}.get(name, 14), abs=0.01
        )
        assert all(a[1] <= b[0] for a, b in pairwise(trace.gaps))
