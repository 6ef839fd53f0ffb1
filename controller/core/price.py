"""What one late request may cost in GPU-seconds, steered by the attainment that came of it."""

from dataclasses import dataclass
from math import exp

REFERENCE_CAPACITY_RPS = 1.64
REFERENCE_BUDGET = 0.01
LEAD_SHARE, SHORT_LEAD_SHARE, MOST_OF_SHORT = 8.0, 5.0, 9.0
AIM = 0.95
PRIOR_SHARE = 0.3
BOUND = 2.0
INTEGRAL_PER_SEASON = 2.4


@dataclass(slots=True)
class Price:
    """A price around lead / 8 (lead / 5 up to 9), moved by a slow, bounded PI loop.

    The share of late requests over about the last season is compared with 95 % of the budget
    `1 - attainment`. An excess counts up to 3, a saving half and down to -0.5; the logarithm
    of the price moves by the error plus its integral (2.4 a season), each within 2. Until
    requests were counted, 0.3 of a season at the aim is taken as seen. Only what a price can
    change should be counted: requests late within one lead of a demand that nobody foresaw
    would drive it to its bound for nothing. `ratio` times all that is what was
    chosen by its cost in a replay.
    """

    attainment: float
    season_s: float
    late: float = 0.0
    total: float = 0.0
    seen_s: float = 0.0
    integral: float = 0.0
    ratio: float = 1.0

    def observe(self, total: float, late: float, elapsed_s: float) -> None:
        """Count `total` first tokens of which `late` were too late, over `elapsed_s`."""
        if elapsed_s <= 0:
            return
        keep = exp(-elapsed_s / self.season_s)
        self.late = self.late * keep + late
        self.total = self.total * keep + total
        self.seen_s = self.seen_s * keep + elapsed_s
        moved = self.integral + INTEGRAL_PER_SEASON * self.error * elapsed_s / self.season_s
        self.integral = min(max(moved, -BOUND), BOUND)

    @property
    def error(self) -> float:
        """Relative excess of late requests over the aim, between -0.5 and 3."""
        if self.total <= 0:
            return 0.0
        aim = AIM * (1.0 - self.attainment)
        prior = PRIOR_SHARE * self.season_s * self.total / self.seen_s
        share = (self.late + prior * aim) / (self.total + prior)
        excess = min(max(share / aim - 1.0, -1.0), 3.0)
        return excess if excess > 0 else excess / 2

    def gpu_s(self, lead_s: float, capacity_rps: float) -> float:
        """The price in force. It was measured for 1.64 requests per second a replica and a
        budget of 1 %, on six series at leads of 45 to 300 s: starts of under a minute are cheap
        enough for lead / 5, which keeps the SLO in every window; at longer leads most of what is
        late came faster than any start. A larger replica or budget makes a late request
        cheaper."""
        scale = (REFERENCE_CAPACITY_RPS / capacity_rps) * (
            REFERENCE_BUDGET / max(1.0 - self.attainment, 1e-4)
        )
        base = (
            max(lead_s / LEAD_SHARE, min(lead_s / SHORT_LEAD_SHARE, MOST_OF_SHORT), 1.0)
            * scale
            * self.ratio
        )
        return base * exp(min(max(self.error + self.integral, -BOUND), BOUND))


@dataclass(slots=True)
class Excuse:
    """When late requests tell nothing of the price: what we asked for could not be there yet.

    That is for one lead from the first tick on, and from every demand that nobody foresaw; then
    until the queue this left is gone, one more lead at most. Counted, they can hold the price
    at its bound for the day that follows, and no price brings any of them in time.
    """

    until_s: float | None = None
    queue_left: bool = False

    def holds(self, at_s: float, surprised: bool, queueing: bool, lead_s: float) -> bool:
        """Whether what is late now is excused; `queueing` = more waits than the SLO allows."""
        if surprised or self.until_s is None:
            self.until_s, self.queue_left = at_s + lead_s, True
        if at_s < self.until_s:
            return True
        self.queue_left &= queueing and at_s < self.until_s + lead_s
        return self.queue_left
