"""What a demo day is played with: its load, its cluster and the law of its replicas."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from serve_app.law import Law


@dataclass(frozen=True)
class Script:
    """Everything about a day but its seed. Times in seconds, loads in replicas kept wholly busy.

    `levels` are a day's loads from the lowest on; in each of `parts` the load rises once to each
    higher level, on average at `rises_s`, moved by up to `moved_by_s`, and falls at `fall_s`. The
    day ends with `quiet_s` more: the controller begins before the day does, as quiet as the earlier
    days ended.
    """

    model: str
    engine: Mapping[str, Any]
    law: Law
    season_s: float
    warm_up_s: float
    ttft_s: float
    attainment: float
    min_replicas: int
    max_replicas: int
    past_replicas: int
    cold_start_s: float
    prompt_tokens: float
    output_tokens: float
    levels: tuple[float, ...]
    parts: int
    quiet_s: float
    rises_s: tuple[float, ...]
    moved_by_s: float
    fall_s: float
    ramp_s: float
    falling_s: float
    shortest_peak_s: float
    targets: tuple[float, ...]
    seasons_of_history: int = 6
    cpus: float = 0.1
    replica_env: Mapping[str, str] = field(default_factory=dict)
    ready_within_s: float = 120.0
    machine_is_judged: bool = True

    @property
    def part_s(self) -> float:
        """How long a part lasts."""
        return (self.season_s - self.quiet_s) / self.parts

    @property
    def mean_work_s(self) -> float:
        """Work of a mean request, alone."""
        return self.law.lone_work_s(round(self.prompt_tokens), round(self.output_tokens))

    @property
    def capacity_rps(self) -> float:
        """Mean requests a second that a full replica completes."""
        return self.law.capacity_rps(self.mean_work_s)

    @property
    def least_move(self) -> int:
        """Replicas that a loop which closed has taken and given back at the least."""
        return min(3, self.max_replicas - self.min_replicas)


STANDIN_LAW = Law(slots=6, beta=0.06, prefill_tokens_per_s=2400.0, token_s=0.08)
STANDIN = Script(
    model="standin",
    engine={"kind": "standin", "load_s": 9.0, **asdict(STANDIN_LAW), "chunk_tokens": 20},
    law=STANDIN_LAW,
    season_s=192.0,
    warm_up_s=12.0,
    ttft_s=1.0,
    attainment=0.99,
    min_replicas=2,
    max_replicas=10,
    past_replicas=9,
    cold_start_s=12.0,
    prompt_tokens=200.0,
    output_tokens=40.0,
    levels=(1.4, 4.3, 7.2),
    parts=3,
    quiet_s=18.0,
    rises_s=(12.0, 29.0),
    moved_by_s=12.0,
    fall_s=44.0,
    ramp_s=2.0,
    falling_s=3.0,
    shortest_peak_s=6.0,
    targets=(1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0),
)
VLLM_SLOTS = 4
VLLM_ENGINE: Mapping[str, Any] = {
    "kind": "vllm",
    "source": "tiny-random",
    "slots": VLLM_SLOTS,
    "max_model_len": 2048,
    "enforce_eager": True,
    # A chunk every so many tokens: the cores are for the engines.
    "engine_args": {
        "num_gpu_blocks_override": 128,
        "stream_interval": 10,
        "logits_processors": ["serve_app.pacing:Pace"],
        "scheduler_cls": "serve_app.pacing.PacedScheduler",
    },
}
VLLM_ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Threads of two engines would spin for the same two cores.
    "OMP_NUM_THREADS": "1",
    "PACE_STEP_S": "0.025",
}


def vllm_script(law: Law, cold_start_s: float) -> Script:
    """The day for real vLLM on a small machine: two engines at most, and a law that was measured
    there. Its engines wait in each step as they would for a GPU (`serve_app.pacing`); one that
    starts computes, so the machine's load is theirs and voids nothing."""
    return Script(
        model="tiny",
        engine=VLLM_ENGINE,
        law=law,
        season_s=240.0,
        warm_up_s=12.0,
        ttft_s=2.0,
        attainment=0.95,
        min_replicas=1,
        max_replicas=2,
        past_replicas=2,
        cold_start_s=cold_start_s,
        prompt_tokens=20.0,
        output_tokens=30.0,
        levels=(0.3, 1.2),
        # An engine that is wanted again within two cold starts is not worth giving back.
        parts=1,
        quiet_s=16.0,
        rises_s=(85.0,),
        moved_by_s=min(cold_start_s, 30.0),
        fall_s=140.0,
        ramp_s=4.0,
        falling_s=4.0,
        shortest_peak_s=20.0,
        targets=(1.0, 1.5, 2.0, 2.5, 3.0, 3.5),
        cpus=1.0,
        replica_env=VLLM_ENV,
        ready_within_s=300.0,
        machine_is_judged=False,
    )
