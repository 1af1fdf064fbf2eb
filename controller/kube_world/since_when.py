"""Since when things stand, as it is written on their objects, so that a restart or another leader loses nothing."""

from collections.abc import Callable, Iterable, Mapping

from controller.deciders.deadlines import since

Written = Callable[[str], float | None]
"""The instant on an object (`namespace/name`), seconds since the epoch; None where there is none."""


class SinceWhen:
    """For things of one kind. What is not written, as by an earlier version, counts from when this process saw it."""

    def __init__(self, written: Written, *, may_lag: bool = False) -> None:
        """may_lag: what is written may be of an earlier time that the thing stood so, and not be taken off yet."""
        self._written = written
        self._may_lag = may_lag
        self._known: Mapping[str, float] = {}
        self._looked_at_s: float | None = None

    def of(self, standing: Iterable[str], at_s: float) -> Mapping[str, float]:
        """Since when each of these stands. at_s: now, seconds since the epoch."""
        names = tuple(standing)
        found = {name: each for name in names if (each := self._since(name)) is not None}
        self._known, self._looked_at_s = since(names, found, at_s), at_s
        return self._known

    def _since(self, name: str) -> float | None:
        known, written = self._known.get(name), self._written(name)
        if not self._may_lag or written is None:
            return known if written is None else written
        if known is not None:
            return max(known, written)
        # It did not stand so when this process last looked: what was written before then is of an earlier time.
        return written if self._looked_at_s is None or written >= self._looked_at_s else None
