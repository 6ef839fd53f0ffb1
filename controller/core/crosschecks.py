"""Signals held against each other: what goes in must come out, or be inside.

Arrivals, completions, what waits and what runs are measured in different places, so that one
which lies is given away by the others. Every check is one-sided: requests that clients give up
arrive and never complete, and prove nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controller.core.counters import Increase
from controller.core.types import Replicas, Signal, Trust

ROOMY = 0.5
TOLERATED = 10.0
TOLERATED_PEAKS = 3.0  # gauges and counters are read up to two scrapes apart
USABLE = frozenset({Trust.PRESENT, Trust.ZERO})


@dataclass(frozen=True, slots=True)
class Findings:
    """What the checks found out about a signal; None = nothing speaks against it. `came` is
    how many requests must have arrived at least since the last observation."""

    arrivals: Trust | None = None
    queued: Trust | None = None
    ongoing: Trust | None = None
    came: float = 0.0


NOTHING = Findings()


def roomy(ongoing: float, replicas: Replicas | None) -> bool:
    """Whether the ready replicas' slots are at most half taken: a router that holds requests
    then would have handed them out."""
    if replicas is None or not replicas.ready:
        return False
    slots = replicas.max_ongoing_requests
    return slots is None or ongoing <= ROOMY * slots * replicas.ready


class _Excess:
    """How far a running balance has risen above its lowest point of the last window, and since
    when by more than what is tolerated. The window is 1 to 2 times `window_s` long."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._turned_s = float("-inf")
        self._older = self._lowest = (float("inf"), 0.0)
        self._peak_older = self._peak = 0.0
        self._since_s: float | None = None

    def lasts_s(self, at_s: float, balance: float, allowance: float, passed: float) -> float:
        """Seconds for which the balance has been too high; 0 if it is not. `allowance` explains
        a later rise by as much, `passed` is the requests since the last call: what is tolerated
        is three times the most of them."""
        if at_s - self._turned_s >= self._window_s:
            self._older, self._lowest = self._lowest, (balance, allowance)
            self._peak_older, self._peak = self._peak, 0.0
            self._turned_s = at_s
        self._peak = max(self._peak, passed)
        if balance <= self._lowest[0]:
            self._lowest = (balance, allowance)
        base, explained = min(self._older, self._lowest)
        tolerated = max(TOLERATED, TOLERATED_PEAKS * max(self._peak, self._peak_older))
        if balance - base - explained <= tolerated:
            self._since_s = None
            return 0.0
        if self._since_s is None:
            self._since_s = at_s
        return at_s - self._since_s


class CrossChecks:
    """Follows one deployment's signals tick by tick."""

    def __init__(self, stale_s: float, patience_s: float) -> None:
        self._stale_s = stale_s
        self._patience_s = patience_s
        self._counted_s = float("-inf")
        self._begin(self._counted_s)

    def observe(
        self,
        at_s: float,
        arrived: Increase | None,
        increases: Mapping[str, Increase | None],
        signals: Mapping[str, Signal],
        replicas: Replicas | None,
    ) -> Findings:
        """What speaks against arrivals, the queue and what runs, in view of this tick."""
        came = arrived.events if arrived is not None else 0.0
        done, tokens = (_events(increases[name]) for name in ("completions", "output_tokens"))
        known_s = at_s - self._counted_s
        if known_s == float("inf") or (
            arrived is not None and not 0 <= known_s <= self._patience_s
        ):
            self._begin(at_s)
        self._count(at_s, arrived is not None, came, done, tokens)
        queued, ongoing = signals["queued"], signals["ongoing"]
        if queued.trust not in USABLE or ongoing.trust not in USABLE:
            self._roomless_s = self._busy_s = at_s
            return NOTHING
        waiting, running = queued.value, ongoing.value
        if running > 0:
            self._busy_s = at_s
        if waiting < 1 or not roomy(running, replicas):
            self._roomless_s = at_s
        disproved = None
        if arrived is not None:
            disproved = self._arrivals(at_s, done, waiting + running)
        return Findings(
            disproved,
            self._queue(at_s, came, waiting, running, replicas),
            self._running(at_s, running, signals["output_tokens"]),
            came if disproved is None else max(came, done),
        )

    def _begin(self, at_s: float) -> None:
        """Forget: nobody knows what happened in a gap. Times: of the last count of arrivals,
        arrival, sign of work; and when last something ran, or no queue stood before free slots."""
        self._came = self._done = 0.0
        self._overdone = _Excess(5 * self._patience_s)
        self._leaking = _Excess(5 * self._patience_s)
        self._counted_s = self._came_s = self._moved_s = self._busy_s = self._roomless_s = at_s

    def _count(self, at_s: float, counted: bool, came: float, done: float, tokens: float) -> None:
        self._came += came
        self._done += done
        if counted:
            self._counted_s = at_s
        if came > 0:
            self._came_s = at_s
        # While arrivals are not known, nobody can say that nothing comes.
        if came + done + tokens > 0 or at_s - self._counted_s > self._stale_s:
            self._moved_s = at_s

    def _arrivals(self, at_s: float, done: float, inside: float) -> Trust | None:
        """More came out than went in and was inside: arrivals are not counted, or not all."""
        too_many_s = self._overdone.lasts_s(at_s, self._done - self._came, inside, done)
        if too_many_s < self._stale_s:
            return None
        still = at_s - self._came_s >= self._stale_s
        return Trust.FROZEN if still else Trust.CONTRADICTORY

    def _queue(
        self, at_s: float, came: float, waiting: float, running: float, replicas: Replicas | None
    ) -> Trust | None:
        """A queue is not believed if it grows by more than arrivals less completions explain
        (S3), if it lasts although replicas have free slots (S2), or if it shows up while nothing
        has come, run or ended for a while (S1)."""
        balance = waiting - (self._came - self._done)
        leaks_s = self._leaking.lasts_s(at_s, balance, running, came)
        if waiting <= 0:
            return None
        ready = replicas is not None and replicas.ready > 0
        quiet_s = at_s - max(self._moved_s, self._busy_s)
        stuck = max(leaks_s, at_s - self._roomless_s, quiet_s if ready else 0.0) >= self._patience_s
        return Trust.CONTRADICTORY if stuck else None

    def _running(self, at_s: float, running: float, tokens: Signal) -> Trust | None:
        """Requests that run without making a token while none comes or ends do not exist."""
        dead = running > 0 and tokens.trust in USABLE and at_s - self._moved_s >= self._patience_s
        return Trust.CONTRADICTORY if dead else None


def _events(increase: Increase | None) -> float:
    return 0.0 if increase is None else increase.events
