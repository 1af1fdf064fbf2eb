"""Footprint of an instance on its node, and the sets of instances that one node holds together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cluster.workloads import PodShape


@dataclass(frozen=True, slots=True, order=True)
class Footprint:
    """Resources of one instance on its node; also what is free on a node."""

    gpus: int
    """Whole devices."""
    cpu_milli: int = 0
    memory_bytes: int = 0

    def times_in(self, room: "Footprint") -> int:
        """Number of such instances that fit together into a room."""
        pairs = (
            (self.gpus, room.gpus),
            (self.cpu_milli, room.cpu_milli),
            (self.memory_bytes, room.memory_bytes),
        )
        return max(0, min(has // asked for asked, has in pairs if asked))

    def minus(self, other: "Footprint", count: int = 1) -> "Footprint":
        return Footprint(
            self.gpus - count * other.gpus,
            self.cpu_milli - count * other.cpu_milli,
            self.memory_bytes - count * other.memory_bytes,
        )


def footprint_of(shape: PodShape) -> Footprint:
    return Footprint(shape.gpus, shape.cpu_milli, shape.memory_bytes)


Pattern = tuple[int, ...]
"""Numbers of instances of each footprint that one node holds together."""


@lru_cache(maxsize=65_536)
def patterns_of(room: Footprint, footprints: tuple[Footprint, ...]) -> tuple[Pattern, ...]:
    """Maximal patterns of a node: no further instance fits beside them, and none is part of another."""
    found = [*_filled(room, footprints)]
    return tuple(p for p in found if not any(p != q and all(a <= b for a, b in zip(p, q, strict=True)) for q in found))


def _filled(room: Footprint, footprints: Sequence[Footprint]) -> Iterator[Pattern]:
    """Every number of the first footprints, with as many of the last as then fit."""
    first, *rest = footprints
    most = first.times_in(room)
    if not rest:
        yield (most,)
        return
    for count in range(most, -1, -1):
        for others in _filled(room.minus(first, count), rest):
            yield (count, *others)
