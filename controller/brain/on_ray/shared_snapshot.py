"""Snapshot holder: the newest snapshot, stored once in Ray's object store for all its readers.

Planners read it there without a copy, and so do background actors, also later and after a restart. The holder is a
plain object of the process that drives Ray, not an actor: that process owns the data that it puts into the store
anyway, and another process would cost 60 MB and another hop for every plan.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.frame import Buffer


@dataclass(frozen=True, slots=True)
class HeldSnapshot:
    """Snapshot in the object store."""

    number: int
    """Increasing number: a larger one is newer."""
    array: Any
    """Reference to its frame, for calls of actors."""


@dataclass(slots=True)
class SnapshotHolder:
    """Holder of the newest snapshot; earlier ones are freed when their last reader is done."""

    put: Callable[[Any], Any]
    """Function that puts a value into the object store."""
    newest: HeldSnapshot | None = None

    def hold(self, frame: Buffer) -> HeldSnapshot:
        number = self.newest.number + 1 if self.newest else 1
        self.newest = HeldSnapshot(number, self.put(np.frombuffer(frame, np.uint8)))
        return self.newest
