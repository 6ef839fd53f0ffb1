"""Which forecast model and which price of risk are in force: what cost least in a replay.

Once a season the deployment's own past is replayed elsewhere with each candidate; the trials
come in here and a choice goes out. Nothing is simulated here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf, isfinite
from typing import Any, NamedTuple

import numpy as np

from controller.core.windows import Values

GAIN = 0.01
SLACK = 0.02
LATE_NOISE = 0.1
LEAST_SEASONS = 3
KNOWN_SHARE = 0.8
FIRST_AFTER = 1 / 48
AGAIN_AFTER = 1 / 4


class ModelName(StrEnum):
    """The forecast models there are."""

    LOCATION_SCALE = "location_scale"
    LAST_VALUE = "last_value"
    SEASONAL = "seasonal"


class Candidate(NamedTuple):
    """A forecast model, and how many times the usual price a late request may cost."""

    model: ModelName
    price_ratio: float

    def __str__(self) -> str:
        return f"{self.model.value} at {self.price_ratio:g} x the price"


DEFAULT = Candidate(ModelName.LOCATION_SCALE, 1.0)
LAST_VALUE = Candidate(ModelName.LAST_VALUE, 1.0)
CANDIDATES = (
    DEFAULT,
    Candidate(ModelName.LOCATION_SCALE, 0.6),
    Candidate(ModelName.LOCATION_SCALE, 1.6),
    Candidate(ModelName.LOCATION_SCALE, 2.5),
    Candidate(ModelName.LOCATION_SCALE, 4.0),
    LAST_VALUE,
    Candidate(ModelName.SEASONAL, 1.0),
)


class Trial(NamedTuple):
    """What a candidate came to in the replay: GPU-hours, and the share of requests whose first
    token was late."""

    candidate: Candidate
    gpu_hours: float
    violation_ratio: float


class Verdict(StrEnum):
    """Why a candidate is in force."""

    UNTRIED = "untried"
    CHEAPEST = "cheapest"
    FEWEST_LATE = "fewest_late"
    KEPT = "kept"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidate in force and why: when it was last weighed against the others (seconds
    since the epoch), their trials, and why the last replay failed, if it did."""

    candidate: Candidate = DEFAULT
    verdict: Verdict = Verdict.UNTRIED
    chosen_s: float | None = None
    trials: tuple[Trial, ...] = ()
    problem: str = ""

    def plain(self) -> dict[str, Any]:
        """The same in plain JSON; a trial is model, price ratio, GPU-hours, share late, to four
        digits, as every decision keeps them."""
        return {
            "model": self.candidate.model.value,
            "price_ratio": self.candidate.price_ratio,
            "verdict": self.verdict.value,
            "chosen_s": self.chosen_s,
            "trials": [
                [*trial.candidate, _short(trial.gpu_hours), _short(trial.violation_ratio)]
                for trial in self.trials
            ],
            "problem": self.problem,
        }


def choose(
    trials: Sequence[Trial], in_force: Candidate, budget: float
) -> tuple[Candidate, Verdict] | None:
    """The candidate to have in force; None where the trials do not tell: the usual one's or last
    value's is missing.

    Of those late at most in a share `budget` of requests the one with the fewest GPU-hours. Where
    there is none, mostly because of bursts that nobody foresaw, of those at most 1 % dearer than
    the usual one the cheapest within a tenth of the fewest late requests. A replay cannot tell
    2 % of the budget and 1 % of the GPU-hours apart: what is in force stays, else the usual model
    is taken, unless another saves more. So the choice costs at most 1.0102 times what last value
    does, if that one keeps the budget, and keeps it within 2 %, too.
    """
    usable = {trial.candidate: trial for trial in trials if _usable(trial)}
    if LAST_VALUE not in usable or DEFAULT not in usable:
        return None
    eligible = [t for t in usable.values() if t.violation_ratio <= (1 + SLACK) * budget]
    verdict = Verdict.CHEAPEST
    if not eligible:
        dearest = (1 + GAIN) * usable[DEFAULT].gpu_hours
        affordable = [trial for trial in usable.values() if trial.gpu_hours <= dearest]
        latest = (1 + LATE_NOISE) * min(trial.violation_ratio for trial in affordable)
        eligible = [trial for trial in affordable if trial.violation_ratio <= latest]
        verdict = Verdict.FEWEST_LATE
    least = min(trial.gpu_hours for trial in eligible)
    near = [trial for trial in eligible if least >= (1 - GAIN) * trial.gpu_hours]
    if usable.get(in_force) in near:
        return in_force, verdict if usable[in_force].gpu_hours == least else Verdict.KEPT
    best = min(near, key=lambda trial: (trial.candidate.model != DEFAULT.model, trial.gpu_hours))
    return best.candidate, verdict


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _usable(trial: Trial) -> bool:
    return isfinite(trial.gpu_hours) and trial.gpu_hours > 0 and 0 <= trial.violation_ratio <= 1


