"""Recordings of given cycles."""

import gzip
from collections.abc import Iterable

from controller.cycle import Cycle
from controller.recording.ring import CycleEntry, Recording, recorded


def recording_of(cycles: Iterable[Cycle]) -> Recording:
    """Recording of all these cycles, regardless of size and age."""
    entries: list[CycleEntry] = []
    packed: dict[str, bytes] = {}
    for number, cycle in enumerate(cycles, start=1):
        entry, frames = recorded(cycle, number)
        entries.append(entry)
        packed.update((name, gzip.compress(frame, 9, mtime=0)) for name, frame in frames)
    return Recording(tuple(entries), packed, seen=len(entries))
