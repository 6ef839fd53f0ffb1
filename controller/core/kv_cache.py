"""How many requests a replica's KV cache holds: fewer than its slots where contexts are long.

Each of n running requests holds u / n of the cache, u its share in use, so that FULL / (u / n)
of them fill it; beyond that vLLM preempts, which costs the work already done. Known at any
load, not only when the cache is full: capacity falls before first tokens are late. Worked: 4
running requests use half of a cache, so 0.95 / (0.5 / 4) = 7.6 fill it
(`test_worked_kv_cache`).
"""

from collections.abc import Sequence
from math import inf

from controller.core.types import Load

FULL = 0.95
PRESSED = 0.8
"""Share in use from which the present alone is trusted over the memory, as it is full soon."""
LEAST_SHARE = 0.02
"""Shares below tell blocks, not requests, apart."""


class KvCache:
    """Follows one deployment's caches; `memory_s` seconds after which what was seen counts half."""

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._used = self._running = 0.0
        self._pressed_share: float | None = None

    @property
    def requests(self) -> float:
        """Requests that fill the cache of a replica, at least one; infinite if not known."""
        shares = [self._used / self._running] if self._running > 0 else []
        shares += [] if self._pressed_share is None else [self._pressed_share]
        return max(FULL / max(shares), 1.0) if shares else inf

    def observe(self, load: Load, ready: int) -> None:
        """Take one tick in: the mean share in use of `ready` replicas, and what they run. A
        preempted request asked for room that was not there: it counts as more than full."""
        self._pressed_share = None
        used = load.kv_cache_ratio
        if used is None or ready <= 0 or load.ongoing <= 0:
            return
        preempted = load.preemptions or 0.0
        if preempted > 0:
            used = max(used, 1.0) + preempted / (preempted + (load.completions or 0.0))
        if used < LEAST_SHARE:
            return
        if used >= PRESSED:
            self._pressed_share = used * ready / load.ongoing
        keep = 0.5 ** (load.interval_s / self._memory_s)
        weight = load.interval_s
        self._used = self._used * keep + used * ready * weight
        self._running = self._running * keep + load.ongoing * weight

    def state(self) -> list[float]:
        """What was learned, for a restart."""
        return [self._used, self._running]

    def restore(self, state: Sequence[float]) -> None:
        """Continue from an earlier `state()`."""
        self._used, self._running = (float(value) for value in state)
