"""The stamp that a leader leaves on what it places: which leader, and when."""

from dataclasses import dataclass

from controller.api.instant import rfc3339
from controller.api.labels import EPOCH_ANNOTATION, PLACED_AT_ANNOTATION


@dataclass(frozen=True, slots=True)
class Stamp:
    """On a pod that is given a node, or a claim that is given devices."""

    epoch: int
    """Of the Lease."""
    at_s: float
    """Seconds since the epoch of clocks. On the object it outlives the leader, so its successor knows since when."""

    @property
    def annotations(self) -> dict[str, str]:
        return {EPOCH_ANNOTATION: str(self.epoch), PLACED_AT_ANNOTATION: rfc3339(self.at_s)}
