"""Recommendation of a rival policy."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recommendation:
    replicas: int
    recommended: int
    """Replicas before stabilization, which later stabilization remembers."""

    @classmethod
    def plain(cls, replicas: int) -> "Recommendation":
        return cls(replicas, replicas)
