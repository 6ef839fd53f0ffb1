"""A gate on what deciding costs: three drawn days, ours against the composite rival at its best.

The whole set is `make bench-decide`; this one is small, drawn with a seed and plays in seconds.
Better figures are welcome: write them down here. Worse ones are a regression.
"""

import pytest

from controller.commands.recordings import synthetic
from controller.replay.cache import Cache
from controller.replay.compare import holding
from controller.replay.frontier import cheapest_within
from controller.replay.plant import ColdStart, PlantSettings
from controller.replay.rivals.registry import RIVALS
from controller.replay.runs import Run, play_ours, play_rival
from controller.replay.scenario import Scenario, scale

LEAD_S = 120.0
GPU_HOURS, VIOLATIONS, COST = 251.7, 0.00238, 0.783
SLACK = 1.03
RPS_PER_REPLICA = [0.8 * 1.04**step for step in range(24)]


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    bins = synthetic("seed=4,days=3,daily=0.6,burst=0.25,spike=1.6,at=9;18").bins()
    settings = PlantSettings(cold_start=ColdStart(LEAD_S))
    trace, mean = scale("drawn", bins, 6.0, settings)
    day_s = 86_400.0
    return Scenario("drawn", trace, (2.25 * day_s, 3 * day_s), settings, mean_replicas=mean)


@pytest.fixture(scope="module")
def ours(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return play_ours(scenario, Cache(tmp_path_factory.mktemp("runs"))).run


@pytest.fixture(scope="module")
def rivals(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The composite: three styles, each at every assumed capacity."""
    composite = RIVALS["composite"]
    cache, held = Cache(tmp_path_factory.mktemp("runs")), holding(scenario)
    settings = [
        {**style, composite.size.name: size}
        for style in composite.styles[:3]
        for size in RPS_PER_REPLICA
    ]
    return [play_rival(scenario, composite, chosen, cache, held=held).run for chosen in settings]


def test_the_slo_is_kept_at_no_more_gpu_hours_than_before(ours: Run) -> None:
    assert ours.violation_ratio <= VIOLATIONS * SLACK**3
    assert ours.gpu_hours <= GPU_HOURS * SLACK


def test_no_rival_setting_is_as_cheap_at_as_few_violations(ours: Run, rivals: list[Run]) -> None:
    equal = cheapest_within(rivals, ours.violation_ratio)
    assert equal is not None

    assert ours.gpu_hours / equal.gpu_hours <= COST * SLACK
