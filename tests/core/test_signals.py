"""One rule for missing, stale, impossible and partial signals. Case ids are those of the field
cases that the project collects."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.signals import (
    TRUSTED,
    Freshness,
    SignalReader,
    blindness,
    doubtful,
    judge,
)
from controller.core.types import (
    Observation,
    Readings,
    Reason,
    Replica,
    Replicas,
    ReplicaState,
    Sample,
    Trust,
)

FRESH = Freshness.of_scrape(10.0)
BAD = [float("nan"), float("inf"), -float("inf"), 1e300, -3.0]


def replicas(count: int = 2, starting: int = 0) -> Replicas:
    running = [Replica(f"r{i}", ReplicaState.RUNNING, 0.0) for i in range(count)]
    pending = [Replica(f"s{i}", ReplicaState.STARTING, 0.0) for i in range(starting)]
    return Replicas(count, count, (*running, *pending))


def readings(at_s: float, arrived: float, **changes: object) -> Readings:
    seen = {f"r{i}": Sample(3, at_s - 2) for i in range(2)}
    base = Readings(
        at_s,
        arrivals={"proxy": Sample(arrived, at_s - 2)},
        completions={f"r{i}": Sample(arrived / 2, at_s - 2) for i in range(2)},
        queued={"proxy": Sample(0, at_s - 2)},
        ongoing=seen,
        replicas=replicas(),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def observed(**changes: object) -> Observation:
    reader = SignalReader(FRESH)
    reader.observe(readings(100, 50))
    return reader.observe(readings(110, 80, **changes))


def test_a_whole_view_is_trusted() -> None:
    seen = observed()
    assert seen.demand is not None
    assert seen.demand.arrivals == 30
    assert seen.demand.rate_rps == 3
    assert seen.load is not None
    assert (seen.load.queued, seen.load.ongoing, seen.load.completions) == (0, 6, 30)
    assert blindness(seen) is None
    assert not doubtful(seen)
    assert seen.age_s == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"arrivals": None}, Reason.BLIND, id="Prometheus could not be asked"),
        pytest.param({"arrivals": {}}, Reason.BLIND, id="S10 the query returns an empty vector"),
        pytest.param(
            {"arrivals": {"proxy": Sample(80, 110 - 239)}}, Reason.STALE, id="S13 239 s old"
        ),
        pytest.param({"replicas": None}, Reason.SERVE_UNREACHABLE, id="Serve does not answer"),
        *[
            pytest.param({"arrivals": {"p": Sample(bad, 108)}}, Reason.NON_FINITE, id=f"S11 {bad}")
            for bad in BAD
        ],
    ],
)
def test_without_arrivals_or_replicas_the_view_is_blind(
    changes: dict[str, object], reason: Reason
) -> None:
    seen = observed(**changes)
    assert blindness(seen) is reason
    assert (seen.demand is None) == (seen.replicas is not None)


def follow_path(age_s: float, looks: int = 12) -> tuple[SignalReader, Observation]:
    """Looks every 10 s at a path whose newest samples, scraped every 10 s, are always so old."""
    reader = SignalReader(FRESH)
    for look in range(looks):
        at_s = 1000.0 + 10 * look
        seen = reader.observe(late_readings(at_s, 30.0 * look, age_s))
    return reader, seen


def late_readings(at_s: float, arrived: float, age_s: float) -> Readings:
    """What was true `age_s` ago, and Serve's account of now."""
    return replace(readings(at_s - age_s + 2, arrived), at_s=at_s)


@pytest.mark.parametrize("age_s", [2, 12, 26, 40, 59])
def test_a_path_that_is_always_late_is_not_stale(age_s: float) -> None:
    _, seen = follow_path(age_s)
    assert blindness(seen) is None
    assert not doubtful(seen)
    assert seen.demand is not None
    assert (seen.demand.rate_rps, seen.demand.end_s) == (3, 1110 - age_s)
    assert seen.load is not None
    assert seen.at_s == 1110
    assert seen.age_s == pytest.approx(age_s)
    ages_s = [signal.age_s for signal in seen.signals.values() if signal.trust in TRUSTED]
    assert ages_s == pytest.approx([age_s] * 4)


@pytest.mark.parametrize("age_s", [2, 12, 26, 40, 59])
def test_a_late_path_that_stops_is_stale_two_scrapes_later(age_s: float) -> None:
    reader, _ = follow_path(age_s)
    last_s, arrived = 1110 - age_s, 330.0
    found = []
    for at_s in range(1120, 1200, 10):
        still = replace(late_readings(1110, arrived, age_s), at_s=float(at_s))
        if blindness(reader.observe(still)) is Reason.STALE:
            found.append(at_s - last_s)
    assert found
    assert found[0] <= age_s + FRESH.stale_s + 10


def test_a_path_over_a_minute_late_stays_stale() -> None:
    _, seen = follow_path(61, looks=40)
    assert blindness(seen) is Reason.STALE


