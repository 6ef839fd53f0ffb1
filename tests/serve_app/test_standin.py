"""The stand-in engine: chunks on time by its law, aborts, stop, and what it reports."""

import asyncio
import time

import pytest

from serve_app.engine import Chunk, EngineDead, GenerationRequest, Message, RequestRefused
from serve_app.engine_stats import FinishedRequest, Step
from serve_app.law import Law
from serve_app.standin import StandInConfig, StandInEngine, count_prompt_tokens, token_milestones

LAW = Law(slots=2, beta=0.5, prefill_tokens_per_s=1000.0, token_s=0.01)
# Chunks leave a moment after their time: the event loop has to wake up, on a busy machine.
LATE_S = 0.25


def config(law: Law = LAW, load_s: float = 0.0) -> StandInConfig:
    return StandInConfig(law, load_s, chunk_tokens=8, kv_tokens=1000, max_model_len=500)


def request(name: str, words: int = 50, max_tokens: int = 20) -> GenerationRequest:
    return GenerationRequest(name, (Message("user", "w " * words),), max_tokens)


class Bench:
    """A started engine, its steps, and requests with the seconds at which chunks came."""

    def __init__(self, engine: StandInEngine, steps: list[Step]) -> None:
        self.engine = engine
        self.steps = steps

    async def answer(self, asked: GenerationRequest) -> list[tuple[float, Chunk]]:
        began_s = time.monotonic()
        return [(time.monotonic() - began_s, chunk) async for chunk in self.engine.generate(asked)]

    @property
    def finished(self) -> list[FinishedRequest]:
        return [one for step in self.steps for one in step.finished]


@pytest.fixture
async def bench() -> Bench:
    steps: list[Step] = []
    engine = StandInEngine(config(), steps.append)
    await engine.start()
    return Bench(engine, steps)


@pytest.mark.parametrize(
    ("max_tokens", "chunk_tokens", "milestones"),
    [(20, 8, (1, 9, 17, 20)), (17, 8, (1, 9, 17)), (2, 8, (1, 2)), (1, 8, (1, 1))],
    ids=["a remainder", "no remainder", "shorter than a chunk", "one token, then its end"],
)
def test_tokens_come_in_chunks(
    max_tokens: int, chunk_tokens: int, milestones: tuple[int, ...]
) -> None:
    assert token_milestones(max_tokens, chunk_tokens) == milestones


def test_words_are_tokens() -> None:
    turns = (Message("system", "be  brief"), Message("user", "hello\nyou"))
    assert count_prompt_tokens(GenerationRequest("r", turns, 1)) == 4
    assert count_prompt_tokens(GenerationRequest("r", (Message("user", ""),), 1)) == 1
    assert count_prompt_tokens(GenerationRequest("r", (), 1, prompt="once upon a")) == 3
    assert count_prompt_tokens(GenerationRequest("r", (), 1, prompt=(7, 8))) == 2


async def test_a_lone_request_runs_at_its_lone_speed(bench: Bench) -> None:
    answer = await bench.answer(request("a", words=50, max_tokens=20))
    assert [chunk.tokens for _, chunk in answer] == [1, 8, 8, 3]
    assert [chunk.finish_reason for _, chunk in answer] == [None, None, None, "length"]
    assert {chunk.prompt_tokens for _, chunk in answer} == {50}
    assert "".join(chunk.text for _, chunk in answer).split() == ["word"] * 20
    for (came_s, _), due_s in zip(answer, (0.05, 0.14, 0.22, 0.25), strict=True):
        assert due_s <= came_s < due_s + LATE_S


async def test_company_slows_and_a_third_waits_its_turn(bench: Bench) -> None:
    answers = await asyncio.gather(*(bench.answer(request(name)) for name in "abc"))
    # Two at 1 / 1.5 need 0.375 s for 0.25 s of work; the third then runs alone.
    for answer, due_s in zip(answers, (0.375, 0.375, 0.625), strict=True):
        assert due_s <= answer[-1][0] < due_s + LATE_S
    first, _, third = bench.finished
    # By the engine's own account, late wake-ups or not; the three came almost at once.
    assert first.queue_s == 0.0
    assert third.queue_s == pytest.approx(0.375, abs=0.02)
    assert third.prefill_s == pytest.approx(0.05, abs=0.02)
    assert third.decode_s == pytest.approx(0.2, abs=0.02)


