"""The sweep on curves that are known: what it finds, and how little it runs for it."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from controller.replay import runs
from controller.replay.cache import Cache, content_hash
from controller.replay.compiled import compiled
from controller.replay.frontier import cheapest_within
from controller.replay.plant import ColdStart, Plant, PlantSettings
from controller.replay.pool import Engine, each
from controller.replay.rivals.registry import Params, Rival, Size
from controller.replay.runner import play
from controller.replay.runs import Run, play_rival
from controller.replay.scenario import Scenario
from controller.replay.score import Score
from controller.replay.sweep import (
    AIM_RATIO,
    REGION,
    STEP_RATIO,
    Curve,
    Goal,
    aim,
    cover,
    polish,
    runs_of,
    size_at,
)
from controller.replay.trace import Floats
from tests.replay.conftest import poisson

SCALE = Size("size", 64.0, 1.0)


def made(
    gpu_hours: float, violations: float, policy: str = "rival", params: Params | None = None
) -> Run:
    late = round(violations * 1_000_000)
    return Run(policy, params or {}, 1_000_000, late, 0, 0.1, 0.5, 1.0, gpu_hours, 5, 3, 0.0)


def never(plant: Plant, params: Params) -> Score:
    raise AssertionError("not to be played")


def rival(*styles: Params, name: str = "rival") -> Rival:
    return Rival(name, "a curve", SCALE, styles, never)


class Law:
    """100 GPU-hours x 8^place x the style's factor; violations fall from 60 % by e^(-12 place)."""

    def __init__(self, factor: Callable[[Params], float] = lambda _: 1.0) -> None:
        self.calls = 0
        self.factor = factor

    def __call__(self, params: Params) -> Run:
        self.calls += 1
        place = math.log(params["size"] / 64.0) / math.log(1 / 64.0)
        cost = 100 * 8**place * self.factor(params)
        return made(cost, 0.6 * math.exp(-12 * place), params=params)


GOAL = Goal(0.01)


def best_of(curves: list[Curve], goal: float = 0.01) -> Run | None:
    return cheapest_within(runs_of(curves), goal)


def best_cost(goal: float) -> float:
    return 100 * 8 ** (math.log(0.6 / goal) / 12)


def test_the_scale_is_logarithmic_from_cheapest_to_dearest() -> None:
    assert [size_at(SCALE, place) for place in (0, 0.5, 1)] == pytest.approx([64, 8, 1])


def test_cover_leaves_no_step_over_5_percent_in_the_region() -> None:
    law = Law()
    found = sorted(cover(rival({}), law), key=lambda run: run.gpu_hours)
    inside = [run for run in found if REGION[0] <= run.violation_ratio <= REGION[1]]
    assert len(inside) > 10
    assert all(b.gpu_hours / a.gpu_hours <= STEP_RATIO + 1e-9 for a, b in pairwise(inside))
    assert law.calls == len(found) <= 36


def test_cover_spends_its_runs_on_promising_styles_and_on_the_defaults() -> None:
    law = Law(lambda params: (3.0, 1.0, 1.5)[int(params["kind"])])
    found = cover(rival({"kind": 0.0}, {"kind": 1.0}, {"kind": 2.0}), law)
    counts = [sum(run.params["kind"] == kind for run in found) for kind in range(3)]
    assert counts[0] > 10
    assert counts[1] > 10
    assert counts[2] == 5


@pytest.mark.parametrize("goal", [0.01, 0.003, 0.05])
def test_aim_finds_the_cheapest_setting_within_a_step(goal: float) -> None:
    law = Law()
    best = best_of(aim(rival({}), law, [Goal(goal)]), goal)
    assert best is not None
    assert 1 <= best.gpu_hours / best_cost(goal) <= AIM_RATIO
    assert law.calls <= 10


