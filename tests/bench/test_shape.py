"""The stand-in calibrated to an 8B model, by the config that is shipped: from 1 to 3 replicas
45 -> 128 requests a second, and at 80 a second TTFT p95 1.8 -> 0.52 s."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.bench.points import Point, measured, scaling
from serve_app.law import Law
from tests.bench.simulated import simulated

CONFIG = Path(__file__).resolve().parents[2] / "serve_app/configs/standin-8b.yaml"
SLOWED = 8.0
WARM_UP_S, END_S = 10.0, 70.0


def deployed() -> tuple[Law, int]:
    """The law that the config's engine has at full speed, and how many requests may wait."""
    [application] = yaml.safe_load(CONFIG.read_text())["applications"]
    engine: dict[str, Any] = application["args"]["engine"]
    [llm] = [d for d in application["deployments"] if d["name"] == "LLM"]
    law = Law(
        engine["slots"],
        engine["beta"],
        engine["prefill_tokens_per_s"] * SLOWED,
        engine["token_s"] / SLOWED,
    )
    assert llm["max_ongoing_requests"] == law.slots
    return law, llm["max_queued_requests"]


@pytest.fixture(scope="module")
def points() -> dict[tuple[int, float], Point]:
    law, most_waiting = deployed()
    return {
        (replicas, rate): measured(
            simulated(law, replicas, rate, END_S, most_waiting), replicas, rate, WARM_UP_S, END_S
        )
        for replicas, rate in ((1, 80.0), (2, 160.0), (3, 80.0), (3, 160.0))
    }


def test_throughput_from_one_to_three_replicas(points: dict[tuple[int, float], Point]) -> None:
    rows = scaling(list(points.values()), 2.0)
    assert rows[0].throughput_rps == pytest.approx(45.0, rel=0.05)
    assert rows[2].throughput_rps == pytest.approx(128.0, rel=0.05)
    assert rows[2].linearity > 0.9


def test_first_tokens_at_80_requests_a_second(points: dict[tuple[int, float], Point]) -> None:
    one, three = points[1, 80.0], points[3, 80.0]
    assert one.served_ttft_p95_s == pytest.approx(1.8, rel=0.07)
    assert three.served_ttft_p95_s == pytest.approx(0.52, rel=0.07)
    assert one.failed_ratio > 0.3, "one replica refuses what it cannot carry"
    assert three.failed_ratio == 0
    assert three.carried


def test_the_capacity_of_the_law_is_what_the_load_finds(
    points: dict[tuple[int, float], Point],
) -> None:
    law, _ = deployed()
    mean_work_s = law.lone_work_s(512, 128)
    assert points[1, 80.0].completed_rps == pytest.approx(law.capacity_rps(mean_work_s), rel=0.07)
