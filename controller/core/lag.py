"""How far behind the present a whole path of metrics is.

One signal can stop; all of them can be late. The first is `signals`' to judge, the second here.
"""

from collections import deque

from controller.core.types import Readings

MOST_S = 60.0
LOOKS = 6


class Lag:
    """The least age of the newest sample in the last six looks that brought a newer one.

    Behind remote storage, or with an exporter whose clock is late, every sample is old when it
    is first seen, and new ones keep coming: that is the path, not a signal that has stopped. Up
    to a minute of it is allowed for before a sample is called stale. A signal that stops brings
    nothing newer, so that its growing age is never taken for a lag. An age of up to one scrape,
    half of `stale_s`, is none.
    """

    def __init__(self, stale_s: float) -> None:
        self._least_s = stale_s / 2
        self._newest_s: float | None = None
        self._ages_s: deque[float] = deque(maxlen=LOOKS)

    def observe(self, readings: Readings) -> float:
        """Seconds by which the path lags now, 0 until that is known."""
        samples = readings.arrivals or readings.ongoing or {}
        newest_s = max((sample.at_s for sample in samples.values()), default=None)
        if newest_s is not None:
            if self._newest_s is not None and newest_s > self._newest_s:
                self._ages_s.append(readings.at_s - newest_s)
            self._newest_s = newest_s
        if len(self._ages_s) < LOOKS:
            return 0.0
        least_s = min(self._ages_s)
        return least_s if self._least_s < least_s <= MOST_S else 0.0
