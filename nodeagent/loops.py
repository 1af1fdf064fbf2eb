"""Loops of the agent that no error ends: a failure is counted, told once while it lasts, and the loop goes on."""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog

log = structlog.get_logger(__name__)
FAILED: Counter[str] = Counter()
"""Turns that failed by an error which nobody had thought of, by loop, in this process."""
PAUSE_S = 1.0
"""Pause after one, for a loop that would begin the next turn at once."""


@dataclass(slots=True)
class Turns:
    """Turns of one loop."""

    loop: str
    is_failing: bool = False
    """Whether the last one failed."""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One turn: what it raises ends here."""
        try:
            yield
        except Exception:
            FAILED[self.loop] += 1
            if not self.is_failing:
                log.exception("a turn of a loop failed; the loop goes on", loop=self.loop)
            self.is_failing = True
        else:
            if self.is_failing:
                log.info("the loop works again", loop=self.loop)
            self.is_failing = False


NICENESS = 5


class AgentLoop:
    """A loop in a thread of its own, turn after turn until it is closed."""

    def __init__(
        self,
        loop: str,
        turn: Callable[[], float],
        *,
        begin_s: float = 0.0,
        pause_s: float = PAUSE_S,
        gives_way: bool = False,
    ) -> None:
        """turn: returns seconds until the next one. begin_s: those until the first. pause_s: those after one that
        failed. gives_way: at a lower priority, so that it delays no power limit.
        """
        self._turns, self._turn, self._begin_s, self._pause_s = Turns(loop), turn, begin_s, pause_s
        self._gives_way = gives_way
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=loop, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, within_s: float = 0.0) -> None:
        """Ends it after the present turn; waits for that so long."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(within_s)

    def _run(self) -> None:
        if self._gives_way:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        rest_s = self._begin_s
        while not self._stop.wait(rest_s):
            rest_s = self._pause_s
            with self._turns.turn():
                rest_s = self._turn()


async def kept_up(loop: str, run: Callable[[], Awaitable[None]], pause_s: float = PAUSE_S) -> None:
    """Runs what should run for ever, again whenever it ends."""
    turns = Turns(loop)
    while True:
        with turns.turn():
            await run()
        await asyncio.sleep(pause_s)
