"""What a replica carries, learned from normal traffic without ever saturating it.

By Little's law a request's mean time in a replica is S = n / x, where n is the mean number
running and x the completions per second. Batching slows each of n running requests to
1 / (1 + beta (n - 1)) of its lone speed, so S = W (1 + beta (n - 1)) with W the work of a mean
request alone: a straight line in the company that a request has. At C slots a replica then
completes C / (W (1 + beta (C - 1))) requests per second. Worked: W = 2 s, beta = 0.06, C = 16 gives
16 / (2 x 1.9) = 4.21 (`test_worked_capacity`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from controller.core.kv_cache import KvCache
from controller.core.types import Load
from controller.core.windows import Values

PRIOR_BETA = 0.05
PRIOR_COMPLETIONS = 30.0
MIN_COMPLETIONS = 3.0
SURPRISE = 1.5
TOKEN_REQUESTS = 100.0
PROMPT_TOKENS_PER_OUTPUT = 100.0


@dataclass(frozen=True, slots=True)
class CapacityLaw:
    """A replica's law: `slots` requests at once, `work_s` for one alone, slow-down `beta`."""

    slots: float
    work_s: float
    beta: float

    def speed(self, running: float) -> float:
        """Share of its lone speed at which each of `running` requests advances."""
        return 1.0 / (1.0 + self.beta * max(running - 1.0, 0.0))

    @property
    def capacity_rps(self) -> float:
        """Requests per second that a replica with every slot taken completes."""
        return self.slots * self.speed(self.slots) / self.work_s

    def latency_s(self, running: float) -> float:
        """Time in the replica of a mean request among `running`."""
        return self.work_s / self.speed(running)


