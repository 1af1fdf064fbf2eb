"""Deadlines: since when a condition lasts that should end on its own, and whether that is too long.

The start instants are data of the snapshot, stored on the cluster's objects themselves, so a restart or a new leader
loses nothing. Instants are seconds since the epoch.
"""

from collections.abc import Iterable, Mapping


def since(standing: Iterable[str], known: Mapping[str, float], at_s: float) -> dict[str, float]:
    """Start instant of each lasting condition: the known one, or else now. Conditions that have ended are forgotten.

    at_s: now. An instant in the future was written by a clock that runs ahead: it counts as now.
    """
    return {name: min(known.get(name, at_s), at_s) for name in standing}


def late(standing: Iterable[str], known: Mapping[str, float], *, at_s: float, after_s: float) -> list[str]:
    """Names of the conditions that have lasted for `after_s` or longer, in the order given."""
    return [name for name, since_s in since(standing, known, at_s).items() if at_s - since_s >= after_s]
