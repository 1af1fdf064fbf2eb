"""Loops of the agent that no error ends: a failure is counted, told once while it lasts, and the loop goes on."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
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


async def kept_up(loop: str, run: Callable[[], Awaitable[None]], pause_s: float = PAUSE_S) -> None:
    """Runs what should run for ever, again whenever it ends."""
    turns = Turns(loop)
    while True:
        with turns.turn():
            await run()
        await asyncio.sleep(pause_s)