class Capacity:
    """Learns one deployment's law from windows of `window_s`.

    The slow-down is learned over about `memory_s`, the work of a request over a 48th of that
    (at least ten windows), as mixes change faster than engines. A window counts if the number
    of ready replicas held still in it and something completed; one window counts as at most
    half more or a third less than expected. Requests that came in during a window and stayed
    count half: so Little's law holds while the load rises. Where token counters exist, work
    follows the tokens of a request: longer prompts raise the demand, they do not lower the
    capacity.
    """

    def __init__(self, window_s: float, memory_s: float) -> None:
        self._window_s = window_s
        self._keep = 0.5 ** (window_s / memory_s)
        self._keep_work = 0.5 ** min(0.1, 48 * window_s / memory_s)
        self._ready = 0
        self._elapsed_s = self._running_s = self._pairs_s = self._completed = self._ongoing = 0.0
        self._tokens = self._token_requests = 0.0
        self._usual_tokens: float | None = None
        self._recent_tokens: float | None = None
        self._moments = [0.0] * 5
        self._work = [0.0] * 2
        self._kv_cache = KvCache(max(10 * window_s, memory_s / 48))

    def state(self) -> dict[str, list[float]]:
        """What was learned: for the slow-down the weighted sums of 1, m, m^2, S and m S, m the
        company; for the work those of 1 and of the work; for the KV cache those of shares used
        and of requests running."""
        return {
            "slow_down": list(self._moments),
            "work": list(self._work),
            "kv_cache": self._kv_cache.state(),
        }

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Continue from an earlier `state()`."""
        self._moments = [float(value) for value in state["slow_down"]]
        self._work = [float(value) for value in state["work"]]
        self._kv_cache.restore(state.get("kv_cache", (0.0, 0.0)))

    def observe(self, load: Load, ready: int) -> None:
        """Take one tick in: what ran on `ready` replicas since the last."""
        self._follow_tokens(load)
        self._kv_cache.observe(load, ready)
        if ready != self._ready or load.completions is None:
            self._ready = ready
            self._ongoing = load.ongoing
            self._begin_window()
            return
        self._elapsed_s += load.interval_s
        self._running_s += (load.ongoing + self._ongoing) / 2 * load.interval_s
        self._pairs_s += load.ongoing * load.company * load.interval_s
        self._completed += load.completions + (load.ongoing - self._ongoing) / 2
        self._ongoing = load.ongoing
        if self._elapsed_s >= self._window_s:
            self._close_window()
            self._begin_window()

    def learn_past(
        self,
        window_s: float,
        running: Values,
        pairs: Values,
        completed_rps: Values,
        running_at_end: Values,
        replicas: Values,
    ) -> None:
        """Learn from past windows, if nothing was learned before. In each: mean requests
        running, mean sum of n (n - 1) over the replicas, completions per second, and at its end
        the requests running and the replicas; NaN where not known."""
        if self.known:
            return
        steady = np.diff(replicas, prepend=np.nan) == 0
        # Half of what came in during a window and stayed counts as done, as in `observe`.
        done = completed_rps * window_s + np.diff(running_at_end, prepend=np.nan) / 2
        enough = (done >= MIN_COMPLETIONS) & (running > 0) & (replicas > 0)
        for at in np.flatnonzero(steady & enough):
            stay_s = float(running[at] * window_s / done[at])
            self.learn(float(pairs[at] / running[at]), float(done[at]), stay_s)

    def law(self, slots: float) -> CapacityLaw | None:
        """The law as known now, for a replica of `slots` slots, or of as many requests as its KV
        cache holds if that is fewer; None before any window."""
        weight, worked = self._work
        if weight <= 0:
            return None
        slots = min(slots, self._kv_cache.requests)
        return CapacityLaw(slots, worked / weight * self.mix, self._beta())

    @property
    def known(self) -> bool:
        """Whether any window was learned from."""
        return self._work[0] > 0

    @property
    def mix(self) -> float:
        """Tokens of a request now over those the law was learned with; 1 without tokens."""
        if not self._usual_tokens or not self._recent_tokens:
            return 1.0
        return self._recent_tokens / self._usual_tokens

    def _beta(self) -> float:
        """Least squares of S = W + W beta m, held towards the prior as by 30 completions."""
        weight, m, mm, s, ms = self._moments
        if weight <= 0:
            return PRIOR_BETA
        prior = PRIOR_COMPLETIONS
        corner, side, end = weight + prior * PRIOR_BETA**2, m - prior * PRIOR_BETA, mm + prior
        # Both unknowns times the determinant, which is positive: Cramer's rule.
        work, slope = s * end - ms * side, corner * ms - side * s
        return min(max(slope / work, 0.0), 1.0) if work > 0 else PRIOR_BETA

    def _begin_window(self) -> None:
        self._elapsed_s = self._running_s = self._pairs_s = self._completed = 0.0

    def _close_window(self) -> None:
        if self._completed < MIN_COMPLETIONS or self._running_s <= 0:
            return
        stay_s = self._running_s / self._completed / self.mix
        self.learn(self._pairs_s / self._running_s, self._completed, stay_s)

    def learn(self, company: float, completed: float, stay_s: float) -> None:
        """Take one window in: with how many others a request shared its replica, how many
        were completed, and how long one stayed, in seconds."""
        m = max(company, 0.0)
        law = self.law(1.0)
        if law is not None:
            expected_s = law.latency_s(m + 1.0) / self.mix
            stay_s = min(max(stay_s, expected_s / SURPRISE), expected_s * SURPRISE)
        row = (1.0, m, m * m, stay_s, m * stay_s)
        self._moments = _followed(self._moments, row, completed, self._keep)
        alone = (1.0, stay_s / (1.0 + self._beta() * m))
        self._work = _followed(self._work, alone, completed, self._keep_work)

    def _follow_tokens(self, load: Load) -> None:
        if not load.completions or load.prompt_tokens is None or load.output_tokens is None:
            return
        tokens = load.prompt_tokens / PROMPT_TOKENS_PER_OUTPUT + load.output_tokens
        self._tokens += tokens
        self._token_requests += load.completions
        if self._token_requests < TOKEN_REQUESTS:
            return
        mean = self._tokens / self._token_requests
        self._tokens = self._token_requests = 0.0
        recent = mean if self._recent_tokens is None else 0.5 * (self._recent_tokens + mean)
        usual = mean if self._usual_tokens is None else self._usual_tokens
        self._recent_tokens = recent
        self._usual_tokens = usual + (1.0 - self._keep) * (recent - usual)


def _followed(
    sums: Sequence[float], row: Sequence[float], weight: float, keep: float
) -> list[float]:
    return [total * keep + weight * value for total, value in zip(sums, row, strict=True)]
