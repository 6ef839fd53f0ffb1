"""The policy that runs inside Serve: Serve's own decision, and a fresh floor where it is higher."""

import json
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.fake_server import Answer, serving

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("ray.serve")
    import ray.serve.autoscaling_policy as rays
    from ray.serve._private.common import DeploymentID
    from ray.serve.config import AutoscalingConfig, AutoscalingContext

    from controller.inserve import policy as ours
    from controller.inserve.policy import LeadtimePolicy

pytestmark = pytest.mark.filterwarnings("ignore")
TICK_S = 0.1


class Clock:
    """Ray's clock and ours, moved by hand."""

    def __init__(self) -> None:
        self.at_s = 1000.0

    def time(self) -> float:
        return self.at_s


class HeldFloor(ours._Floor):  # noqa: SLF001
    """A floor given by the test, in force until it is taken away."""

    def __init__(self) -> None:
        super().__init__()
        self.replicas: int | None = None

    def fresh(self, now_s: float) -> int | None:
        return self.replicas


class Deployment:
    """One deployment under a policy, as Serve's controller runs it."""

    def __init__(self, clock: Clock, policy: Callable[[Any], Any], **config: Any) -> None:
        self.clock = clock
        self.config = AutoscalingConfig(**{"min_replicas": 1, "max_replicas": 20, **config})
        self.policy = rays._apply_autoscaling_config(policy)  # noqa: SLF001
        self.state: dict[str, Any] = {}
        self.target = self.running = 1

    def tick(self, ongoing: float) -> int:
        config = self.config
        context = AutoscalingContext(
            deployment_id=DeploymentID("LLM", "chat"),
            deployment_name="LLM",
            app_name="chat",
            current_num_replicas=self.running,
            target_num_replicas=self.target,
            running_replicas=[],
            total_num_requests=ongoing,
            total_queued_requests=0.0,
            aggregated_metrics={},
            raw_metrics={},
            capacity_adjusted_min_replicas=config.min_replicas,
            capacity_adjusted_max_replicas=config.max_replicas,
            policy_state=self.state,
            last_scale_up_time=None,
            last_scale_down_time=None,
            current_time=self.clock.at_s,
            config=config,
        )
        count, self.state = self.policy(context)
        self.target = min(max(config.min_replicas, count), config.max_replicas)
        self.clock.at_s += TICK_S
        return self.target


def held_policy(clock: Clock, **native: Any) -> tuple[LeadtimePolicy, HeldFloor]:
    """The policy with a floor that the test holds, on the test's clock."""
    made = LeadtimePolicy(url="http://127.0.0.1:1", **native)
    floor = HeldFloor()
    made._floor, made._clock = floor, clock.time  # noqa: SLF001
    return made, floor


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(rays, "time", SimpleNamespace(time=made.time))
    return made


def under_policy(clock: Clock, **native: Any) -> tuple[Deployment, HeldFloor]:
    policy, floor = held_policy(clock, **native)
    return Deployment(clock, policy, upscale_delay_s=0, downscale_delay_s=0), floor


loads = st.lists(
    st.tuples(st.sampled_from((0.0, 1.0, 3.9, 4.0, 9.0, 30.0)), st.integers(1, 40)), max_size=12
)


@given(
    loads,
    st.sampled_from((0.0, 0.5, 2.0)),
    st.sampled_from((0.0, 1.0, 3.0)),
    st.sampled_from((None, 0.5)),
    st.sampled_from((0.5, 1.0, 2.0)),
    st.integers(0, 1),
    st.booleans(),
)
def test_without_a_floor_it_decides_what_serve_would(
    load: list[tuple[float, int]],
    up_s: float,
    down_s: float,
    to_zero_s: float | None,
    factor: float,
    least: int,
    instant: bool,
) -> None:
    """Tick by tick and whatever the delays, factors, load and cold starts.

    A start from zero is Serve's own doing, before any policy: its factor is the config's.
    """
    least = least if factor == 1.0 else 1
    native = {
        "upscale_delay_s": up_s,
        "downscale_delay_s": down_s,
        "downscale_to_zero_delay_s": to_zero_s,
        "upscaling_factor": factor,
        "downscaling_factor": factor,
    }
    clock, other = Clock(), Clock()
    real = rays.time
    rays.time = SimpleNamespace(time=clock.time)
    try:
        policy, _ = held_policy(other, **native)
        alone = Deployment(
            clock, rays.replica_queue_length_autoscaling_policy, min_replicas=least, **native
        )
        with_us = Deployment(
            other, policy, min_replicas=least, upscale_delay_s=0, downscale_delay_s=0
        )
        for ongoing, ticks in load:
            for _ in range(ticks):
                assert with_us.tick(ongoing) == alone.tick(ongoing)
                if instant or clock.at_s % 2 < 1:
                    alone.running, with_us.running = alone.target, with_us.target
    finally:
        rays.time = real