def test_aim_leaves_a_style_that_cannot_win_after_a_run_or_two() -> None:
    law = Law(lambda params: 1.0 + params["kind"])
    alone = Law()
    aim(rival({}), alone, [GOAL])
    aim(rival({"kind": 0.0}, {"kind": 0.5}, {"kind": 1.0}), law, [GOAL])
    assert law.calls <= alone.calls + 4


def test_aim_does_not_miss_a_style_that_is_better() -> None:
    law = Law(lambda params: 1.0 - 0.2 * params["kind"])
    best = best_of(aim(rival({"kind": 0.0}, {"kind": 1.0}), law, [GOAL]))
    assert best is not None
    assert best.params["kind"] == 1
    assert best.gpu_hours <= 0.8 * best_cost(0.01) * AIM_RATIO


def test_aim_is_short_when_another_rival_is_far_ahead() -> None:
    law = Law()
    aim(rival({}), law, [Goal(0.01, 1.0)], [made(90, 0.001, "other")])
    assert law.calls <= 2


def test_aim_goes_on_within_the_slack_of_another_rival() -> None:
    curves = aim(rival({}), Law(), [Goal(0.01, 1.25)], [made(0.9 * best_cost(0.01), 0.001)])
    best = best_of(curves)
    assert best is not None
    assert best.gpu_hours <= best_cost(0.01) * AIM_RATIO


def test_polish_finds_a_cheaper_setting_that_does_by_luck() -> None:
    def lucky(params: Params) -> Run:
        run = Law()(params)
        ratio = run.gpu_hours / best_cost(0.01)
        return replace(run, violations=5000) if 0.955 < ratio < 0.975 else run

    curves = aim(rival({}), lucky, [GOAL])
    polish(curves, [GOAL])
    best = best_of(curves)
    assert best is not None
    assert best.gpu_hours < 0.98 * best_cost(0.01)


def test_aim_finds_two_goals_and_uses_a_hint() -> None:
    hints: dict[tuple[str, int], float] = {}
    first, second = Law(), Law()
    goals = [GOAL, Goal(0.002)]
    found = aim(rival({}), first, goals, hints=hints)
    for goal in (0.01, 0.002):
        best = best_of(found, goal)
        assert best is not None
        assert best.gpu_hours <= best_cost(goal) * AIM_RATIO
    aim(rival({}), second, goals, hints=hints)
    assert second.calls <= first.calls


def test_aim_ends_at_the_bound_when_the_goal_is_out_of_reach() -> None:
    law = Law()

    def bad(params: Params) -> Run:
        run = law(params)
        return made(run.gpu_hours, max(run.violation_ratio, 0.2), params=params)

    found = aim(rival({}), bad, [GOAL])
    assert best_of(found) is None
    assert max(run.gpu_hours for run in runs_of(found)) == pytest.approx(800)


def test_aim_ends_on_a_scale_of_few_steps() -> None:
    def stairs(params: Params) -> Run:
        replicas = round(64 / params["size"])
        return made(replicas * 30.0, 0.001 if replicas >= 7 else 0.3, params=params)

    best = best_of(aim(rival({}), stairs, [GOAL]))
    assert best is not None
    assert best.gpu_hours == 7 * 30


@compiled
def fixed(view: Floats, memory: Floats, parameters: Floats) -> int:
    return int(parameters[0])


def play_fixed(plant: Plant, params: Params) -> Score:
    return play(plant, fixed, parameters=[params["size"]])


def scenario(**changes: float) -> Scenario:
    settings = PlantSettings(
        slots=4, cap=8, tpot_s=1e-6, cold_start=ColdStart(changes.get("lead_s", 30.0))
    )
    return Scenario("short", poisson(2, 900, seed=1), (300.0, 900.0), settings, warm_up_s=300.0)


