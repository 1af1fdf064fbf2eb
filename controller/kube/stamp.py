"""Stamp of a leader on the objects that it places: Lease epoch and time."""

from dataclasses import dataclass

from controller.api.instant import rfc3339
from controller.api.labels import EPOCH_ANNOTATION, PLACED_AT_ANNOTATION


@dataclass(frozen=True, slots=True)
class Stamp:
    """Annotations of a placed pod or an allocated claim."""

    epoch: int
    """Lease epoch of the leader."""
    at_s: float
    """Time of placement, Unix seconds. It is stored on the object, so that the next leader knows it."""

    @property
    def annotations(self) -> dict[str, str]:
        return {EPOCH_ANNOTATION: str(self.epoch), PLACED_AT_ANNOTATION: rfc3339(self.at_s)}
