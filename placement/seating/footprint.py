"""Footprint of an instance on its node, and the sets of instances that one node holds together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

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
_Filling = tuple[Pattern, Footprint]
"""A pattern, and what it leaves free."""


MOST_FILLINGS = 20_000
"""Fillings of one node that are looked at. Chosen: 50 ms."""


@lru_cache(maxsize=65_536)
def patterns_of(room: Footprint, footprints: tuple[Footprint, ...]) -> tuple[Pattern, ...] | None:
    """Maximal patterns of a node: no further instance fits beside them. None where there are too many fillings."""
    found = list(islice(_filled(room, footprints), MOST_FILLINGS + 1))
    return None if len(found) > MOST_FILLINGS else tuple(pattern for pattern, _ in found)


def _filled(room: Footprint, footprints: Sequence[Footprint], before: Sequence[Footprint] = ()) -> Iterator[_Filling]:
    """Every filling of a room to which none of the footprints before and no further one can be added."""
    first, *rest = footprints
    for count in range(first.times_in(room), -1, -1):
        left = room.minus(first, count)
        if rest:
            yield from (((count, *others), last) for others, last in _filled(left, rest, (*before, first)))
        elif not any(each.times_in(left) for each in (*before, first)):
            yield (count,), left
