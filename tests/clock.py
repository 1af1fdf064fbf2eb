"""Clock set by hand, the fake of `cluster.clock.Clock`: time passes in a test only where the test lets it."""

import asyncio
import selectors
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass
class HandClock:
    """A clock that stands still until its time is set, read with a step, or slept away."""

    now_s: float = 0.0
    """Monotonic seconds."""
    step_s: float = 0.0
    """Seconds by which every reading moves it on."""
    sleeps_s: list[float] = field(default_factory=list)
    """Lengths of all sleeps, in order."""

    def __call__(self) -> float:
        read_s = self.now_s
        self.now_s += self.step_s
        return read_s

    async def sleep(self, for_s: float) -> None:
        """In place of `asyncio.sleep`: returns at once, later by this much."""
        self.sleeps_s.append(for_s)
        self.now_s += for_s


def ticking(step_s: float) -> HandClock:
    """A clock from 0 on that every reading moves on by a step."""
    return HandClock(step_s=step_s)


@dataclass
class RunningClock:
    """Real time that can be put forward, for code whose threads really wait."""

    ahead_s: float = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


class _JumpingSelector(selectors.DefaultSelector):
    """Selector that does not wait: where nothing is ready, it puts the clock forward to the next timer instead."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing is left that could go on"
        ready = super().select(0)
        if not ready:
            self._clock.now_s += max(0.0, timeout)
        return ready


def run_in_no_time(work: Coroutine[Any, Any, T], clock: HandClock | None = None) -> tuple[T, float]:
    """Runs a coroutine on a loop whose timers pass at once; returns its result and the seconds that passed by them.

    clock: the loop's clock, for code that reads it too.
    """
    clock = clock or HandClock()
    loop = asyncio.SelectorEventLoop(_JumpingSelector(clock))
    loop.time = clock  # type: ignore[method-assign]
    began_s = clock.now_s
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(work)
        return result, clock.now_s - began_s
