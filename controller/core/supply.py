"""Which replicas may be counted on: those that stay, those that will come, and no others."""

from collections import deque

from controller.core.types import SERVING, Replicas

FLAPPING_LOSSES = 3
FLAPPING_LEADS = 10.0
FLAPPING_LEAST_S = 600.0
FIRST_PAUSE_S = 300.0
LONGEST_PAUSE_S = 3600.0


class Supply:
    """Follows the replicas of one deployment.

    A start older than `start_timeout_s` is given up: no more replicas are asked for than are
    ready or still starting in time, so that Serve cancels it; after 5 minutes it is tried again,
    after another failure in 10, up to an hour. Replicas that served and went although nobody
    asked for fewer are losses; after three within ten leads (and 10 minutes) the deployment
    flaps, and a replica counts only once it has served for a lead.
    """

    def __init__(self, start_timeout_s: float) -> None:
        self._timeout_s = start_timeout_s
        self._at_s = 0.0
        self._replicas: Replicas | None = None
        self._since_s: dict[str, float] = {}
        self._owed = 0
        self._losses: deque[float] = deque()
        self._late: set[str] = set()
        self._retry_s: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._proven_s = 0.0

    def observe(self, at_s: float, replicas: Replicas, lead_s: float) -> None:
        """Take in Serve's account."""
        before, self._replicas, self._at_s = self._replicas, replicas, at_s
        self._count_losses(at_s, before, replicas, lead_s)
        self._proven_s = lead_s if len(self._losses) >= FLAPPING_LOSSES else 0.0
        self._give_up(at_s, replicas)

    @property
    def ready(self) -> int:
        """Replicas that take requests and may be counted on."""
        return sum(self._at_s - since_s >= self._proven_s for since_s in self._since_s.values())

    @property
    def flapping(self) -> bool:
        """Whether replicas keep being lost."""
        return self._proven_s > 0

    @property
    def attainable(self) -> int | None:
        """The most replicas worth asking for while a start that never ended is not tried again;
        None = no limit."""
        if self._retry_s is None or self._replicas is None:
            return None
        return len(self._since_s) + sum(self._in_time(m.start_s) for m in self._replicas.starting)

    def coming_s(self, lead_s: float) -> tuple[float, ...]:
        """Seconds until each replica that starts will be ready; those that have no place where
        none can be added, and those given up, will not be."""
        replicas = self._replicas
        if replicas is None:
            return ()
        return tuple(
            max(lead_s - (self._at_s - member.start_s), 0.0)
            for member in replicas.starting
            if self._in_time(member.start_s) and (member.placed or replicas.room is None)
        )

    def _in_time(self, start_s: float) -> bool:
        return self._at_s - start_s <= self._timeout_s

    def _count_losses(
        self, at_s: float, before: Replicas | None, replicas: Replicas, lead_s: float
    ) -> None:
        serving = {m.id for m in replicas.members if m.state in SERVING}
        gone = self._since_s.keys() - serving
        if before is not None:
            self._owed += max(0, before.requested - replicas.requested)
            if before.deployed_s != replicas.deployed_s:
                self._owed = max(self._owed, len(gone))
        lost = max(0, len(gone) - self._owed)
        self._owed = max(0, self._owed - len(gone))
        if not gone and len(serving) <= replicas.requested:
            self._owed = 0
        self._losses.extend([at_s] * lost)
        while self._losses and self._losses[0] < at_s - max(
            FLAPPING_LEADS * lead_s, FLAPPING_LEAST_S
        ):
            self._losses.popleft()
        came = serving - self._since_s.keys()
        if came and before is not None:
            self._pause_s = FIRST_PAUSE_S
        if gone or came:
            first = at_s if before is not None else float("-inf")
            self._since_s = {name: self._since_s.get(name, first) for name in serving}

    def _give_up(self, at_s: float, replicas: Replicas) -> None:
        starting = replicas.starting
        late = {m.id for m in starting if not self._in_time(m.start_s)}
        if self._retry_s is not None and at_s >= self._retry_s:
            self._retry_s = None
        if late - self._late and self._retry_s is None:
            self._retry_s = at_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._late = late
