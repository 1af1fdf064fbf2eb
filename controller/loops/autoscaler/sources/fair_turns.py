"""Fair turns: bounded concurrency that serves namespaces in rotation, so that none waits behind all work of another."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairTurns:
    """At most `limit` turns at once, and at most half of them for one namespace."""

    def __init__(self, limit: int) -> None:
        self._limit, self._of_one = limit, max(1, limit // 2)
        self._taken: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiters by namespace; the namespace whose turn is next comes first."""

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """Waits for a turn, and gives it back at the end."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(waiter)
        self._grant()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._give_back(namespace)
            raise
        try:
            yield
        finally:
            self._give_back(namespace)

    def _give_back(self, namespace: str) -> None:
        self._taken[namespace] -= 1
        if not self._taken[namespace]:
            del self._taken[namespace]
        self._grant()

    def _grant(self) -> None:
        while sum(self._taken.values()) < self._limit and (namespace := self._next()) is not None:
            waiters = self._waiting.pop(namespace)
            waiter = waiters.popleft()
            if waiters:
                self._waiting[namespace] = waiters  # behind all others
            if not waiter.done():
                self._taken[namespace] = self._taken.get(namespace, 0) + 1
                waiter.set_result(None)

    def _next(self) -> str | None:
        return next((name for name in self._waiting if self._taken.get(name, 0) < self._of_one), None)
