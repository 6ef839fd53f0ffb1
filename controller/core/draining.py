"""When to shrink a deployment whose requests outlive its graceful shutdown: in a quiet moment."""

from controller.core.types import Load, Replicas

LONG = 3.0  # a mean stay times this is taken for the longest stays that are common
QUIET = 0.8
LONGEST_BUDGET_S = 300.0


class Drain:
    """Serve ends a replica's requests `graceful_shutdown_timeout_s` after it was told to stop.
    Where requests commonly stay longer, a shrink waits until fewer than usual run on a replica,
    but no longer than one lead (at most 5 minutes)."""

    def __init__(self) -> None:
        self._usual: float | None = None
        self._seen_s: float | None = None
        self._waiting_since_s: float | None = None
        self._busy = False

    def observe(
        self,
        at_s: float,
        load: Load | None,
        replicas: Replicas,
        stay_s: float | None,
        lead_s: float,
    ) -> None:
        """Take in what runs; `stay_s` is how long a request stays on average, None = not known."""
        self._busy = False
        if load is None or not replicas.ready:
            return
        running = load.ongoing / replicas.ready
        passed_s = at_s - self._seen_s if self._seen_s is not None else 0.0
        self._seen_s = at_s
        keep = 0.5 ** (passed_s / max(lead_s, 1.0))
        self._usual = running if self._usual is None else keep * self._usual + (1 - keep) * running
        timeout_s = replicas.drain_s
        if timeout_s is None or stay_s is None or LONG * stay_s <= timeout_s:
            return
        waited_s = at_s - (self._waiting_since_s if self._waiting_since_s is not None else at_s)
        spent = waited_s >= min(lead_s, LONGEST_BUDGET_S)
        self._busy = not spent and running > QUIET * self._usual and running >= 1

    @property
    def busy(self) -> bool:
        """Whether a shrink had better wait."""
        return self._busy

    def waits(self, at_s: float, waiting: bool) -> None:
        """Note whether a shrink did wait at this tick."""
        if not waiting:
            self._waiting_since_s = None
        elif self._waiting_since_s is None:
            self._waiting_since_s = at_s
