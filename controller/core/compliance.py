"""Whether Serve does what it was asked to, and when to ask again."""

from controller.core.types import Replicas

PAUSES_S = (0.0, 5.0, 10.0, 20.0, 30.0)
UNHEARD = 3
SHORT_S = 60.0


class Compliance:
    """Follows what was asked of Serve for one deployment.

    The same number is asked for again at the next tick, then after pauses of 5 s up to 30 s, as
    every write clears Serve's timers; another number is asked for at once. Three requests without
    effect, or a target below our number for a minute, are no compliance.
    """

    def __init__(self) -> None:
        self._asked: int | None = None
        self._tries = 0
        self._due_s = float("-inf")
        self._short_since_s: float | None = None

    def observe(self, at_s: float, replicas: Replicas) -> bool:
        """Whether Serve complies, in view of what it shows."""
        if replicas.setpoint == self._asked:
            self._tries, self._due_s = 0, float("-inf")
        if replicas.requested >= replicas.setpoint:
            self._short_since_s = None
        elif self._short_since_s is None:
            self._short_since_s = at_s
        short_s = 0.0 if self._short_since_s is None else at_s - self._short_since_s
        return self._tries < UNHEARD and short_s < SHORT_S

    def ask(self, at_s: float, setpoint: int) -> bool:
        """Whether to write this number now; if so, it counts as asked for."""
        if setpoint != self._asked:
            self._asked, self._tries = setpoint, 0
        elif at_s < self._due_s:
            return False
        self._due_s = at_s + PAUSES_S[min(self._tries, len(PAUSES_S) - 1)]
        self._tries += 1
        return True
