"""Whether someone else writes the replicas too, told from what Serve shows."""

from collections import deque

from controller.core.types import Replicas

WINDOW_S = 60.0
UNEXPLAINED = 2
EXPLAINED = 4
FIRST_PAUSE_S = 300.0
LONGEST_PAUSE_S = 3600.0


class Ownership:
    """Watches the setpoint of one deployment for values nobody here asked for.

    A setpoint that changes together with a deployment of its application is a reset that the
    deployment explains: it is put right. Two changes within a minute that nothing explains,
    or four that deployments explain, are a second writer: a conflict, in which we do not
    write for 5 minutes, then 10, up to an hour.
    """

    def __init__(self) -> None:
        self._asked: int | None = None
        self._seen: Replicas | None = None
        self._unexplained: deque[float] = deque()
        self._explained: deque[float] = deque()
        self._paused_until_s = float("-inf")
        self._pause_s = FIRST_PAUSE_S

    @property
    def paused_until_s(self) -> float:
        """When writing may go on after the last conflict; in the past where there is none."""
        return self._paused_until_s

    def ask(self, setpoint: int) -> None:
        """Note a value that we are about to write."""
        self._asked = setpoint

    def observe(self, at_s: float, replicas: Replicas) -> bool:
        """Whether writing must stop for now, in view of what Serve shows at `at_s`."""
        seen, self._seen = self._seen, replicas
        foreign = (
            seen is not None
            and self._asked is not None
            and replicas.setpoint not in (seen.setpoint, self._asked)
        )
        if foreign and seen is not None:
            explained = replicas.deployed_s != seen.deployed_s
            (self._explained if explained else self._unexplained).append(at_s)
        if at_s >= self._paused_until_s and self._too_many(at_s):
            self._paused_until_s = at_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._asked = None
        return at_s < self._paused_until_s

    def _too_many(self, at_s: float) -> bool:
        for times in (self._unexplained, self._explained):
            while times and times[0] < at_s - WINDOW_S:
                times.popleft()
        return len(self._unexplained) >= UNEXPLAINED or len(self._explained) >= EXPLAINED
