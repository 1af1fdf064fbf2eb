"""Circuit breaker and restart backoff of the brain: pure rules over times and outcomes."""

from collections.abc import Callable
from dataclasses import dataclass

FAILURES = 3
"""Requests in a row without a plan after which the brain is no longer waited for. Chosen: a planner that is restarted
within two seconds costs one or two."""
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 5.0
"""Bounds of the wait between attempts to start, in seconds. Chosen: a head that comes back is found within 10 s, and a
brain that cannot start costs only an occasional process start."""
SETTLED_S = 60.0
"""Seconds of running after which a lost brain is started again at once."""


@dataclass(slots=True)
class CircuitBreaker:
    """Circuit breaker: counts failures in a row; while it is open, requests are trials whose answers no plan waits for.

    A trial costs a controller that plans locally nothing, so the first plan within its deadline closes the breaker.
    After a plan that could not be used it stays open until the brain is replaced: the plan of a trial is not read.
    """

    failures: int = 0
    distrusted_since_s: float | None = None
    is_rejected: bool = False
    """Whether a plan of this brain could not be used."""

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open: no plan waits for the brain."""
        return self.distrusted_since_s is not None

    def reset(self) -> None:
        """Trusts a new brain."""
        self.failures, self.distrusted_since_s, self.is_rejected = 0, None, False

    def succeeded(self) -> None:
        if not self.is_rejected:
            self.reset()

    def rejected(self, at_s: float) -> None:
        """Opens the breaker because of a plan that came in time and could not be used."""
        self.is_rejected = True
        if self.distrusted_since_s is None:
            self.distrusted_since_s = at_s

    def failed(self, at_s: float) -> None:
        self.failures += 1
        if self.failures >= FAILURES and self.distrusted_since_s is None:
            self.distrusted_since_s = at_s

    def is_lost(self, at_s: float, patience_s: float) -> bool:
        """Whether a running brain has given no plan for longer than `patience_s`, so that it should be replaced."""
        return self.distrusted_since_s is not None and at_s >= self.distrusted_since_s + patience_s


@dataclass(slots=True)
class Retries:
    """Backoff between starts: twice as long each time, spread so that replicas do not retry in step.

    chance: returns a new random number in 0..1 at each call.
    """

    chance: Callable[[], float]
    attempts: int = 0

    def wait_s(self) -> float:
        """Seconds before the next attempt, which is counted; half to all of the doubled time."""
        longest_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**self.attempts)
        self.attempts += 1
        return longest_s * (0.5 + 0.5 * self.chance())

    def lived(self, for_s: float) -> None:
        """Records that a brain ran for this many seconds."""
        if for_s >= SETTLED_S:
            self.attempts = 0
