"""Clock set by hand, the fake of `cluster.clock.Clock`: time passes in a test only where the test lets it."""

import time
from dataclasses import dataclass, field


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
