"""Start times of states with deadlines, stored on the objects, so that a restart or another leader loses nothing."""

from collections.abc import Callable, Iterable, Mapping

from controller.deciders.closing import since

Written = Callable[[str], float | None]
"""Function from an object (`namespace/name`) to the instant stored on it, seconds since the epoch; None for none."""

FORGET_S = 120.0
"""A process that has not looked for longer was not the leader meanwhile, and knows nothing any more. Chosen: four times
the longest pause between two cycles."""


class StartTimes:
    """Start times of one kind of state. Without a stored instant (earlier versions) it is when this process saw it."""

    def __init__(self, written: Written, *, may_lag: bool = False) -> None:
        """may_lag: whether a stored instant may belong to an earlier period of the state and not be removed yet."""
        self._written = written
        self._may_lag = may_lag
        self._known: Mapping[str, float] = {}
        self._looked_at_s: float | None = None

    def of(self, objects: Iterable[str], at_s: float) -> Mapping[str, float]:
        """Start time of each object that is in the state now. at_s: now, seconds since the epoch."""
        names = tuple(objects)
        if self._looked_at_s is not None and at_s - self._looked_at_s > FORGET_S:
            self._known, self._looked_at_s = {}, None
        found = {name: each for name in names if (each := self._since(name, at_s)) is not None}
        self._known, self._looked_at_s = since(names, found, at_s), at_s
        return self._known

    def _since(self, name: str, at_s: float) -> float | None:
        known, written = self._known.get(name), self._written(name)
        if written is not None and written > at_s:
            written = None  # by a clock that is ahead, or by somebody else: a deadline must pass all the same
        if not self._may_lag or written is None:
            return known if written is None else written
        if known is not None:
            return max(known, written)
        # The object was not in the state at the last call, so an older stored instant is of an earlier period.
        return written if self._looked_at_s is None or written >= self._looked_at_s else None
