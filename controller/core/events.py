"""Known events: load that somebody has announced, put into the forecasts before it is there.

What an event brings is measured against the usual load: what was expected for now when no
event was in sight. It is remembered while one is, because from then on the forecaster cannot
tell the event's load from growth, nor from what the same event brought yesterday.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from controller.core.periods import Periods
from controller.core.types import Forecast

WIDEST_SPREAD = 3.0
MEDIAN = 0.5
LEAST_RPS = 1e-9  # one request in thirty years: less is no load to be compared with


@dataclass(frozen=True, slots=True)
class KnownEvent:
    """Load announced for [start_s, end_s): `multiple` of the usual load, or `rate_rps` arrivals
    per second in all; exactly one of them is set."""

    name: str
    start_s: float
    end_s: float
    multiple: float | None = None
    rate_rps: float | None = None

    def touches(self, start_s: float, end_s: float) -> bool:
        """Whether any of it lies in [start_s, end_s)."""
        return self.start_s < end_s and start_s < self.end_s

    def growth(self, usual_rps: float) -> float:
        """How many times the usual load it brings, at least 1."""
        if self.multiple is not None:
            return self.multiple
        return max(1.0, (self.rate_rps or 0.0) / usual_rps) if usual_rps > 0 else inf

    def brings(self, usual: Forecast, probability: float) -> float:
        """Requests per second during the event, at a probability."""
        if self.multiple is not None:
            return self.multiple * usual.at(probability)
        return (self.rate_rps or 0.0) * spread(usual, probability)


def spread(usual: Forecast, probability: float) -> float:
    """A quantile over the median, within 1/3 and 3: nearly no load has a spread, but it says
    nothing about the load of an event. 1 where the median is none."""
    median_rps = usual.at(MEDIAN)
    if median_rps <= 0:
        return 1.0
    return min(max(usual.at(probability) / median_rps, 1 / WIDEST_SPREAD), WIDEST_SPREAD)


def raised(
    forecast: Forecast, events: Iterable[KnownEvent], usual: Forecast, window_s: float
) -> Forecast:
    """The forecast with the events that touch its window: each quantile the largest of its own
    and what every event brings, never lower. Unchanged, the same object, where none matters;
    else `otherwise` holds what it was. Worked: 10 /s usual, an event of 3 times: 30 /s before
    it begins, and still 30 /s once 30 /s are seen (`test_an_event_is_not_multiplied_twice`).
    """
    opens_s = forecast.at_s + forecast.horizon_s
    quantiles = forecast.quantiles
    for event in events:
        if event.touches(opens_s, opens_s + window_s):
            brought = (event.brings(usual, p) for p in forecast.probabilities)
            quantiles = tuple(map(max, quantiles, brought))
    if quantiles == forecast.quantiles:
        return forecast
    return replace(forecast, quantiles=quantiles, otherwise=forecast)


class KnownEvents:
    """The events of one deployment and the usual load they are measured against.

    The usual load is the nearest forecast while no event is in sight (none since one window
    ago, none until the window ahead has closed), smoothed over a 144th of a season. While one
    is in sight it follows what is seen more slowly, over a 24th, and only as far as it must: an
    event of 3 times leaves it between a third of what is seen and all of it. So a long event
    follows the day, a short one within a long one counts, and a burst or a silence of a minute
    moves little.
    """

    def __init__(self, periods: Periods) -> None:
        self.events: tuple[KnownEvent, ...] = ()
        self._window_s = periods.window_s
        self._smooth_s = periods.season_s / 144
        self._follow_s = periods.season_s / 24
        self._usual: Forecast | None = None

    def apply(self, near: Forecast, ahead: Forecast) -> tuple[Forecast, Forecast]:
        """Both forecasts of a tick with the events in them; call it at every tick."""
        usual = self._watched(near, near.at_s + ahead.horizon_s + self._window_s)
        self._usual = usual
        return (
            raised(near, self.events, usual, self._window_s),
            raised(ahead, self.events, usual, self._window_s),
        )

    def state(self) -> dict[str, Any] | None:
        """The usual load, for a restart during an event; plain JSON."""
        if self._usual is None:
            return None
        quantiles = zip(self._usual.probabilities, self._usual.quantiles, strict=True)
        return {"at_s": self._usual.at_s, "quantiles": [list(pair) for pair in quantiles]}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Continue from `state()` of an earlier run."""
        self._usual = None
        if state is not None:
            probabilities, quantiles = zip(*state["quantiles"], strict=True)
            self._usual = Forecast(state["at_s"], 0.0, probabilities, quantiles, model="usual")

    def _watched(self, near: Forecast, sight_s: float) -> Forecast:
        """The usual load, given what is forecast for now and how far is looked ahead."""
        since_s = near.at_s - self._window_s
        in_sight = any(event.touches(since_s, sight_s) for event in self.events)
        # Some come early, and some stay.
        until_s = near.at_s + self._window_s
        running = [event for event in self.events if event.touches(since_s, until_s)]
        if self._usual is None:
            return _scaled(near, 1 / _growth(running, near.at(MEDIAN)))
        elapsed_s = near.at_s - self._usual.at_s
        if not in_sight:
            return _blended(self._usual, near, min(1.0, elapsed_s / self._smooth_s))
        return _followed(self._usual, near, running, min(1.0, elapsed_s / self._follow_s))


def _followed(
    usual: Forecast, near: Forecast, running: Iterable[KnownEvent], share: float
) -> Forecast:
    """The usual load moved by a share of the way to what it can be, given what is seen."""
    usual_rps, seen_rps = usual.at(MEDIAN), near.at(MEDIAN)
    same = replace(usual, at_s=near.at_s)
    if min(usual_rps, seen_rps) < LEAST_RPS:
        return same
    possible_rps = min(max(usual_rps, seen_rps / _growth(running, usual_rps)), seen_rps)
    return _scaled(same, 1 + share * (possible_rps / usual_rps - 1))


def _growth(running: Iterable[KnownEvent], usual_rps: float) -> float:
    return max((event.growth(usual_rps) for event in running), default=1.0)


def _blended(old: Forecast, new: Forecast, share: float) -> Forecast:
    pairs = zip(new.probabilities, new.quantiles, strict=True)
    return replace(new, quantiles=tuple(q + (1 - share) * (old.at(p) - q) for p, q in pairs))


def _scaled(forecast: Forecast, factor: float) -> Forecast:
    return replace(forecast, quantiles=tuple(factor * rps for rps in forecast.quantiles))
