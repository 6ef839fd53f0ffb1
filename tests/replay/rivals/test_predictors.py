"""Dynamo's predictors: the last value, a Kalman filter, an auto-regression; PHPA's Holt-Winters."""

import math

import numpy as np
import pytest

from controller.replay.rivals.holt_winters import ahead, smooth, smoothing_length
from controller.replay.rivals.predictors import (
    AUTO_REGRESSION,
    KALMAN,
    LAST_VALUE,
    PREDICTOR_LENGTH,
    note_value,
    predict,
)
from controller.replay.trace import Floats

BASE = 2


def after(kind: int, values: list[float]) -> Floats:
    memory = np.zeros(BASE + PREDICTOR_LENGTH)
    for value in values:
        note_value(memory, BASE, kind, value)
    return memory


def forecast(kind: int, values: list[float], steps: float = 1.0) -> float:
    return predict(after(kind, values), BASE, kind, steps)


def kalman_in_matrices(values: list[float]) -> float:
    """The textbook filter with Dynamo's F, H, Q = diag(1, 0.1), R = 10, P = 1000 I."""
    f, h = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    q, p, x = np.diag([1.0, 0.1]), 1000.0 * np.eye(2), np.array([[values[0]], [0.0]])
    for value in values[1:]:
        x, p = f @ x, f @ p @ f.T + q
        gain = p @ h.T / (h @ p @ h.T + 10.0)
        x, p = x + gain * (value - h @ x), (np.eye(2) - gain @ h) @ p
    return float((f @ x)[0, 0])


def test_the_last_value_is_the_next() -> None:
    assert forecast(LAST_VALUE, [3.0, 9.0, 4.0]) == 4.0


@pytest.mark.parametrize("size", [1, 2, 3, 30])
def test_the_filter_is_the_textbooks(size: int) -> None:
    values = np.random.default_rng(size).uniform(5, 20, size).tolist()
    assert forecast(KALMAN, values) == pytest.approx(kalman_in_matrices(values))


def test_the_filter_follows_a_line_as_far_ahead_as_asked() -> None:
    line = [10.0 + 2 * k for k in range(200)]
    assert forecast(KALMAN, line, 5.0) == pytest.approx(line[-1] + 10, rel=1e-3)


def test_the_regression_learns_an_alternation_and_is_the_last_value_before() -> None:
    series = [4.0, 12.0] * 30
    assert forecast(AUTO_REGRESSION, series[:4]) == 12.0
    assert forecast(AUTO_REGRESSION, series) == pytest.approx(4.0, rel=0.02)
    assert forecast(AUTO_REGRESSION, [7.0] * 20) == pytest.approx(7.0)


def test_the_regression_is_least_squares_held_to_a_random_walk() -> None:
    values = np.random.default_rng(1).uniform(1, 9, 40)
    rows = np.array([[*values[k - 3 : k][::-1], 1.0] for k in range(3, 40)])
    # minimise |w - (1, 0, 0, 0)|^2 + |rows w - values|^2
    start = np.array([1.0, 0, 0, 0])
    weights = np.linalg.solve(rows.T @ rows + np.eye(4), rows.T @ values[3:] + start)
    expected = float(np.array([*values[-3:][::-1], 1.0]) @ weights)
    assert forecast(AUTO_REGRESSION, values.tolist()) == pytest.approx(expected)


@pytest.mark.parametrize("kind", [LAST_VALUE, AUTO_REGRESSION, KALMAN])
def test_leading_zeros_are_skipped_and_nothing_is_forecast_below_zero(kind: int) -> None:
    assert not after(kind, [0.0, 0.0]).any()
    assert after(kind, [0.0, 5.0]).tolist() == after(kind, [5.0]).tolist()
    assert forecast(kind, [100.0, 60.0, 30.0, 10.0, 0.0, 0.0]) >= 0
    assert forecast(kind, []) == 0


def smoothed(values: list[float], period: int, weights: tuple[float, float, float]) -> Floats:
    memory = np.zeros(BASE + smoothing_length(period))
    for value in values:
        smooth(memory, BASE, period, value, *weights)
    return memory


def test_holt_winters_predicts_phpas_own_example() -> None:
    """From its test_holt_winters.py: 13 values, season 3, weights 0.9, 0.9, 0.3 predict 3."""
    values = [1.0, 3.0, 1.0] * 4 + [1.0]
    found = ahead(smoothed(values, 3, (0.9, 0.9, 0.3)), BASE, 3, 1)
    assert math.ceil(found - 1e-9) == 3


def test_holt_winters_needs_ten_values_and_a_season() -> None:
    assert math.isnan(ahead(smoothed([2.0] * 11, 3, (0.5, 0.1, 0.1)), BASE, 3, 1))
    assert ahead(smoothed([2.0] * 12, 3, (0.5, 0.1, 0.1)), BASE, 3, 1) == pytest.approx(2)


def test_holt_winters_follows_its_recursions() -> None:
    rng = np.random.default_rng(5)
    values = (10 + rng.uniform(0, 5, 60)).tolist()
    period, (alpha, beta, gamma) = 7, (0.4, 0.1, 0.3)
    level, trend = sum(values[:period]) / period, 0.0
    season = [value - level for value in values[:period]]
    for k, value in enumerate(values[period:]):
        s, before = season[k % period], level
        level = alpha * (value - s) + (1 - alpha) * (level + trend)
        season[k % period] = gamma * (value - before - trend) + (1 - gamma) * s
        trend = beta * (level - before) + (1 - beta) * trend
    memory = smoothed(values, period, (alpha, beta, gamma))
    for steps in (1, 5, 9):
        expected = level + steps * trend + season[(60 + steps - 1) % period]
        assert ahead(memory, BASE, period, steps) == pytest.approx(expected)
