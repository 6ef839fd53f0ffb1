"""Ray Serve's autoscaler, ours against Ray's own code."""

import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from controller.replay import native
from controller.replay.layout import READY
from controller.replay.native import NativeSettings, native_target, new_controller, play_native
from controller.replay.plant import Plant
from controller.replay.trace import Trace
from tests.replay.conftest import plain, poisson, requests_at

pytestmark = pytest.mark.filterwarnings("ignore")
Step = Callable[[float, int, int, float], int]


@pytest.fixture(scope="module")
def ray_serve() -> Any:
    """Ray's policy module; its clock is ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("ray.serve")
        import ray.serve.autoscaling_policy as policy
    real, clock = policy.time, [0.0]
    policy.time = SimpleNamespace(time=lambda: clock[0])
    yield SimpleNamespace(policy=policy, clock=clock)
    policy.time = real


def rays_own(ray_serve: Any, settings: NativeSettings) -> Step:
    """One decision by Ray's code, bounds applied as its controller does."""
    from ray.serve._private.common import DeploymentID
    from ray.serve.config import AutoscalingConfig, AutoscalingContext

    rule = ray_serve.policy.replica_queue_length_autoscaling_policy
    policy = ray_serve.policy._apply_autoscaling_config(rule)  # noqa: SLF001
    config = AutoscalingConfig(
        min_replicas=settings.min_replicas,
        max_replicas=settings.max_replicas,
        target_ongoing_requests=settings.target_ongoing_requests,
        upscale_delay_s=settings.upscale_delay_s,
        downscale_delay_s=settings.downscale_delay_s,
        downscale_to_zero_delay_s=settings.downscale_to_zero_delay_s,
        upscaling_factor=settings.upscaling_factor,
        downscaling_factor=settings.downscaling_factor,
    )
    state: dict[str, Any] = {}
    identity = DeploymentID("d", "a")

    def step(now_s: float, running: int, target: int, total: float) -> int:
        nonlocal state
        ray_serve.clock[0] = now_s
        context = AutoscalingContext(
            deployment_id=identity,
            deployment_name="d",
            app_name="a",
            current_num_replicas=running,
            target_num_replicas=target,
            running_replicas=[],
            total_num_requests=total,
            total_queued_requests=0.0,
            aggregated_metrics={},
            raw_metrics={},
            capacity_adjusted_min_replicas=config.min_replicas,
            capacity_adjusted_max_replicas=config.max_replicas,
            policy_state=state,
            last_scale_up_time=None,
            last_scale_down_time=None,
            current_time=now_s,
            config=config,
        )
        wanted, state = policy(context)
        return int(max(config.min_replicas, min(config.max_replicas, math.ceil(wanted))))

    return step


def ours(settings: NativeSettings) -> Step:
    me = new_controller(settings, 1).state[0]

    def step(now_s: float, running: int, target: int, total: float) -> int:
        return int(native_target(me, now_s, running, target, total))

    return step


def random_settings(rng: np.random.Generator) -> NativeSettings:
    least = int(rng.integers(0, 4))
    return NativeSettings(
        min_replicas=least,
        max_replicas=least + int(rng.integers(1, 30)),
        target_ongoing_requests=float(rng.choice([1, 2, 3.7, 10])),
        upscale_delay_s=float(rng.choice([0, 0.5, 5, 30])),
        downscale_delay_s=float(rng.choice([0, 2, 20, 60])),
        downscale_to_zero_delay_s=rng.choice(np.array([None, 0.0, 40.0], dtype=object)),
        upscaling_factor=float(rng.choice([0.3, 1, 1, 2.5])),
        downscaling_factor=float(rng.choice([0.3, 1, 1, 2.5])),
    )


def compare(left: Step, right: Step, settings: NativeSettings, rng: np.random.Generator) -> int:
    """Feed both the same walk of load and a fleet that follows with a lag; decisions compared."""
    target = max(settings.min_replicas, 1)
    running, total, now_s, decisions = target, 0.0, 0.0, 0
    for _ in range(200):
        now_s += 0.1 * int(rng.integers(1, 60))
        if rng.random() < 0.3:
            total = float(rng.choice([0.0, rng.uniform(0, 80), round(rng.uniform(0, 80))]))
        answers = [step(now_s, running, target, total) for step in (left, right)]
        assert answers[0] == answers[1], (now_s, running, target, total, settings)
        target = answers[0]
        if rng.random() < 0.4:
            running += int(np.sign(target - running))
        decisions += 1
    return decisions


def test_decides_as_rays_own_code_on_a_thousand_random_series(ray_serve: Any) -> None:
    decisions = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        settings = random_settings(rng)
        decisions += compare(rays_own(ray_serve, settings), ours(settings), settings, rng)
    assert decisions == 200_000


