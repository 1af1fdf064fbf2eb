"""Turns at something scarce, dealt in rotation: who asks a thousand times waits for itself alone."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class TooManyWaitError(Exception):
    """Too many of one name wait already."""


class FairTurns:
    """At most `limit` turns at once, and at most half of them for one name, such as a namespace."""

    def __init__(self, limit: int, least_s: float = 0.0, most_waiting: int | None = None) -> None:
        """least_s: time that a turn counts for at least, so that `limit / least_s` bounds the rate.

        most_waiting: at most half of them of one name; None: any number.
        """
        self._limit, self._of_one = limit, max(1, limit // 2)
        self._least_s, self._most_waiting = least_s, most_waiting
        self._taken: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiters by name; the one whose turn is next comes first."""

    @property
    def is_idle(self) -> bool:
        """Whether nobody has a turn or waits."""
        return not self._taken and not self._waiting

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Waits for a turn, and gives it back at the end. Raises TooManyWaitError."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        waiters = self._waiting.setdefault(name, deque())
        if (most := self._most_waiting) is not None:
            in_all = sum(map(len, self._waiting.values()))
            if len(waiters) >= most // 2 or in_all >= most:
                if not waiters:
                    del self._waiting[name]
                raise TooManyWaitError(f"{in_all} wait already, {len(waiters)} of them of this name")
        waiters.append(waiter)
        self._grant()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._give_back(name)
            with suppress(ValueError):  # who gave up does not count as waiting
                waiters.remove(waiter)
            if not waiters and self._waiting.get(name) is waiters:
                del self._waiting[name]
            raise
        began_s = loop.time()
        try:
            yield
        finally:
            loop.call_at(began_s + self._least_s, self._give_back, name)

    def _give_back(self, name: str) -> None:
        self._taken[name] -= 1
        if not self._taken[name]:
            del self._taken[name]
        self._grant()

    def _grant(self) -> None:
        while (
            sum(self._taken.values()) < self._limit
            and (name := next((name for name in self._waiting if self._taken.get(name, 0) < self._of_one), None))
            is not None
        ):
            waiters = self._waiting.pop(name)
            waiter = waiters.popleft()
            if waiters:
                self._waiting[name] = waiters  # behind all others
            if not waiter.done():
                self._taken[name] = self._taken.get(name, 0) + 1
                waiter.set_result(None)
