"""Increases of cumulative counters: per series, safe against restarts and dead series."""

from collections.abc import Mapping
from typing import NamedTuple

from controller.core.types import Sample

LARGEST = 1e15


class Increase(NamedTuple):
    """`events` in [start_s, end_s); `complete` is False when a series that counted
    before was silent this time."""

    events: float
    start_s: float
    end_s: float
    complete: bool


class CounterTracker:
    """Turns successive samples of a counter's series into increases that tile time.

    Each series is differenced alone, so that a dead one adds nothing and a restart (a value
    below the last) counts from zero. A series that appears while others were being watched
    counts from zero too: its first events are not lost. A series may be silent for
    `stale_s`; beyond that the increase is not complete, and after `patience_s` the series is
    forgotten. A gap longer than `patience_s` is not bridged: nobody knows when in it the
    events fell.
    """

    def __init__(self, stale_s: float, patience_s: float) -> None:
        self._stale_s = stale_s
        self._patience_s = patience_s
        self._last: dict[str, Sample] = {}
        self._end_s: float | None = None

    @property
    def end_s(self) -> float | None:
        """The time up to which events have been counted; None before the first sample."""
        return self._end_s

    def advance(self, samples: Mapping[str, Sample]) -> Increase | None:
        """The events since the last call, or None when there is nothing new to count from."""
        usable = {key: sample for key, sample in samples.items() if is_count(sample.value)}
        if not usable:
            return None
        start_s, end_s = self._end_s, max([sample.at_s for sample in usable.values()])
        if start_s is not None and end_s <= start_s:
            return None
        self._end_s = end_s
        if start_s is None or end_s - start_s > self._patience_s:
            self._last = usable
            return None
        count, complete = 0.0, True
        for key, sample in usable.items():
            count += self._events(key, sample, start_s, end_s)
        for key, last in self._last.items():
            if key not in usable and end_s - last.at_s <= self._patience_s:
                usable[key] = last
        self._last = usable
        for last in usable.values():
            complete = complete and end_s - last.at_s <= self._stale_s
        return Increase(count, start_s, end_s, complete)

    def _events(self, key: str, sample: Sample, start_s: float, end_s: float) -> float:
        """Events of one series that belong to [start_s, end_s)."""
        last = self._last.get(key)
        if last is None:
            return sample.value
        grown = sample.value - last.value
        events = grown if grown >= 0 else sample.value
        interval_s = end_s - start_s
        own_s = sample.at_s - last.at_s
        if own_s > interval_s + self._stale_s:
            return events * interval_s / own_s
        return events


def is_count(value: float) -> bool:
    """Whether a number can be a count at all: finite, not negative, not absurd."""
    return 0 <= value <= LARGEST
