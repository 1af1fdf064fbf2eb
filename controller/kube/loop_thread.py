"""An event loop in a thread of its own: what waits for networks goes on while other threads compute."""

import asyncio
from collections.abc import Callable, Coroutine
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads. One is for what speaks to Kubernetes, one for what speaks to agents."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the loop and wait for it, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def run_within(self, work: Coroutine[Any, Any, T], limit_s: float) -> T | None:
        """The same, given up after so long."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(limit_s)
        except TimeoutError:
            future.cancel()
            return None

    def begin(self, work: Coroutine[Any, Any, Any]) -> Callable[[], object]:
        """Run it in the background; what comes back cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.cancel

    def call(self, work: Callable[[], None]) -> None:
        """Call it in the loop, soon."""
        self._loop.call_soon_threadsafe(work)

    def close(self) -> None:
        self.run_within(_all_cancelled(), 2.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2.0)
        if not self._thread.is_alive():
            self._loop.close()


async def _all_cancelled() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
