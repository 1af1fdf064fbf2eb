"""Deadlines: since when something stands that should pass by itself, and whether that is too long.

Since when is data of the snapshot, kept by the world on the objects themselves, so a restart or a new leader loses
nothing. Instants are seconds since the epoch.
"""

from collections.abc import Iterable, Mapping


def since(standing: Iterable[str], known: Mapping[str, float], at_s: float) -> dict[str, float]:
    """Since when each of these stands: as it is known, or else from now on. What stands no longer is forgotten.

    at_s: now. An instant that lies ahead was written by a clock that is ahead: it counts as now.
    """
    return {name: min(known.get(name, at_s), at_s) for name in standing}


def late(standing: Iterable[str], known: Mapping[str, float], *, at_s: float, after_s: float) -> list[str]:
    """Those that have stood for `after_s` or longer, in the order given."""
    return [name for name, since_s in since(standing, known, at_s).items() if at_s - since_s >= after_s]
