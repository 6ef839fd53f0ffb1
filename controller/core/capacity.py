"""What a replica carries, learned from normal traffic without ever saturating it.

By Little's law a request's mean time in a replica is S = n / x, where n is the mean number
running and x the completions per second. Batching slows each of n running requests to
1 / (1 + beta (n - 1)) of its lone speed, so S = W (1 + beta (n - 1)) with W the work of a mean
request alone, a straight line in n. At C slots a replica then completes
C / (W (1 + beta (C - 1))) requests per second. Worked: W = 2 s, beta = 0.06, C = 16 gives
16 / (2 x 1.9) = 4.21 (`test_worked_capacity`).
"""

from dataclasses import dataclass

import numpy as np

from controller.core.types import Load

PRIOR_BETA = 0.05
PRIOR_COMPLETIONS = 30.0
MIN_COMPLETIONS = 3.0
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
    """Learns one deployment's law from windows of `window_s`, forgetting over `memory_s`.

    A window counts if the number of ready replicas held still in it and something completed,
    so that a replica's first slow requests weigh little. Where token counters exist, work
    follows the tokens of a request: longer prompts raise the demand, not lower the capacity.
    """

    def __init__(self, window_s: float, memory_s: float) -> None:
        self._window_s = window_s
        self._keep = 0.5 ** (window_s / memory_s)
        self._ready = 0
        self._elapsed_s = self._running_s = self._completed = 0.0
        self._tokens = self._token_requests = 0.0
        self._usual_tokens: float | None = None
        self._recent_tokens: float | None = None
        self._moments = np.zeros(5)

    @property
    def moments(self) -> tuple[float, ...]:
        """The learned state: weighted sums of 1, m, m^2, S and m S with m = n - 1."""
        return tuple(self._moments.tolist())

    def restore(self, moments: tuple[float, ...]) -> None:
        """Continue from a learned state."""
        self._moments = np.array(moments, dtype=np.float64)

    def observe(self, load: Load, ready: int, elapsed_s: float) -> None:
        """Take one tick in: what ran over the last `elapsed_s` on `ready` replicas."""
        self._follow_tokens(load)
        if ready != self._ready or load.completions is None:
            self._ready = ready
            self._begin_window()
            return
        self._elapsed_s += load.interval_s
        self._running_s += load.ongoing * load.interval_s
        self._completed += load.completions
        if self._elapsed_s >= self._window_s:
            self._close_window()
            self._begin_window()

    def law(self, slots: float) -> CapacityLaw | None:
        """The law as known now, for a replica of `slots` slots; None before any window."""
        weight, m, mm, s, ms = self._moments
        if weight <= 0:
            return None
        prior = PRIOR_COMPLETIONS
        matrix = np.array(
            [
                [weight + prior * PRIOR_BETA**2, m - prior * PRIOR_BETA],
                [m - prior * PRIOR_BETA, mm + prior],
            ]
        )
        work_s, slope = np.linalg.solve(matrix, np.array([s, ms]))
        if not work_s > 0:
            work_s, slope = s / weight, 0.0
        beta = min(max(slope / work_s, 0.0), 1.0)
        work_s = (s / weight) / (1.0 + beta * (m / weight))
        return CapacityLaw(slots, work_s * self.mix, beta)

    @property
    def mix(self) -> float:
        """Tokens of a request now over those the law was learned with; 1 without tokens."""
        if not self._usual_tokens or not self._recent_tokens:
            return 1.0
        return self._recent_tokens / self._usual_tokens

    def _begin_window(self) -> None:
        self._elapsed_s = self._running_s = self._completed = 0.0

    def _close_window(self) -> None:
        if self._completed < MIN_COMPLETIONS or self._running_s <= 0:
            return
        running = self._running_s / self._elapsed_s / self._ready
        stay_s = self._running_s / self._completed / self.mix
        m = max(running - 1.0, 0.0)
        row = np.array([1.0, m, m * m, stay_s, m * stay_s])
        self._moments = self._moments * self._keep + self._completed * row

    def _follow_tokens(self, load: Load) -> None:
        if not load.completions or load.prompt_tokens is None or load.output_tokens is None:
            return
        tokens = load.prompt_tokens / PROMPT_TOKENS_PER_OUTPUT + load.output_tokens
        self._tokens += tokens
        self._token_requests += load.completions
        if self._token_requests < 10 * MIN_COMPLETIONS:
            return
        mean = self._tokens / self._token_requests
        self._tokens = self._token_requests = 0.0
        recent = mean if self._recent_tokens is None else 0.5 * (self._recent_tokens + mean)
        usual = mean if self._usual_tokens is None else self._usual_tokens
        self._recent_tokens = recent
        self._usual_tokens = usual + (1.0 - self._keep) * (recent - usual)
