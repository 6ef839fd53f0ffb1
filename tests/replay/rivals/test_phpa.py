"""PHPA: the greater of the HPA's count and Holt-Winters on those counts."""

from controller.replay.rivals import hpa, phpa
from controller.replay.rivals.holt_winters import smoothing_length
from tests.replay.rivals.views import Decider, blind_view, with_values

PERIOD = 6


def a_decider(steps: int = 1, alpha: float = 0.1, gamma: float = 0.3) -> Decider:
    changes = {"requests_per_replica": 10.0, "down_window_s": 0.0, "tolerance": 0.0}
    of_hpa = with_values(hpa.NAMES, hpa.DEFAULTS, **changes, up_percent=900.0)
    parameters = [*of_hpa, 40.0, PERIOD, steps, alpha, 0.0, gamma]
    memory = phpa.HISTORY + smoothing_length(PERIOD)
    return Decider(phpa.phpa, memory, parameters, 2)


def seasons(decide: Decider, count: int) -> list[int]:
    """Loads for 2, 2, 2, 8, 2, 2 replicas, over and over."""
    loads = [20.0, 20.0, 20.0, 80.0, 20.0, 20.0] * count
    return [decide(15.0 * k, ongoing=load) for k, load in enumerate(loads)]


def test_with_little_history_it_is_the_hpa() -> None:
    assert seasons(a_decider(), 2) == [2, 2, 2, 8, 2, 2] * 2


def test_once_seen_a_peak_is_asked_for_one_sync_before() -> None:
    targets = seasons(a_decider(), 5)[-PERIOD:]
    assert targets == [2, 2, 8, 8, 2, 2]


def test_lookahead_asks_for_it_earlier() -> None:
    targets = seasons(a_decider(steps=3), 5)[-PERIOD:]
    assert targets == [8, 2, 2, 8, 2, 2]


def test_a_prediction_never_lowers_what_the_load_asks_for() -> None:
    decide = a_decider()
    seasons(decide, 5)
    assert decide(15.0 * 30, ongoing=200.0) == 20


def test_keeps_the_target_before_the_first_scrape() -> None:
    decide = a_decider()
    assert phpa.phpa(blind_view(9), decide.memory, decide.parameters) == 9
    assert not decide.memory.any()
