"""Budget of work, counted so that it is the same on every machine, with time as the last resort.

Work counts the steps of a solver or a search, not their duration: on a slow or busy machine the same problem gets
equally far, only later. Time ends what would take far too long, and the plan names what it ended.
"""

import math
from dataclasses import dataclass

from cluster.clock import Clock
from cluster.plans import CutShort


def stopped() -> float:
    """Clock of a caller without a time limit."""
    return 0.0


@dataclass(slots=True, eq=False)
class Budget:
    """Remaining work, in the units of its user, and the instant at which time is up."""

    work: float
    clock: Clock = stopped
    over_at_s: float = math.inf
    """Instant on that clock."""
    outer: "Budget | None" = None
    """Budget that this one is a part of: spending from the part spends from the whole."""
    assured: float = 0.0
    """Work that may be done although time is up: where earlier steps used the time, later ones still get somewhere."""
    time_ran_out: bool = False
    """Whether time ended anything: the same problem may then have another solution on another machine."""

    @property
    def left_s(self) -> float:
        return self.over_at_s - self.clock()

    @property
    def cut_short(self) -> CutShort:
        """Limit that is reached: the work, or else the time; empty while both remain."""
        if self.work <= 0:
            return "work"
        return "time" if self.left_s <= 0 and not self._is_assured else ""

    @property
    def _is_assured(self) -> bool:
        return self.assured > 0 or (self.outer is not None and self.outer._is_assured)

    def allows_more(self) -> bool:
        """Whether work and time remain; remembers if it is time that ran out."""
        used_up = self.cut_short
        if used_up == "time":
            self.say_time_ran_out()
        return not used_up

    def spend(self, work: float, cut_short: CutShort = "") -> None:
        """Deducts work that was done. cut_short: the limit that ended it, if it did not end on its own."""
        done = max(1.0, work)  # at least something, so that no search continues without end
        self.work -= done
        self.assured -= done
        if cut_short == "time":
            self.time_ran_out = True
        if self.outer is not None:
            self.outer.spend(work, cut_short)

    def say_time_ran_out(self) -> None:
        """Remembers that time ended something."""
        self.time_ran_out = True
        if self.outer is not None:
            self.outer.say_time_ran_out()

    def part(self, share: float) -> "Budget":
        """Budget of this share of the remaining work, and of all the time."""
        return Budget(max(0.0, share * self.work), self.clock, self.over_at_s, self)

    def brief(self, share: float) -> "Budget":
        """Budget of this share of the remaining work and of the remaining time."""
        now_s = self.clock()
        return Budget(max(0.0, share * self.work), self.clock, now_s + share * (self.over_at_s - now_s), self)
