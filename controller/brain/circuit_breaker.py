"""When a brain is asked, when it is left alone, and when it is started anew: pure rules over times and outcomes."""

from collections.abc import Callable
from dataclasses import dataclass

FAILURES = 3
"""So many requests in a row without a plan, and the brain is no longer waited for. Chosen: a planner that is restarted
within two seconds costs one or two."""
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 5.0
"""Between attempts to start. Chosen: a head that comes back is found within 10 s, and a brain that cannot start costs
a process start now and then."""
SETTLED_S = 60.0
"""A brain that was up for so long is started at once when it is lost."""


@dataclass(slots=True)
class Trust:
    """A circuit breaker: counts failures in a row; while it is open, requests are trials that nobody waits for.

    A trial costs a controller that plans for itself nothing, so trust comes back with the first plan that is in time.
    """

    failures: int = 0
    distrusted_since_s: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the brain is not waited for."""
        return self.distrusted_since_s is not None

    def succeeded(self) -> None:
        self.failures, self.distrusted_since_s = 0, None

    def failed(self, at_s: float) -> None:
        self.failures += 1
        if self.failures >= FAILURES and self.distrusted_since_s is None:
            self.distrusted_since_s = at_s

    def is_lost(self, at_s: float, patience_s: float) -> bool:
        """Whether a brain that runs has given no plan for so long that a new one is the better bet."""
        return self.distrusted_since_s is not None and at_s >= self.distrusted_since_s + patience_s


@dataclass(slots=True)
class Retries:
    """How long to wait before the next start: twice as long each time, spread so that replicas do not move in step.

    chance: a number in 0..1, anew each time.
    """

    chance: Callable[[], float]
    attempts: int = 0

    def wait_s(self) -> float:
        """Before the next attempt, which is counted; half to all of the doubled time."""
        longest_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**self.attempts)
        self.attempts += 1
        return longest_s * (0.5 + 0.5 * self.chance())

    def lived(self, for_s: float) -> None:
        """A brain was up for so long."""
        if for_s >= SETTLED_S:
            self.attempts = 0
