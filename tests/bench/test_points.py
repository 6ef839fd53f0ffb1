"""A played load in the bench's numbers, and what scaling is made of them."""

from math import inf, isnan, nan

import numpy as np
import pytest

from controller.bench.points import Point, measured, scaling
from serve_app.load_results import LoadResult


def played(*requests: tuple[float, float, float, str]) -> LoadResult:
    """Requests as (due, TTFT, end to end, error)."""
    due, ttft, e2e = (np.array([r[place] for r in requests], float) for place in range(3))
    counts = np.ones(len(requests), dtype=np.int64)
    errors = tuple(r[3] for r in requests)
    return LoadResult(0.0, due, np.zeros(len(due)), ttft, e2e, counts, counts, counts, errors)


def test_completions_count_when_they_end_and_first_tokens_when_they_were_due() -> None:
    result = played(
        (5.0, 0.1, 7.0, ""),  # due before, ended in the window
        (11.0, 0.5, 1.0, ""),  # all in it
        (19.0, 0.7, 5.0, ""),  # due in it, ended after
        (21.0, 9.0, 9.5, ""),  # after it
    )
    point = measured(result, 2, 0.2, 10.0, 20.0)
    assert point.completed_rps == pytest.approx(0.2)
    assert point.ttft_p50_s == pytest.approx(0.6)
    assert (point.replicas, point.failed_ratio) == (2, 0.0)


def test_what_got_no_first_token_is_later_than_all() -> None:
    good = [(10.0 + place / 10, 0.2, 1.0, "") for place in range(18)]
    point = measured(
        played(*good, (12.0, nan, 60.0, "timeout"), (12.1, nan, 0.0, "http_503")), 1, 2.0, 10, 20
    )
    assert point.ttft_p50_s == 0.2
    assert point.ttft_p95_s == inf
    assert point.served_ttft_p95_s == 0.2
    assert point.failed_ratio == pytest.approx(0.1)


def test_an_empty_window_knows_nothing() -> None:
    point = measured(played((50.0, 0.1, 1.0, "")), 1, 1.0, 10.0, 20.0)
    assert point.completed_rps == 0
    assert isnan(point.ttft_p95_s)


def point(replicas: int, offered: float, completed: float, p95_s: float = 0.5) -> Point:
    return Point(replicas, offered, offered, completed, 0.1, p95_s, p95_s, 0.0, 0.0, 30.0)


@pytest.mark.parametrize(
    ("offered", "completed", "measured_s", "carried"),
    [
        (8.0, 7.5, 7.0, True),
        (8.0, 4.0, 7.0, False),
        (80.0, 77.0, 30.0, True),
        (80.0, 74.0, 30.0, False),
    ],
    ids=["chance, in a short run", "half of it", "nearly all", "a twelfth short in a long run"],
)
def test_a_load_is_carried_when_it_is_completed_as_it_came(
    offered: float, completed: float, measured_s: float, carried: bool
) -> None:
    one = Point(1, offered, offered, completed, 0.1, 0.5, 0.5, 0.0, 0.0, measured_s)
    assert one.carried is carried


def test_linearity_is_of_what_each_of_the_fewest_carries() -> None:
    rows = scaling([point(1, 80, 45), point(3, 80, 80), point(3, 160, 128)], 2.0)
    assert [row.throughput_rps for row in rows] == [45, 128]
    assert rows[1].linearity == pytest.approx(128 / 135)
    assert rows[1].saturated


def test_a_load_that_was_carried_everywhere_gives_a_lower_bound() -> None:
    rows = scaling([point(1, 80, 45), point(3, 80, 80)], 2.0)
    assert not rows[1].saturated
    assert rows[1].linearity == pytest.approx(80 / 135)


def test_without_a_full_base_linearity_is_not_known() -> None:
    rows = scaling([point(1, 10, 10), point(3, 80, 60)], 2.0)
    assert rows[0].linearity == 1
    assert isnan(rows[1].linearity)


@pytest.mark.parametrize(
    ("points", "knee"),
    [
        ([point(1, 20, 20), point(1, 40, 40, 1.9), point(1, 60, 44)], 40),
        ([point(1, 20, 20), point(1, 40, 40, 2.1), point(1, 60, 44)], 20),
        ([point(1, 20, 12)], nan),
    ],
    ids=["the largest that was carried", "and in time", "none was"],
)
def test_the_knee_is_the_largest_load_carried_within_the_slo(
    points: list[Point], knee: float
) -> None:
    [row] = scaling(points, 2.0)
    assert row.knee_rps == pytest.approx(knee, nan_ok=True)
