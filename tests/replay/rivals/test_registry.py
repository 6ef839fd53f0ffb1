"""Every rival in the loop: complete, within bounds, repeatable, and dearer where it should be."""

from dataclasses import replace

import pytest

from controller.replay.native import NativeSettings, play_native
from controller.replay.plant import ColdStart, Plant, PlantSettings
from controller.replay.rivals.registry import RIVALS, Params, Rival
from controller.replay.score import Score
from controller.replay.trace import Trace
from tests.replay.conftest import requests_at
from tests.replay.test_plant import busy_week, comparable

SETTINGS = PlantSettings(cold_start=ColdStart(60.0), cap=24)
NAMES = ("static", "ray", "hpa", "kpa", "apa", "dynamo", "aws", "phpa", "composite")
MIDDLE = {
    "replicas": 12.0,
    "target_ongoing_requests": 7.0,
    "requests_per_replica": 7.0,
    "rps_per_replica": 1.0,
}


@pytest.fixture(scope="module")
def load() -> Trace:
    """The first two hours of a wave, rising from 5 to 6.7 requests/s."""
    return busy_week().between(0.0, 7200.0)


@pytest.fixture(params=NAMES)
def rival(request: pytest.FixtureRequest) -> Rival:
    return RIVALS[request.param]


def play(rival: Rival, trace: Trace, size: float, settings: PlantSettings = SETTINGS) -> Score:
    plant = Plant(settings, trace, initial=6)
    return rival.play(plant, {**rival.styles[1 % len(rival.styles)], rival.size.name: size})


def test_the_registry_has_each_rival_under_its_name() -> None:
    assert tuple(RIVALS) == NAMES
    assert all(rival.name == name for name, rival in RIVALS.items())


def test_styles_name_the_same_parameters_and_differ(rival: Rival) -> None:
    keys = {frozenset(style) for style in rival.styles}
    assert len(keys) == 1
    assert rival.size.name not in rival.styles[0]
    distinct = {tuple(sorted(style.items())) for style in rival.styles}
    assert len(distinct) == len(rival.styles)
    assert 4 <= len(rival.styles) <= 12 or rival.name == "static"


def test_serves_within_its_bounds_and_the_same_each_time(rival: Rival, load: Trace) -> None:
    score = play(rival, load, MIDDLE[rival.size.name])
    assert score.requests > 30_000
    assert score.violation_ratio < 0.6
    assert score.reports["target"].min() >= 1
    assert score.reports["target"].max() <= SETTINGS.cap
    assert score.changes >= (rival.name != "static")
    assert comparable(score) == comparable(play(rival, load, MIDDLE[rival.size.name]))


def test_a_dearer_size_buys_more_gpu_time_and_fewer_violations(rival: Rival, load: Trace) -> None:
    ends = [play(rival, load, size) for size in (rival.size.cheapest, rival.size.dearest)]
    cheap, dear = ends
    middle = play(rival, load, MIDDLE[rival.size.name])
    assert cheap.gpu_hours < middle.gpu_hours < dear.gpu_hours
    assert cheap.violation_ratio > middle.violation_ratio >= dear.violation_ratio
    # The dear end is as good as the cap for ever.
    assert dear.reports["target"][30:].min() == SETTINGS.cap


def test_styles_play_and_play_differently(rival: Rival, load: Trace) -> None:
    size = {rival.size.name: MIDDLE[rival.size.name]}
    plants = [Plant(SETTINGS, load, initial=6) for _ in rival.styles]
    pairs = zip(plants, rival.styles, strict=True)
    scores = [rival.play(plant, style | size) for plant, style in pairs]
    assert len({score.gpu_hours for score in scores}) > len(scores) // 2


def test_without_load_one_replica_stays(rival: Rival) -> None:
    trace = requests_at([], end_s=3600)
    size = 1.0 if rival.name == "static" else MIDDLE[rival.size.name]
    score = play(rival, trace, size, replace(SETTINGS, cap=8))
    assert score.reports["target"][-1] == 1


def test_ray_is_the_native_autoscaler(load: Trace) -> None:
    style: Params = RIVALS["ray"].styles[0] | {"target_ongoing_requests": 5.0}
    ours = RIVALS["ray"].play(Plant(SETTINGS, load, initial=6), style)
    settings = NativeSettings(max_replicas=SETTINGS.cap, target_ongoing_requests=5.0)
    assert comparable(ours) == comparable(play_native(Plant(SETTINGS, load, initial=6), settings))
