"""How patient we are with a server: no longer than a tick allows, seldom once it fails, and never
two questions at a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from numpy.random import Generator

from controller.core.breaker import CircuitBreaker

Answer = TypeVar("Answer")


class NotAnswered(RuntimeError):
    """The server was not asked, or not waited for any longer; the message says which."""


class Gate:
    """Stands before one server. `within_s` is the longest that a question is waited for; then it
    is stopped, or, if it runs in a thread (`stops` False), must end before the next is asked."""

    def __init__(
        self,
        within_s: float,
        first_pause_s: float,
        chance: Generator,
        stops: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._within_s = within_s
        self._breaker = CircuitBreaker(first_pause_s, chance)
        self._stops = stops
        self._clock = clock
        self._asking: asyncio.Future[Any] | None = None

    async def ask(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer; raises NotAnswered, or what the question raises."""
        if self._asking is not None and not self._asking.done():
            self.failed()
            raise NotAnswered("the question before is still under way; not asked")
        now_s = self._clock()
        if not self._breaker.allows(now_s):
            raise NotAnswered(
                f"failed again and again; not asked for {self._breaker.wait_s(now_s):.0f} s more"
            )
        asking = asyncio.ensure_future(question())
        self._asking = asking
        done, _ = await asyncio.wait({asking}, timeout=self._within_s)
        if not done:
            asking.add_done_callback(_forget)
            if self._stops:
                asking.cancel()
            self.failed()
            raise NotAnswered(f"no answer within {self._within_s:g} s")
        return asking.result()

    def succeeded(self) -> None:
        """The answer was good."""
        self._breaker.succeeded()

    def failed(self, asked_s: float = 0.0) -> None:
        """There was no good answer; the server asked to be left alone for `asked_s`."""
        self._breaker.failed(self._clock(), asked_s)


def _forget(asking: asyncio.Future[Any]) -> None:
    """Whatever comes of a question nobody waits for, nobody hears of it."""
    if not asking.cancelled():
        asking.exception()