@dataclass(slots=True)
class Choosing:
    """One deployment's choice through time: when to replay, and what came of it.

    A first replay is due a 48th of a season after the start, then one a season; a failed one
    is tried again after a quarter. Nothing is replayed before the last three seasons are known
    for the most part; that is looked at again after a quarter, too.
    """

    season_s: float
    choice: Choice = field(default_factory=Choice)
    _due_s: float | None = None
    _asked: bool = False

    def due(self, at_s: float, rates: Values, season_bins: int) -> bool:
        """Whether to have the past (`rates` by bin, NaN where not known) replayed now; if so it
        counts as asked for."""
        if self._due_s is None or self._due_s > at_s + self.season_s:
            self._due_s = at_s + FIRST_AFTER * self.season_s
        if at_s < self._due_s:
            return False
        known = np.isfinite(rates[-LEAST_SEASONS * season_bins :]).sum()
        enough = bool(known >= KNOWN_SHARE * LEAST_SEASONS * season_bins)
        self._due_s = at_s + (1.0 if enough else AGAIN_AFTER) * self.season_s
        self._asked = enough
        return enough

    def forget(self) -> None:
        """Whoever was asked is gone, and an answer that has not come with it: ask anew later."""
        if self._asked:
            self._due_s, self._asked = None, False

    def again(self) -> None:
        """What was promised has changed: replay as soon as possible."""
        self._due_s = -inf

    def take(self, trials: Iterable[Trial], at_s: float, budget: float) -> bool:
        """Weigh the candidates' trials; whether another candidate is in force now."""
        before, found = self.choice.candidate, tuple(filter(_usable, trials))
        self._asked = False
        chosen = choose(found, before, budget)
        if chosen is None:
            self.fail("the replay gave no usable trials", at_s)
            return False
        self.choice = Choice(*chosen, at_s, found)
        return chosen[0] != before

    def fail(self, problem: str, at_s: float) -> None:
        """No trials came: what is in force stays."""
        self.choice = replace(self.choice, verdict=Verdict.FAILED, problem=problem)
        self._asked = False
        self._due_s = at_s + AGAIN_AFTER * self.season_s

    def state(self) -> dict[str, Any]:
        """The choice, and when the next replay is due; plain JSON. One that is under way is lost
        in a restart: it comes again as the first does."""
        due_s = None if self._asked else self._due_s
        return {**self.choice.plain(), "due_s": 0.0 if due_s == -inf else due_s}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Continue from `state()`; the default where that knows a model that we do not."""
        try:
            self.choice = _choice(state or {})
            self._due_s = None if state is None else state["due_s"]
        except (KeyError, TypeError, ValueError):
            self.choice, self._due_s = Choice(), None


def _choice(plain: Mapping[str, Any]) -> Choice:
    if not plain:
        return Choice()
    trials = tuple(
        Trial(Candidate(ModelName(model), ratio), hours, late)
        for model, ratio, hours, late in plain["trials"]
    )
    candidate = Candidate(ModelName(plain["model"]), plain["price_ratio"])
    if candidate not in CANDIDATES:
        return Choice()
    verdict = Verdict(plain["verdict"])
    return Choice(candidate, verdict, plain["chosen_s"], trials, plain["problem"])
