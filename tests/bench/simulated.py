"""The bench's load on a simulated application: the stand-in's own processor sharing, a router
with a bounded queue in front. No clock, no Ray: a minute takes a second."""

from collections import deque
from dataclasses import replace

import numpy as np

from serve_app.arrivals import Arrivals, FloatArray, Lengths, draw_from_rate
from serve_app.law import Law
from serve_app.load_results import LoadResult
from serve_app.sharing import Advance, SharedProcessor

STEP_S = 0.004


class Simulation:
    """`replicas` engines behind a router that lets at most `most_waiting` requests wait."""

    def __init__(self, law: Law, replicas: int, arrivals: Arrivals, most_waiting: int) -> None:
        self.law = law
        self.arrivals = arrivals
        self.most_waiting = most_waiting
        self.engines = [SharedProcessor(law) for _ in range(replicas)]
        self.waiting: deque[int] = deque()
        self.result = LoadResult.unsent(arrivals, 0.0, "truncated")
        self.errors = list(self.result.error)
        self.result.send_lag_s[:] = 0.0
        self.due = 0
        self.left = len(arrivals)

    def play(self) -> LoadResult:
        now_s = 0.0
        while self.left:
            now_s += STEP_S
            for engine in self.engines:
                for step in engine.advance(now_s):
                    self.note(step)
            self.arrive(now_s)
            self.route(now_s)
        return replace(self.result, error=tuple(self.errors))

    def note(self, step: Advance) -> None:
        index = int(step.request_id)
        took_s = step.at_s - self.arrivals.arrival_s[index]
        if step.reached == 1:
            self.result.ttft_s[index] = took_s
        if step.finished:
            self.result.e2e_s[index], self.errors[index] = took_s, ""
            self.left -= 1

    def arrive(self, now_s: float) -> None:
        while self.due < len(self.arrivals) and self.arrivals.arrival_s[self.due] <= now_s:
            if len(self.waiting) < self.most_waiting:
                self.waiting.append(self.due)
            else:
                self.result.e2e_s[self.due], self.errors[self.due] = 0.0, "http_503"
                self.left -= 1
            self.due += 1

    def route(self, now_s: float) -> None:
        while self.waiting:
            idlest = min(self.engines, key=lambda engine: engine.running)
            if idlest.running >= self.law.slots:
                return
            index = self.waiting.popleft()
            prompt = int(self.arrivals.prompt_tokens[index])
            output = int(self.arrivals.output_tokens[index])
            work_s = (self.law.lone_prefill_s(prompt), self.law.lone_work_s(prompt, output))
            idlest.submit(now_s, str(index), work_s)


def simulated(
    law: Law, replicas: int, rate_rps: float, span_s: float, most_waiting: int, seed: int = 1
) -> LoadResult:
    """What `replicas` make of `rate_rps`; what finds `most_waiting` in front of it is refused."""

    def rate_at(times_s: FloatArray) -> FloatArray:
        return np.full(len(times_s), rate_rps)

    arrivals = draw_from_rate(rate_at, span_s, Lengths(), np.random.default_rng(seed))
    return Simulation(law, replicas, arrivals, most_waiting).play()
