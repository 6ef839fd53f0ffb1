"""The law by which a stand-in replica runs."""

import pytest

from serve_app.law import Law

LAW = Law(slots=4, beta=0.1, prefill_tokens_per_s=1000.0, token_s=0.02)


def test_speed_falls_with_company() -> None:
    assert [LAW.speed(running) for running in (0, 1, 2, 4)] == pytest.approx(
        [1.0, 1.0, 1 / 1.1, 1 / 1.3]
    )


def test_work_is_prefill_plus_one_token_time_a_token() -> None:
    assert LAW.lone_prefill_s(500) == pytest.approx(0.5)
    assert LAW.lone_work_s(500, 75) == pytest.approx(0.5 + 1.5)


def test_capacity_is_what_a_full_replica_completes() -> None:
    assert LAW.capacity_rps(2.0) == pytest.approx(1.538, abs=0.001)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"slots": 0}, "slots"),
        ({"beta": -0.1}, "beta"),
        ({"prefill_tokens_per_s": 0.0}, "prefill_tokens_per_s"),
        ({"token_s": 0.0}, "token_s"),
    ],
    ids=["no slots", "speed-up by company", "no prefill", "free tokens"],
)
def test_refuses_impossible_laws(change: dict[str, float], named: str) -> None:
    sane = {"slots": 4, "beta": 0.1, "prefill_tokens_per_s": 1000.0, "token_s": 0.02}
    with pytest.raises(ValueError, match=named):
        Law(**{**sane, **change})  # type: ignore[arg-type]
