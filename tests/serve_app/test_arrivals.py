"""Arrivals: seeded, of the right rate, noise and lengths, and cut without loss."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.arrivals import (
    Arrivals,
    Bins,
    Lengths,
    autoregressive,
    draw_from_rate,
    lognormal_factors,
    poisson_times,
)

LENGTHS = Lengths()


def rng(seed: int = 3) -> np.random.Generator:
    return np.random.default_rng(seed)


def even(count: int = 1000, span_s: float = 100.0) -> Arrivals:
    ones = np.arange(1, count + 1)
    return Arrivals(np.linspace(0.0, span_s, count, endpoint=False), ones, ones, span_s)


def bins(counts: list[float], bin_s: float = 600.0, idc: float | None = None) -> Bins:
    t_s = np.array([index * bin_s for index in range(len(counts))])
    return Bins(
        t_s,
        np.array(counts),
        bin_s,
        prompt_mean=np.full(len(counts), 100.0),
        idc=None if idc is None else np.full(len(counts), idc),
    )


def test_the_same_seed_gives_the_same_requests() -> None:
    one, same, other = (bins([600.0] * 6).draw(rng(seed), LENGTHS) for seed in (3, 3, 4))
    assert np.array_equal(one.arrival_s, same.arrival_s)
    assert np.array_equal(one.prompt_tokens, same.prompt_tokens)
    assert len(one) != len(other) or not np.array_equal(one.arrival_s, other.arrival_s)


def test_bins_keep_their_rate_and_its_shape() -> None:
    drawn = bins([60_000.0, 60_000.0, 180_000.0, 180_000.0]).draw(rng(), LENGTHS)
    assert drawn.mean_rps == pytest.approx(200.0, rel=0.1)
    early, late = drawn.between(0.0, 900.0), drawn.between(1500.0, 2400.0)
    assert late.mean_rps / early.mean_rps == pytest.approx(3.0, rel=0.15)


def test_rate_is_interpolated_between_centres_and_zero_in_gaps() -> None:
    gappy = Bins.of(np.array([0.0, 10.0, 40.0, 50.0]), np.array([10.0, 20.0, 40.0, 40.0]))
    assert gappy.bin_s == 10.0
    rates = gappy.rate_at(np.array([5.0, 10.0, 15.0, 25.0, 39.9, 45.0, 60.1]))
    assert rates == pytest.approx([1.0, 1.5, 2.0, 0.0, 0.0, 4.0, 0.0])


def test_idc_sets_the_noise() -> None:
    moments = np.array([1000.0])
    assert bins([592_200.0] * 4, idc=9.6).noise_sd_at(moments) == pytest.approx(0.093, abs=0.001)
    assert bins([592_200.0] * 4, idc=1.0).noise_sd_at(moments) == pytest.approx(0.0)
    assert bins([592_200.0] * 4).noise_sd_at(moments) == pytest.approx(0.15)


def test_noise_has_mean_one_and_the_wanted_spread() -> None:
    wander = autoregressive(200_000, 0.9, rng())
    factors = lognormal_factors(wander, np.full(len(wander), 0.15))
    assert factors.mean() == pytest.approx(1.0, abs=0.01)
    assert factors.std() == pytest.approx(0.15, abs=0.01)
    assert np.corrcoef(wander[1:], wander[:-1])[0, 1] == pytest.approx(0.9, abs=0.01)


def test_arrivals_are_poisson_within_a_steady_rate() -> None:
    times_s = poisson_times(np.full(20_000, 10.0), 1.0, rng())
    counts = np.bincount(times_s.astype(np.int64), minlength=20_000)
    assert counts.mean() == pytest.approx(10.0, abs=0.1)
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.05)


def test_lengths_have_their_means_and_bounds() -> None:
    prompts, outputs = Lengths(500.0, 1.0, 40.0, 0.0, max_tokens=4000).draw(50_000, rng())
    assert prompts.mean() == pytest.approx(500.0, rel=0.05)
    assert prompts.min() >= 1
    assert prompts.max() <= 4000
    assert set(outputs.tolist()) == {40}


def test_lengths_follow_the_means_of_the_bins() -> None:
    drawn = bins([6000.0] * 4).draw(rng(), LENGTHS)
    assert drawn.prompt_tokens.mean() == pytest.approx(100.0, rel=0.05)
    assert drawn.output_tokens.mean() == pytest.approx(LENGTHS.output_mean, rel=0.05)


def test_between_cuts_and_moves_to_zero() -> None:
    cut = even().between(20.0, 30.0)
    assert len(cut) == 100
    assert (cut.arrival_s[0], cut.span_s) == (0.0, 10.0)
    assert cut.prompt_tokens[0] == 201


def test_stretched_changes_the_rate_and_keeps_the_requests() -> None:
    fast = even().stretched(0.5)
    assert (len(fast), fast.span_s, fast.mean_rps) == (1000, 50.0, 20.0)


@given(st.floats(0.5, 40.0), st.integers(0, 100))
def test_scaling_reaches_the_rate_within_the_span(mean_rps: float, seed: int) -> None:
    scaled = even().scaled_to(mean_rps, rng(seed))
    expected = 100.0 * mean_rps
    assert len(scaled) == pytest.approx(expected, abs=6 * np.sqrt(expected))
    assert scaled.span_s == 100.0
    assert np.all((scaled.arrival_s >= 0.0) & (scaled.arrival_s <= 100.0))
    assert set(scaled.prompt_tokens) <= set(even().prompt_tokens)


def test_spread_leaves_no_ticks() -> None:
    ticks = np.repeat(np.arange(100) * 3.0, 10)
    ones = np.ones(1000, dtype=np.int64)
    spread = Arrivals(ticks, ones, ones, 300.0).spread(3.0, rng())
    assert len(np.unique(spread.arrival_s)) == 1000
    assert np.all(np.diff(spread.arrival_s) >= 0)


def test_a_rate_is_drawn_over_exactly_its_span() -> None:
    drawn = draw_from_rate(lambda t: np.where(t < 50.0, 0.0, 20.0), 100.0, LENGTHS, rng())
    assert drawn.arrival_s[0] >= 50.0
    assert drawn.arrival_s[-1] < 100.0
    assert len(drawn) == pytest.approx(1000, rel=0.15)


def test_refuses_disorder_and_missing_lengths() -> None:
    ones = np.ones(2, dtype=np.int64)
    with pytest.raises(ValueError, match="order"):
        Arrivals(np.array([1.0, 0.0]), ones, ones, 2.0)
    with pytest.raises(ValueError, match="length each"):
        Arrivals(np.array([1.0]), ones, ones, 2.0)


def test_saved_arrivals_are_a_trace_of_one_row_a_request(tmp_path: Path) -> None:
    even(3, 3.0).save(tmp_path / "trace.csv")
    assert (tmp_path / "trace.csv").read_text().split() == [
        "arrival_s,prompt_tokens,output_tokens",
        "0.000000,1,1",
        "1.000000,2,2",
        "2.000000,3,3",
    ]