def test_a_step_of_load_is_answered_after_the_delays() -> None:
    # Load 1, 14 from 60 s to 300 s, then 1: seen on Ray's own code as 1 -> 7 at 90, 7 -> 1 at 900.
    step = ours(NativeSettings(max_replicas=10))
    target, changes = 1, []
    for tick in range(10_000):
        now_s = tick / 10
        wanted = step(now_s, target, target, 14.0 if 60 <= now_s < 300 else 1.0)
        if wanted != target:
            changes.append((now_s, target, wanted))
        target = wanted
    assert changes == [(90.0, 1, 7), (900.0, 7, 1)]


class RayHandle:
    """What a handle would have recorded and reported, kept as Ray keeps it: a series a source."""

    def __init__(self, settings: NativeSettings) -> None:
        self.settings = settings
        self.series: dict[object, list[tuple[float, float]]] = {"queued": []}
        self.reported: dict[object, list[tuple[float, float]]] = {}
        self.records = self.pushes = 0

    def observe(self, plant: Plant, now_s: float) -> None:
        # Ray compares times rounded to 10 ms with unrounded ones; here they are the same.
        state, point_s = plant.cluster.state[0], round(now_s, 2)
        if now_s + 1e-9 >= self.records * self.settings.record_interval_s:
            self.records += 1
            self.series["queued"].append((point_s, float(state["tail"] - state["head"])))
            for replica in self.ready(plant):
                if replica["taken"]:
                    points = self.series.setdefault(int(replica["serial"]), [])
                    points.append((point_s, float(replica["running"])))
        if now_s + 1e-9 >= self.pushes * self.settings.metrics_interval_s:
            self.pushes += 1
            since_s = now_s - self.settings.look_back_period_s + 1e-9
            self.reported = {k: [p for p in v if p[0] > since_s] for k, v in self.series.items()}

    @staticmethod
    def ready(plant: Plant) -> list[Any]:
        return [replica for replica in plant.cluster.replicas if replica["phase"] == READY]

    def total(self, plant: Plant, now_s: float) -> float:
        from ray.serve._private.autoscaling_metrics_merge import merge_and_aggregate_arrays

        alive = {int(replica["serial"]) for replica in self.ready(plant)} | {"queued"}
        sources = [points for key, points in self.reported.items() if key in alive]
        flat = np.array([point for points in sources for point in points]).reshape(-1, 2)
        offsets = np.concatenate(([0], np.cumsum([len(points) for points in sources])))
        columns = (flat[:, 0].copy(), flat[:, 1].copy(), offsets.astype(np.int64))
        return float(merge_and_aggregate_arrays(*columns, now_s, "mean"))


@pytest.mark.parametrize("look_back_s", [30.0, 12.0, 100.0])
def test_counts_requests_as_rays_own_merge_of_handle_reports(
    ray_serve: Any, look_back_s: float
) -> None:
    settings = NativeSettings(look_back_period_s=look_back_s)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        trace = poisson(float(rng.choice([0.02, 0.5, 3])), 600, seed=seed, work_s=0.003)
        plant = Plant(plain(slots=3, cold_start_s=7), trace, initial=1)
        controller = new_controller(settings, plant.cluster.replicas.size)
        handle = RayHandle(settings)
        for tick in range(5000):
            now_s = tick * 0.1
            plant.advance(now_s)
            native.measure(plant.cluster, controller, now_s)
            handle.observe(plant, now_s)
            found = native.total_requests(plant.cluster, controller, now_s)
            if plant.view().ready:
                assert found == pytest.approx(handle.total(plant, now_s), rel=1e-9, abs=1e-12)
            if rng.random() < 0.01:
                plant.set_target(int(rng.integers(1, 6)))


def wave() -> Trace:
    return poisson(2.0, 3600, seed=3, work_s=0.004)


def test_in_the_loop_it_follows_the_load_within_its_bounds() -> None:
    settings = NativeSettings(max_replicas=5, target_ongoing_requests=2, downscale_delay_s=60)
    plant = Plant(plain(slots=4, cap=8), wave(), initial=1)
    score = play_native(plant, settings)
    # 2 requests/s of 4 s: 8 in flight, 4 replicas at 2 each.
    assert score.reports["target"].max() == 5
    assert 3.5 <= score.reports["target"][10:].mean() <= 5
    assert score.requests == score.completed


def test_from_zero_a_waiting_request_starts_a_replica_without_delay() -> None:
    trace = requests_at([100.0, 100.5, 107.0], end_s=300, output_s=1)
    plant = Plant(plain(cold_start_s=20), trace, initial=0)
    score = play_native(plant, NativeSettings(min_replicas=0, downscale_delay_s=60))
    # The handle's next point after 100 s is at 102 s; the arrival at 107 s pushes it at once.
    assert score.log["wait_s"][0] == pytest.approx(27.0, abs=0.2)
    assert score.reports["target"].tolist()[-1] == 0