def test_a_signal_that_was_never_seen_to_move_is_stale() -> None:
    reader = SignalReader(FRESH)
    still = late_readings(1000, 50, 26)
    for look in range(20):
        assert blindness(reader.observe(replace(still, at_s=1000.0 + look))) is Reason.STALE


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"ongoing": {}}, id="no replica reports"),
        pytest.param({"ongoing": {"r0": Sample(float("nan"), 108)}}, id="S11 NaN in a gauge"),
        pytest.param({"queued": {}}, id="S12 the router's series vanished"),
        pytest.param({"queued": {"proxy": Sample(5, 20)}}, id="the queue is stale"),
    ],
)
def test_a_doubtful_gauge_forbids_shrinking_but_not_deciding(changes: dict[str, object]) -> None:
    seen = observed(**changes)
    assert blindness(seen) is None
    assert doubtful(seen)


def test_gauges_of_dead_replicas_are_left_out() -> None:
    """S4: seven replicas have series, Serve lists one."""
    samples = {f"r{i}": Sample(4, 105) for i in range(7)}
    assert judge(samples, 110, 20, live={"r3"}).value == 4


def test_decides_on_the_replicas_that_report() -> None:
    """S15: five of six replicas report; the five count."""
    samples = {f"r{i}": Sample(2, 105) for i in range(5)}
    assert judge(samples, 110, 20, live={f"r{i}" for i in range(6)}).value == 10


def test_a_histogram_that_is_absent_is_no_data() -> None:
    """S6: no late ratio is None, never 0."""
    seen = observed()
    assert seen.load is not None
    assert seen.load.late_ratio is None


def test_idle_is_known_when_arrivals_are_zero_and_lateness_is_undefined() -> None:
    """S8: no request came, so there is no TTFT: that is idle, not blind."""
    reader = SignalReader(FRESH)
    reader.observe(readings(100, 50))
    seen = reader.observe(readings(110, 50, late_ratio={"": Sample(float("nan"), 110)}))
    assert seen.demand is not None
    assert seen.demand.arrivals == 0
    assert blindness(seen) is None
    assert not doubtful(seen)
    assert seen.load is not None
    assert seen.load.late_ratio is None


def test_blind_when_the_count_is_missing_and_lateness_undefined() -> None:
    """S9: the same without a count is blind."""
    seen = observed(arrivals={}, late_ratio={"": Sample(float("nan"), 110)})
    assert blindness(seen) is Reason.BLIND


def test_a_deployment_nobody_ever_called_is_idle_when_every_replica_says_so() -> None:
    quiet = {f"r{i}": Sample(0, 98) for i in range(2)}
    reader = SignalReader(FRESH)
    reader.observe(readings(100, 0, arrivals={}, queued={}, ongoing=quiet))
    later = {key: Sample(0, 108) for key in quiet}
    seen = reader.observe(readings(110, 0, arrivals={}, queued={}, ongoing=later))
    assert seen.signals["arrivals"].trust is Trust.ZERO
    assert seen.demand is not None
    assert seen.demand.arrivals == 0
    one_silent = {"r0": Sample(0, 118)}
    seen = reader.observe(readings(120, 0, arrivals={}, queued={}, ongoing=one_silent))
    assert blindness(seen) is Reason.BLIND


def test_requests_waiting_inside_engines_count_as_queued() -> None:
    seen = observed(waiting={"r0": Sample(2, 108)}, queued={"proxy": Sample(5, 108)})
    assert seen.load is not None
    assert (seen.load.queued, seen.load.ongoing) == (7, 4)


numbers = st.one_of(
    st.floats(0, 1e6), st.sampled_from(BAD), st.floats(allow_nan=True, allow_infinity=True)
)
series = st.one_of(
    st.none(),
    st.dictionaries(
        st.sampled_from(["r0", "r1", "proxy", "gone"]),
        st.builds(Sample, numbers, st.floats(0, 130)),
        max_size=4,
    ),
)


@given(
    arrivals=series,
    completions=series,
    queued=series,
    ongoing=series,
    waiting=series,
    late_ratio=series,
    gpu_ratio=series,
)
def test_nothing_that_comes_in_makes_a_number_that_is_none(**fields: object) -> None:
    """S11 in kind: whatever any field holds, what is trusted is finite and not negative."""
    seen = observed(**fields)
    if seen.demand is not None:
        assert seen.demand.arrivals >= 0
        assert seen.demand.rate_rps < 1e15
    if seen.load is not None:
        for value in (seen.load.queued, seen.load.ongoing, seen.load.completions or 0.0):
            assert 0 <= value < 1e16
        for ratio in (seen.load.late_ratio, seen.load.gpu_ratio):
            assert ratio is None or 0 <= ratio < 1e16
    for signal in seen.signals.values():
        assert signal.age_s >= 0
