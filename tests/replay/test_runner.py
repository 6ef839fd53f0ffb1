"""Policies in the loop: Python objects and compiled rules see the same and are obeyed alike."""

import numpy as np
import pytest

from controller.replay.clairvoyant import arriving_work, plan, play_plan
from controller.replay.compiled import compiled
from controller.replay.layout import AT_S, ONGOING, QUEUED, SCRAPED_AT_S, TARGET
from controller.replay.plant import ColdStart, Plant, PlantSettings, View
from controller.replay.runner import play, run
from controller.replay.trace import Floats
from tests.replay.conftest import plain, poisson, requests_at
from tests.replay.test_plant import busy_week, comparable


@compiled
def proportional(view: Floats, memory: Floats, parameters: Floats) -> int:
    """Keep `parameters[0]` requests per replica; remember the number of ticks."""
    memory[0] += 1
    if np.isnan(view[SCRAPED_AT_S]):
        return int(view[TARGET])
    return int((view[QUEUED] + view[ONGOING]) / parameters[0]) + 1


@compiled
def every_other(view: Floats, memory: Floats, parameters: Floats) -> int:
    memory[0] += 1
    return int(parameters[int(memory[0]) % 2])


class Proportional:
    """The same rule in Python."""

    def tick(self, view: View) -> int:
        if np.isnan(view.scraped_at_s):
            return view.target
        return int((view.queued + view.ongoing) / 8) + 1


def test_a_compiled_rule_and_its_python_twin_give_the_same_run() -> None:
    python = run(Plant(PlantSettings(), busy_week(), initial=3), Proportional())
    plant = Plant(PlantSettings(), busy_week(), initial=3)
    assert comparable(play(plant, proportional, parameters=[8.0])) == comparable(python)
    assert python.changes > 100


def test_a_second_rule_plays_in_the_same_loop() -> None:
    plant = Plant(plain(), requests_at([], end_s=100), initial=1)
    score = play(plant, every_other, parameters=[2.0, 1.0], tick_s=10)
    assert score.changes == 9


def test_a_policy_ticks_from_the_start_until_before_the_end() -> None:
    seen = []

    class Watch:
        def tick(self, view: View) -> int:
            seen.append(view.at_s)
            return 1

    trace = poisson(1, 100, seed=0).between(50, 95)
    run(Plant(plain(), trace), Watch(), tick_s=15)
    assert seen == [50, 65, 80]


def test_clairvoyant_asks_one_lead_early_and_keeps_what_a_restart_would_cost() -> None:
    settings = PlantSettings(slots=1, beta=0.0)
    work = np.ones(100)
    work[[30, 36, 37, 60]] = 1 + 6 * 2.0  # three replicas for the minute around each
    targets = plan(work, settings, headroom=1.0, lead_s=100.0)
    # A window of 60 s: needed from 20 s before to 30 s after; lead 120 s with the margin.
    first = int(np.argmax(targets > 1))
    assert 28 - 14 <= first <= 30 - 12
    assert np.all(targets[first:39] >= 3)
    assert targets[42] == 1
    assert np.all(targets[60 - 12 : 60] >= 3)


def test_more_headroom_never_asks_for_fewer() -> None:
    settings = PlantSettings()
    work = arriving_work(busy_week(), settings)
    less, more = (plan(work, settings, headroom=h, lead_s=120.0) for h in (1.0, 1.1))
    assert np.all(more >= less)
    assert np.any(more > less)


def test_work_arriving_is_all_the_work_there_is() -> None:
    trace = requests_at([1.0, 12.0, 13.0], end_s=30, prompt_s=0.5, output_s=1.5)
    assert arriving_work(trace, plain()).tolist() == pytest.approx([0.2, 0.4, 0.0])


def test_clairvoyant_meets_the_slo_with_hardly_more_than_the_load_needs() -> None:
    settings = PlantSettings(cold_start=ColdStart(120))
    trace = busy_week()
    work = arriving_work(trace, settings)
    targets = plan(work, settings, headroom=1.05, lead_s=120.0)
    score = play_plan(Plant(settings, trace, initial=int(targets[0])), targets)
    assert score.violation_ratio < 0.01
    assert score.gpu_hours < 1.4 * work.mean() / settings.full_speed * trace.end_s / 3600


def test_the_plan_is_read_by_time() -> None:
    plant = Plant(plain(), requests_at([], end_s=60), initial=1)
    score = play_plan(plant, np.array([1.0, 2, 3, 3, 2, 1]))
    assert score.changes == 4
    assert AT_S == 0
