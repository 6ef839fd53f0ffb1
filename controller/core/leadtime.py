"""The time from asking for a replica to having it, learned from the replicas themselves."""

from bisect import insort
from collections import deque
from collections.abc import Sequence
from math import inf, isfinite

from controller.core.types import Replica, ReplicaState

MEMORY = 60
PRIOR_WEIGHT = 2
PRIOR_QUANTILE = 0.8


class LeadTime:
    """Quantiles of start times (seconds) of one deployment.

    A sample is the time between `start_s`, when Serve asked for the replica, and the first
    sight of it RUNNING, less half the time since the sight before. Only replicas first seen
    STARTING count: Serve restarts the clock of those it recovers. A start that is still under
    way counts with its age once that exceeds the quantile asked for, so that slow starts are
    felt before they end; one older than `give_up_s` is not slow but stuck, and counts no more.
    Until three starts were seen the prior counts as two more.
    """

    def __init__(
        self, prior_s: float, samples_s: Sequence[float] = (), give_up_s: float = inf
    ) -> None:
        self._prior_s = prior_s
        self._give_up_s = give_up_s
        self._samples: deque[float] = deque(samples_s, maxlen=MEMORY)
        self._starting: dict[str, float] = {}
        self._seen_s = 0.0
        self._ages: tuple[float, ...] = ()
        self._answers: dict[float, float] = {}

    def expect(self, bounds_s: Sequence[float], counts: Sequence[float]) -> None:
        """Take the prior from a histogram of earlier starts: cumulative counts by upper bound,
        the last one infinite. The prior is the start time that 80 % kept, linear in a bucket;
        beyond the last finite bound it is one and a half times that."""
        self._answers.clear()
        total = counts[-1]
        if total <= 0:
            return
        below_s, before = 0.0, 0.0
        for bound_s, count in zip(bounds_s, counts, strict=True):
            if count >= PRIOR_QUANTILE * total:
                share = (PRIOR_QUANTILE * total - before) / max(count - before, 1e-9)
                self._prior_s = (
                    below_s + share * (bound_s - below_s) if isfinite(bound_s) else 1.5 * below_s
                )
                return
            below_s, before = bound_s, count

    @property
    def samples_s(self) -> tuple[float, ...]:
        """Start times learned from, oldest first."""
        return tuple(self._samples)

    def observe(self, at_s: float, members: Sequence[Replica]) -> None:
        """Follow the replicas' states."""
        half_s = max(0.0, at_s - self._seen_s) / 2 if self._starting else 0.0
        starting: dict[str, float] = {}
        for member in members:
            if member.state is ReplicaState.STARTING:
                starting[member.id] = member.start_s
            elif member.state is ReplicaState.RUNNING and member.id in self._starting:
                took_s = at_s - half_s - self._starting[member.id]
                self._samples.append(max(took_s, 0.0))
        if starting or self._starting:
            self._answers.clear()
        self._starting = starting
        self._seen_s = at_s
        ages = (at_s - start_s for start_s in starting.values())
        self._ages = tuple(age_s for age_s in ages if age_s <= self._give_up_s)

    def quantile(self, probability: float) -> float:
        """Start time (seconds) that this share of starts keeps, slow ones under way included."""
        if probability not in self._answers:
            self._answers[probability] = self._quantile(probability)
        return self._answers[probability]

    def settled(self, probability: float) -> float:
        """The same without the starts under way."""
        return _quantile(self._known(), probability)

    def _quantile(self, probability: float) -> float:
        known = self._known()
        settled = _quantile(known, probability)
        late = [age for age in self._ages if age > settled]
        return _quantile(sorted(known + late), probability) if late else settled

    def _known(self) -> list[float]:
        known: list[float] = sorted(self._samples)
        if len(known) < 3:
            for _ in range(PRIOR_WEIGHT):
                insort(known, self._prior_s)
        return known


def _quantile(ordered: Sequence[float], probability: float) -> float:
    position = probability * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
