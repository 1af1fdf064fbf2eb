"""Pressure stall information of memory, and the rule that kills by it: the rival that systemd-oomd and oomd are."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pressure:
    """Time since the group was made in which processes waited for memory."""

    some_stall_s: float
    """At least one of them did."""
    full_stall_s: float
    """All that could have run did."""


def pressure_of(text: str) -> Pressure:
    """Content of a `memory.pressure` file (Documentation/accounting/psi.rst)."""
    totals = {kind: int(fields[-1].removeprefix("total=")) for kind, *fields in map(str.split, text.splitlines())}
    return Pressure(totals["some"] / 1e6, totals["full"] / 1e6)


@dataclass(frozen=True, slots=True)
class PressureRule:
    """Limits beyond which something is killed. Times are of the replay, the kernel's divided by its speed."""

    full_share: float
    """Limit of the share of time in which all wait."""
    for_s: float
    """Time that the share must stay above it."""
    window_s: float
    """Time constant of the average: 10 s for the kernel's avg10."""
    rest_s: float
    """Time after a kill in which nothing is: the average still remembers what it relieved."""


@dataclass(slots=True)
class PressureWatch:
    """Average of the pressure and since when it is too high.

    The kernel's avg10 cannot run faster with a replay, so that the average is made anew of the total, as the kernel
    makes it: exponentially weighted.
    """

    rule: PressureRule
    average: float = 0.0
    _read_at_s: float = -math.inf
    _stall_s: float = 0.0
    _above_since_s: float | None = None
    _killed_at_s: float = -math.inf

    def is_due(self, now_s: float, pressure: Pressure) -> bool:
        """Whether something is to be killed now."""
        since_s = now_s - self._read_at_s
        stall_s, self._stall_s, self._read_at_s = pressure.full_stall_s - self._stall_s, pressure.full_stall_s, now_s
        if not math.isfinite(since_s) or since_s <= 0:
            return False
        kept = math.exp(-since_s / self.rule.window_s)
        self.average = kept * self.average + (1 - kept) * min(1.0, stall_s / since_s)
        if self.average <= self.rule.full_share:
            self._above_since_s = None
            return False
        if self._above_since_s is None:
            self._above_since_s = now_s
        if now_s < max(self._above_since_s + self.rule.for_s, self._killed_at_s + self.rule.rest_s):
            return False
        self._killed_at_s = now_s
        return True
