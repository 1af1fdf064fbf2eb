"""The snapshot holder: the newest snapshot, once in Ray's object store for however many read it.

Planners read it there without a copy, and so does whoever sits in a slot, also later and also one that came back in
place of another. It is a plain object of the process that drives Ray, not an actor: what that process puts into the
store belongs to it anyway, and another process would cost 60 MB and a hop on the way of every plan.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from controller.brain.frames import Buffer


@dataclass(frozen=True, slots=True)
class Held:
    """A snapshot as it is held."""

    number: int
    """Rising: a larger one is newer."""
    array: Any
    """Where its frame lies, for calls of actors."""


@dataclass(slots=True)
class SnapshotHolder:
    """Keeps one, the newest; those before it go when their last reader is done."""

    put: Callable[[Any], Any]
    """Into the object store."""
    newest: Held | None = None

    def hold(self, frame: Buffer) -> Held:
        number = self.newest.number + 1 if self.newest else 1
        self.newest = Held(number, self.put(np.frombuffer(frame, np.uint8)))
        return self.newest
