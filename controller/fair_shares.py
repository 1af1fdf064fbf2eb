"""Shares of something scarce: who asks a thousand times waits for itself alone.

For every sink that others fill: statuses, Events, log lines, reviews and connections, by namespace or by caller.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import chain, zip_longest
from typing import TypeVar

T = TypeVar("T")


def in_turns(groups: Iterable[Sequence[T]]) -> Iterator[T]:
    """The first of each group, then the second of each, until all are through: no group waits for another."""
    return (each for each in chain.from_iterable(zip_longest(*groups)) if each is not None)


class Shares:
    """At most `limit` at a time, and at most half of it for one name, such as a namespace. Not thread-safe."""

    def __init__(self, limit: float, of_one: float = 0.0, per_s: float = 0.0) -> None:
        """of_one: most for one name, where that is not the half. per_s: what comes back by itself in a second."""
        self._limit, self._of_one, self._per_s = limit, of_one or max(1.0, limit // 2), per_s
        self._taken: dict[str, float] = {}
        self._all = self._at_s = 0.0

    @property
    def are_free(self) -> bool:
        """Whether nobody has any."""
        return not self._taken

    def take(self, name: str, at_s: float = 0.0, kept: float = 0.0) -> bool:
        """Whether a name may have one more, with this many kept for others; counts it. at_s: now, by any clock."""
        if self._per_s and self._all and at_s > self._at_s:
            left = max(0.0, 1.0 - (at_s - self._at_s) * self._per_s / self._all)
            self._taken = {each: some * left for each, some in self._taken.items() if some * left > 1e-3}
            self._all = sum(self._taken.values())
        self._at_s = max(at_s, self._at_s)
        may = self._all + 1.0 <= self._limit - kept and self._taken.get(name, 0.0) + 1.0 <= self._of_one
        if may:
            self._taken[name] = self._taken.get(name, 0.0) + 1.0
            self._all += 1.0
        return may

    def give_back(self, name: str) -> None:
        self._all -= 1.0
        self._taken[name] -= 1.0
        if not self._taken[name]:
            del self._taken[name]


class TooManyWaitError(Exception):
    """Too many of one name wait already."""


class FairTurns:
    """Shares that are waited for, in rotation of the names."""

    def __init__(self, limit: int, least_s: float = 0.0, most_waiting: int | None = None) -> None:
        """limit: turns at once. least_s: time that a turn counts for at least: `limit / least_s` bounds the rate.

        most_waiting: at most half of them of one name; None: any number.
        """
        self._shares, self._least_s, self._most_waiting = Shares(limit), least_s, most_waiting
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiters by name; the one whose turn is next comes first."""

    @property
    def is_idle(self) -> bool:
        """Whether nobody has a turn or waits."""
        return self._shares.are_free and not self._waiting

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
        self._shares.give_back(name)
        self._grant()

    def _grant(self) -> None:
        while (name := next(filter(self._shares.take, self._waiting), None)) is not None:
            waiters = self._waiting.pop(name)
            waiter = waiters.popleft()
            if waiters:
                self._waiting[name] = waiters  # behind all others
            if waiter.done():
                self._shares.give_back(name)
            else:
                waiter.set_result(None)