def test_a_raised_floor_is_the_target_at_the_next_tick(clock: Clock) -> None:
    live, floor = under_policy(clock, upscale_delay_s=30)
    assert live.tick(0.0) == 1
    floor.replicas = 5
    assert live.tick(0.0) == 5
    floor.replicas = 2
    assert live.tick(0.0) == 2


def test_serves_own_growth_waits_for_its_delay_and_goes_beyond_the_floor(clock: Clock) -> None:
    live, floor = under_policy(clock, upscale_delay_s=3.0, downscale_delay_s=600.0)
    floor.replicas = 2
    targets = [live.tick(8.0) for _ in range(40)]
    assert set(targets[:29]) == {2}
    assert targets[-1] == 4
    # A wish that the floor covers anyway neither adds to it nor holds it up.
    floor.replicas = 9
    assert live.tick(8.0) == 9
    floor.replicas = 4
    assert live.tick(8.0) == 4


def test_a_dead_daemon_leaves_the_target_to_serves_own_delay(clock: Clock) -> None:
    """At the peak: nothing is taken away before Serve itself would."""
    live, floor = under_policy(clock, upscale_delay_s=1.0, downscale_delay_s=2.0)
    floor.replicas = 6
    for _ in range(50):
        live.running = live.tick(2.0)
    floor.replicas = None
    targets = [live.tick(2.0) for _ in range(40)]
    assert set(targets[:19]) == {6}
    assert targets[-1] == 1


def test_a_dead_daemon_leaves_growth_to_serve(clock: Clock) -> None:
    """In the trough: the next ramp is met late, as without us."""
    live, floor = under_policy(clock, upscale_delay_s=1.0, downscale_delay_s=2.0)
    floor.replicas = 1
    live.tick(0.5)
    floor.replicas = None
    assert [live.tick(9.0) for _ in range(15)][-1] == 5


def test_a_floor_above_serves_maximum_is_cut_by_serve(clock: Clock) -> None:
    live, floor = under_policy(clock)
    floor.replicas = 50
    assert live.tick(0.0) == 20


@pytest.mark.parametrize(
    "wrong", [{}, {"url": "http://x", "file": "/y"}, {"url": "leadtime:8199"}, {"url": [""]}]
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="LeadtimePolicy"):
        LeadtimePolicy(**wrong)


@pytest.mark.parametrize("config", [{"upscale_delay_s": 30}, {"downscaling_factor": 0.5}])
def test_a_config_that_holds_the_floor_back_is_said(
    clock: Clock, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    policy = LeadtimePolicy(url="http://127.0.0.1:1")
    live = Deployment(clock, policy, **{"upscale_delay_s": 0, "downscale_delay_s": 0, **config})
    live.tick(0.0)
    assert next(iter(config)) in caplog.text


def document(**changes: Any) -> dict[str, Any]:
    """What a daemon answers."""
    return {"ttl_s": 30, "age_s": 2.0, "floors": {"chat": {"LLM": 5}}, **changes}


def fetched(url: str | list[str]) -> Any:
    urls = [url] if isinstance(url, str) else url
    return ours._Fetched(urls, None).of("chat", "LLM")  # noqa: SLF001


def ok(body: Any) -> Answer:
    return 200, "application/json", json.dumps(body).encode()


def test_a_floor_comes_over_http_and_ages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "time", SimpleNamespace(monotonic=lambda: 100.0))
    with serving(lambda *_: ok(document())) as fake:
        floor = fetched(fake.url)
        floor.read()
    assert fake.asked[0]["path"] == "/api/v1/floors"
    assert (fake.asked[0]["application"], fake.asked[0]["deployment"]) == ("chat", "LLM")
    assert (floor.fresh(127.9), floor.fresh(128.0)) == (5, None)


