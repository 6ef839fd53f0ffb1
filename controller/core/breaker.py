"""A circuit breaker: whoever does not answer is asked more rarely, and once at a time."""

from numpy.random import Generator

FAILURES = 3
LONGEST_S = 30.0
LONGEST_ASKED_S = 60.0
JITTER = 0.2


class CircuitBreaker:
    """Decides whether a server that failed may be asked.

    Closed until three failures in a row. Then open for `first_s`, twice as long after each
    further failure and at most 30 s, each time a fifth longer or shorter by chance so that many
    clients do not come back together; a longer wait that the server itself asks for is kept, up
    to 60 s. After that it is half open: one request may pass, and what becomes of it decides.
    """

    def __init__(self, first_s: float, chance: Generator) -> None:
        self._first_s = first_s
        self._chance = chance
        self._failures = 0
        self._until_s: float | None = None

    def allows(self, at_s: float) -> bool:
        """Whether to ask now; with an open circuit, not before its time."""
        return self._until_s is None or at_s >= self._until_s

    def wait_s(self, at_s: float) -> float:
        """Seconds until the next request may pass; 0 if one may now."""
        return 0.0 if self._until_s is None else max(0.0, self._until_s - at_s)

    def succeeded(self) -> None:
        """The answer was good: close."""
        self._failures = 0
        self._until_s = None

    def failed(self, at_s: float, asked_s: float = 0.0) -> None:
        """No good answer; the server asked to be left alone for `asked_s` (0 = it did not)."""
        self._failures += 1
        open_s = min(asked_s, LONGEST_ASKED_S)
        if self._failures >= FAILURES:
            spread = 1 + JITTER * (2 * float(self._chance.random()) - 1)
            doubled_s = self._first_s * 2.0 ** min(self._failures - FAILURES, 16)
            open_s = max(open_s, spread * min(doubled_s, LONGEST_S))
        self._until_s = at_s + open_s if open_s > 0 else None