async def test_reports_counts_tokens_and_latencies(bench: Bench) -> None:
    await asyncio.gather(*(bench.answer(request(name)) for name in "abc"))
    steps = bench.steps
    assert max(step.running for step in steps) == 2
    assert max(step.waiting for step in steps) == 1
    assert (steps[-1].running, steps[-1].waiting, steps[-1].kv_cache_ratio) == (0, 0, 0.0)
    assert max(step.kv_cache_ratio for step in steps) == pytest.approx(2 * 67 / 1000)
    assert sum(step.prompt_tokens for step in steps) == 150
    assert sum(step.generation_tokens for step in steps) == 60
    assert sorted(ttft for step in steps for ttft in step.ttft_s) == pytest.approx(
        [0.075, 0.075, 0.425], abs=0.02
    )
    assert len([gap for step in steps for gap in step.inter_token_s]) == 9


async def test_a_cancelled_request_frees_its_slot(bench: Bench) -> None:
    hogs = [asyncio.create_task(bench.answer(request(n, max_tokens=400))) for n in "ab"]
    waiting = asyncio.create_task(bench.answer(request("c")))
    await asyncio.sleep(0.05)
    hogs[0].cancel()
    hogs[1].cancel()
    answer = await waiting
    assert answer[-1][0] < 0.05 + 0.25 + LATE_S  # the two would have run for 6 s
    assert [one.generation_tokens for one in bench.finished] == [20]


async def test_a_cancelled_waiter_is_forgotten(bench: Bench) -> None:
    tasks = [asyncio.create_task(bench.answer(request(name))) for name in "abcd"]
    await asyncio.sleep(0.01)
    tasks[2].cancel()
    await asyncio.wait(tasks)
    assert len(bench.finished) == 3
    assert bench.steps[-1].waiting == 0


async def test_a_closed_stream_aborts(bench: Bench) -> None:
    chunks = bench.engine.generate(request("a", max_tokens=400))
    await anext(chunks)
    await chunks.aclose()
    assert bench.steps[-1].running == 0


async def test_refuses_what_exceeds_the_context(bench: Bench) -> None:
    with pytest.raises(RequestRefused, match="maximum context length is 500"):
        await bench.answer(request("a", words=490, max_tokens=20))


async def test_start_takes_the_load_time_and_its_warm_up_is_not_reported() -> None:
    steps: list[Step] = []
    engine = StandInEngine(config(load_s=0.1), steps.append)
    with pytest.raises(EngineDead):
        await engine.check_health()
    began_s = time.monotonic()
    await engine.start()
    assert time.monotonic() - began_s >= 0.1
    await engine.check_health()
    assert steps == []


async def test_a_stopped_engine_ends_its_streams_and_is_unhealthy(bench: Bench) -> None:
    running = asyncio.create_task(bench.answer(request("a", max_tokens=400)))
    await asyncio.sleep(0.02)
    await bench.engine.stop()
    with pytest.raises(EngineDead):
        await running
    with pytest.raises(EngineDead):
        await bench.engine.check_health()
    with pytest.raises(EngineDead):
        await bench.answer(request("b"))


async def test_a_busy_engine_keeps_reporting_while_nothing_happens(bench: Bench) -> None:
    law = Law(slots=1, beta=0.0, prefill_tokens_per_s=1.0, token_s=0.01)
    steps: list[Step] = []
    engine = StandInEngine(config(law), steps.append)
    await engine.start()
    task = asyncio.create_task(Bench(engine, steps).answer(request("slow", words=100)))
    await asyncio.sleep(1.2)
    task.cancel()
    assert [step.running for step in steps[:3]] == [1, 1, 1]
    await engine.stop()
    await bench.engine.stop()
