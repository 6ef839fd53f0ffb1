"""Knative's KPA, against the examples of its autoscaler's comments, tests and documentation."""

import numpy as np
import pytest

from controller.replay.rivals import kpa
from controller.replay.rivals.kpa import decide, limited
from tests.replay.rivals.views import Decider, with_values


def parameters(**changes: float) -> list[float]:
    changes = {"requests_per_replica": 10.0} | changes
    return [*with_values(kpa.NAMES, kpa.STYLES[0], **changes), 100.0]


class Windows:
    """Decisions on given means of the stable and the panic window."""

    def __init__(self, **changes: float) -> None:
        self.memory = np.zeros(kpa.MEMORY)
        self.parameters = np.array(parameters(**changes))

    def __call__(self, at_s: float, ready: float, stable: float, panic: float) -> int:
        return decide(self.memory, self.parameters, at_s, ready, stable, panic)


@pytest.mark.parametrize(
    ("concurrency", "ready", "changes", "expected"),
    [
        pytest.param(100.0, 5.0, {}, 10, id="100 at a target of 10"),
        pytest.param(
            3.0,
            2.0,
            {"requests_per_replica": 1.0, "up_rate": 1.1},
            3,
            id="a rate of 1.1 from 2 still allows 3",
        ),
        pytest.param(100.0, 1.0, {"up_rate": 4.0}, 4, id="no faster up than the rate"),
        pytest.param(10.0, 31.0, {}, 15, id="never below half of the ready ones"),
    ],
)
def test_wanted_is_concurrency_over_target_within_the_rates(
    concurrency: float, ready: float, changes: dict[str, float], expected: int
) -> None:
    assert limited(concurrency, ready, np.array(parameters(**changes))) == expected


def test_without_panic_the_stable_window_decides() -> None:
    assert Windows()(0.0, 10.0, 100.0, 199.0 - 10) == 10


def test_twice_the_capacity_in_the_panic_window_is_panic() -> None:
    assert Windows()(0.0, 10.0, 100.0, 200.0) == 20


def test_panic_never_shrinks_and_ends_a_stable_window_after_the_last_crossing() -> None:
    windows = Windows()
    assert windows(0.0, 10.0, 100.0, 300.0) == 30
    assert windows(2.0, 10.0, 100.0, 210.0) == 30  # crosses again, from fewer
    assert windows(4.0, 30.0, 100.0, 100.0) == 30
    assert windows(62.0, 30.0, 100.0, 100.0) == 30  # 60 s after: not later than
    assert windows(64.0, 30.0, 100.0, 100.0) == 15  # then half at most
    assert windows(66.0, 15.0, 100.0, 100.0) == 10
    assert windows(68.0, 10.0, 100.0, 200.0) == 20  # the old 30 is forgotten


def test_the_down_delay_keeps_the_greatest() -> None:
    windows = Windows(down_delay_s=30.0)
    wanted = [windows(2.0 * k, 10.0, 100.0 if k == 0 else 60.0, 60.0) for k in range(20)]
    assert wanted == [10] * 15 + [6] * 5


def test_starts_in_panic_at_what_is_there() -> None:
    ticks = Decider(kpa.kpa, kpa.MEMORY, parameters(), target=8)
    targets = [ticks(float(k), direct_ongoing=20.0) for k in range(70)]
    assert set(targets[:62]) == {8}
    assert targets[62] == 4


def test_probes_every_second_and_decides_every_other() -> None:
    ticks = Decider(kpa.kpa, kpa.MEMORY, parameters(stable_window_s=2.0), target=1)
    loads = [10.0, 30.0, 50.0, 70.0, 70.0]
    targets = [ticks(float(k), direct_queued=load) for k, load in enumerate(loads)]
    assert targets == [1, 1, 5, 5, 7]
