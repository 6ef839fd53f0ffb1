"""AIBrix's APA, against the table of its own tests (apa_test.go)."""

import numpy as np
import pytest

from controller.replay.rivals import apa
from controller.replay.rivals.apa import desired
from tests.replay.rivals.views import Decider, blind_view, with_values


def parameters(**changes: float) -> list[float]:
    changes = {"requests_per_replica": 30.0} | changes
    return [*with_values(apa.NAMES, apa.STYLES[0], **changes), 100.0]


@pytest.mark.parametrize(
    ("replicas", "use", "changes", "expected"),
    [
        pytest.param(2, 45.0, {}, 3, id="grows by the ratio"),
        pytest.param(2, 35.0, {}, 3, id="rounds up"),
        pytest.param(2, 90.0, {}, 4, id="at most twice"),
        pytest.param(2, 90.0, {"up_rate": 2.5}, 5, id="at most 2.5 times, rounded up"),
        pytest.param(6, 20.0, {}, 4, id="shrinks by the ratio"),
        pytest.param(6, 18.0, {}, 4, id="rounds up when shrinking, too"),
        pytest.param(6, 10.0, {}, 3, id="at least half"),
        pytest.param(6, 5.0, {"down_rate": 2.5}, 2, id="at least 6 / 2.5, rounded down"),
        pytest.param(2, 33.0, {}, 2, id="ten per cent more is tolerated"),
        pytest.param(2, 27.0, {}, 2, id="ten per cent less is tolerated"),
    ],
)
def test_decides_as_aibrix_says(
    replicas: int, use: float, changes: dict[str, float], expected: int
) -> None:
    assert desired(replicas, use / 30.0, np.array(parameters(**changes))) == expected


def test_as_published_it_asks_again_for_what_is_starting() -> None:
    fleet = {"ongoing": 90.0, "ready_replicas": 2.0, "starting_replicas": 1.0}
    assert Decider(apa.apa, apa.MEMORY, parameters(), 3)(10.0, **fleet) == 5
    guarded = parameters(counts_starting=1.0)
    assert Decider(apa.apa, apa.MEMORY, guarded, 3)(10.0, **fleet) == 3


def test_shrinks_only_after_the_cooldown() -> None:
    decide = Decider(apa.apa, apa.MEMORY, parameters(), 4)
    targets = [decide(10.0 * k, ongoing=120.0 if k < 2 else 60.0) for k in range(40)]
    assert targets.index(2) * 10 == 310  # the last 4 was wanted at 10 s


def test_keeps_the_target_before_the_first_scrape() -> None:
    decide = Decider(apa.apa, apa.MEMORY, parameters(), 5)
    assert apa.apa(blind_view(5), decide.memory, decide.parameters) == 5