def test_the_token_is_read_anew_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serving(lambda *_: ok(document())) as fake:
        floor = fetched(fake.url)
        floor.read()
        monkeypatch.setenv("LEADTIME_FLOOR_TOKEN", "one")
        floor.read()
        token = tmp_path / "token"
        token.write_text("two\n")
        monkeypatch.setenv("LEADTIME_FLOOR_TOKEN_FILE", str(token))
        floor.read()
    sent = [headers.get("authorization") for headers in fake.headers]
    assert sent == [None, "Bearer one", "Bearer two"]


@pytest.mark.parametrize(
    "answer",
    [
        (503, "application/json", b'{"error": "standby"}'),
        (302, "text/html", b""),
        (200, "text/html", b"<html>log in</html>"),
        (200, "application/json", b'{"ttl_s": 30, "floors"'),
        ok(document(ttl_s=-1)),
        ok(document(ttl_s=1e9)),
        ok(document(age_s=float("nan"))),
        ok(document(floors={"chat": {"LLM": -1}})),
        ok(document(floors={"chat": {"LLM": True}})),
        ok(document(floors={"chat": {"LLM": "5"}})),
        ok([]),
    ],
)
def test_a_wrong_answer_changes_nothing(answer: Answer) -> None:
    answers = [ok(document()), answer]
    with serving(lambda *_: answers.pop(0)) as fake:
        floor = fetched(fake.url)
        floor.read()
        before = floor._held  # noqa: SLF001
        with pytest.raises((OSError, ValueError)):
            floor.read()
        assert floor._held == before  # noqa: SLF001


def test_a_deployment_without_a_floor_is_serves_at_once() -> None:
    answers = [ok(document()), ok(document(floors={}))]
    with serving(lambda *_: answers.pop(0)) as fake:
        floor = fetched(fake.url)
        floor.read()
        floor.read()
    assert floor._held is None  # noqa: SLF001


def test_of_several_daemons_the_one_that_leads_is_asked() -> None:
    standby = (503, "application/json", b'{"error": "standby"}')
    with serving(lambda *_: standby) as first, serving(lambda *_: ok(document())) as second:
        floor = fetched([first.url, second.url])
        floor.read()
        floor.read()
    assert (len(first.asked), len(second.asked)) == (1, 2)


def test_a_file_is_fresh_while_it_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its clock is an hour off: that counts at the first reading only."""
    now = SimpleNamespace(wall_s=5000.0, mono_s=100.0)
    clocks = SimpleNamespace(time=lambda: now.wall_s, monotonic=lambda: now.mono_s)
    monkeypatch.setattr(ours, "time", clocks)
    path = tmp_path / "floors.json"
    floor = ours._Filed(path).of("chat", "LLM")  # noqa: SLF001
    with pytest.raises(OSError, match=r"floors\.json"):
        floor.read()
    path.write_text(json.dumps(document(at_s=1400.0)))
    floor.read()
    assert floor.fresh(100.0) is None
    path.write_text(json.dumps(document(at_s=1410.0)))
    floor.read()
    assert floor.fresh(129.9) == 5
    now.mono_s = 129.0
    floor.read()
    assert floor.fresh(130.0) is None


def test_serve_is_not_kept_waiting_and_the_thread_ends_with_the_policy(clock: Clock) -> None:
    """A daemon that accepts and never answers: a tick takes no longer."""
    hang = threading.Event()

    def never(*_: object) -> Answer:
        hang.wait(10)
        return 503, "text/plain", b""

    with serving(never) as fake:
        policy = LeadtimePolicy(url=fake.url, every_s=0.1)
        live = Deployment(clock, policy, upscale_delay_s=0, downscale_delay_s=0)
        assert [live.tick(0.0) for _ in range(100)] == [1] * 100
        reading = [t for t in threading.enumerate() if t.name == "leadtime" and t.is_alive()]
        assert reading
        hang.set()
        del policy, live
        for thread in reading:
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEADTIME_FLOOR_TOKEN", "LEADTIME_FLOOR_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
