"""Synthetic load by recipe."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve_app.recipe import BadRecipe, Recipe, parse_recipe, read_recipe

RAMP = ((0.0, 10.0), (100.0, 10.0), (120.0, 40.0), (200.0, 40.0))


def test_follows_its_ramps() -> None:
    recipe = Recipe(rate=RAMP)
    assert recipe.rate_at(np.array([50.0, 110.0, 150.0])).tolist() == [10.0, 25.0, 40.0]
    drawn = recipe.draw(np.random.default_rng(3))
    assert drawn.between(0.0, 100.0).mean_rps == pytest.approx(10.0, rel=0.1)
    assert drawn.between(120.0, 200.0).mean_rps == pytest.approx(40.0, rel=0.1)
    assert drawn.span_s == 200.0


def test_the_same_seed_gives_the_same_requests() -> None:
    recipe = Recipe(rate=RAMP, burst_cv=0.3)
    one, same = (recipe.draw(np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(one.arrival_s, same.arrival_s)
    assert np.array_equal(one.output_tokens, same.output_tokens)


def test_bursts_spread_the_counts_and_keep_the_mean() -> None:
    steady = ((0.0, 20.0), (20_000.0, 20.0))
    drawn = Recipe(rate=steady, burst_cv=0.5, burst_s=5.0).draw(np.random.default_rng(3))
    counts = np.bincount((drawn.arrival_s / 5.0).astype(np.int64), minlength=4000)
    assert counts.mean() == pytest.approx(100.0, rel=0.05)
    # Counts of mean 100 under a factor of relative sd 0.5: variance 100 + (100 * 0.5)^2.
    assert counts.var() == pytest.approx(100 + 2500, rel=0.15)


def test_a_jump_is_two_points_at_one_second() -> None:
    recipe = Recipe(rate=((0.0, 5.0), (10.0, 5.0), (10.0, 50.0), (20.0, 50.0)))
    assert recipe.rate_at(np.array([9.99, 10.01])).tolist() == [5.0, 50.0]


def test_reads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    path.write_text('{"rate": [[0, 1], [60, 2]], "output_mean": 10, "output_cv": 0}')
    assert set(read_recipe(path).draw(np.random.default_rng(3)).output_tokens) == {10}


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        ({}, "rate: Field required"),
        ({"rate": [[0, 1]]}, "rate: .*at least 2"),
        ({"rate": [[0, 1], [9, -2]]}, r"rate\.1\.1: .*greater than or equal to 0"),
        ({"rate": [[9, 1], [0, 2]]}, "in order of time"),
        ({"rate": [[0, 1], [0, 2]]}, "after second 0"),
        ({"rate": [[0, 1], [9, 1]], "burst": 1}, "burst: Extra"),
        (b"{", "Invalid JSON"),
    ],
    ids=["no rate", "one point", "negative", "disorder", "no time", "unknown key", "no JSON"],
)
def test_says_what_is_wrong(recipe: dict[str, Any] | bytes, says: str) -> None:
    with pytest.raises(BadRecipe, match=says):
        parse_recipe(recipe)