def test_a_run_is_played_once_and_then_read(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    counted = []

    def count(plant: Plant, params: Params) -> Score:
        counted.append(params)
        return play_fixed(plant, params)

    one = Rival("fixed", "so many", Size("size", 1, 8), ({},), count)
    first = play_rival(scenario(), one, {"size": 3.0}, cache, detailed=True)
    again = play_rival(scenario(), one, {"size": 3.0}, cache, detailed=True)
    assert first.run == again.run
    assert np.array_equal(first.arrays["reports"], again.arrays["reports"])
    play_rival(scenario(), one, {"size": 2.0}, cache)
    play_rival(scenario(lead_s=40.0), one, {"size": 3.0}, cache)
    assert len(counted) == 3


def test_a_broken_file_in_the_cache_is_made_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.kept("ab", lambda: ({"x": 1.5}, {})) == ({"x": 1.5}, {})
    (tmp_path / "ab" / "ab.npz").write_bytes(b"no zip")
    assert cache.kept("ab", lambda: ({"x": 2.5}, {}))[0] == {"x": 2.5}


def test_equal_content_has_one_hash_and_other_content_another() -> None:
    assert content_hash(scenario()) == content_hash(scenario())
    assert content_hash(scenario()) != content_hash(scenario(lead_s=31.0))
    assert content_hash({"a": 1.0, "b": 2.0}) == content_hash({"b": 2.0, "a": 1.0})
    assert content_hash(["ab"]) != content_hash(["a", "b"])
    with pytest.raises(TypeError, match="no content hash"):
        content_hash(object())


def test_a_rival_plays_as_much_of_the_past_as_its_style_remembers() -> None:
    day_s = 86_400.0
    assert runs.past_s({"days": 2.0}) == 2 * day_s + 3600
    assert runs.past_s({"days": 0.0}) == 0
    assert runs.past_s({"days": 14.0}) == runs.LONGEST_PAST_S
    assert runs.past_s({"season_s": day_s}) == runs.LONGEST_PAST_S
    assert runs.past_s({"season_s": 90.0, "tolerance": 0.1}) == 0
    assert runs.past_s({"predictor": 3.0}) > day_s
    assert runs.past_s({"predictor": 1.0}) == 6 * 3600


def test_tasks_come_back_with_their_place() -> None:
    assert dict(each(abs, [-1, -2, -3], Engine.PROCESSES, 1)) == {0: 1, 1: 2, 2: 3}
    assert dict(each(abs, [-1, -2, -3], Engine.PROCESSES, 2)) == {0: 1, 1: 2, 2: 3}


def test_our_run_is_played_from_its_past_with_decisions_written_down(tmp_path: Path) -> None:
    settings = PlantSettings(cap=8, tpot_s=1e-6, cold_start=ColdStart(60.0))
    trace = poisson(3, 3000, seed=2, work_s=2.0)
    short = Scenario("ours", trace, (2400.0, 3000.0), settings, warm_up_s=600.0, initial=2)
    played = runs.play_ours(short, Cache(tmp_path))
    decisions = played.arrays["decisions"]
    assert decisions["at_s"].tolist() == list(range(1800, 3000, 10))
    assert np.isfinite(decisions["q99_rps"][12:]).all()
    assert np.all(decisions["q99_rps"][12:] >= decisions["q50_rps"][12:])
    planner = runs.ready_planner(short)
    assert planner.forecaster.known_bins == 180
    assert planner.lead_s == pytest.approx(60, rel=0.3)
    assert played.run == runs.play_ours(short, Cache(tmp_path)).run


def test_the_clairvoyant_is_the_cheapest_headroom_that_meets_the_slo() -> None:
    settings = PlantSettings(cap=16, tpot_s=1e-6, cold_start=ColdStart(30.0))
    short = Scenario("c", poisson(3, 1800, seed=2, work_s=3.0), (600.0, 1800.0), settings)
    best = runs.best_clairvoyant(short, Cache(None))
    assert best is not None
    assert best.violation_ratio <= short.budget
    lower = best.params["headroom"] - 0.02
    if lower >= 0.9:
        work = runs.work_ahead(short)
        cheaper = runs.play_clairvoyant(short, lower, Cache(None), lambda: work).run
        assert cheaper.violation_ratio > short.budget
