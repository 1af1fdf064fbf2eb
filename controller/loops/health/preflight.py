"""What the preflight of one job's pods has said: who took part where, and which of them rank 0 accuses."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from controller.loops.health.job_stream import RankSeat, frames_in
from health.records.frames import RECORD
from health.verdicts.verdict import Part, Syndrome
from tonnage.records import RECORD_BYTES, Fault, Kind

_MEANS = {
    Fault.DEVICE: (Syndrome.OTHER_HANG, Part.NODE, "its matrix products reach"),
    Fault.NIC: (Syndrome.COMMUNICATION_HANG, Part.NIC, "its network reaches"),
    Fault.LINK: (Syndrome.COMMUNICATION_HANG, Part.LINK, "the path between them reaches"),
}
"""A job that does not begin has stopped."""


@dataclass(frozen=True, slots=True)
class Accusation:
    """What a preflight accuses, and where that is."""

    syndrome: Syndrome
    part: Part
    seats: tuple[RankSeat, ...]
    percent: int
    words: str


@dataclass(slots=True)
class Preflight:
    """Its numbers of ranks are those of pods, and no others'."""

    _seats: dict[int, RankSeat] = field(default_factory=dict)
    _accused: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Percent of the usual speed, by fault, rank and peer: what nobody was told of yet."""

    def take(self, pod: str, node: str, frames: bytes) -> bytes:
        """Takes its frames out of those of a pod; returns the others."""
        rest = []
        for rank, _, frame in frames_in(frames):
            rows = np.frombuffer(frame, dtype=RECORD)[1:]
            if not len(rows) or rows["kind"][0] != Kind.PREFLIGHT:
                rest.append(frame)
                continue
            self._seats.setdefault(rank, RankSeat(pod, node))
            for row in rows[rows["op"] > 0]:
                self._accused[int(row["op"]), int(row["seq"]), int(row["peer"])] = int(row["size"])
        return b"".join(rest)

    def accusations(self) -> Iterator[Accusation]:
        """Those of ranks whose pods are known, each once."""
        for key, percent in list(self._accused.items()):
            fault, *ranks = key
            ends = ranks if fault == Fault.LINK else ranks[:1]
            if fault in _MEANS and all(rank in self._seats for rank in ends):
                del self._accused[key]
                syndrome, part, words = _MEANS[Fault(fault)]
                seats = tuple(self._seats[rank] for rank in ends)
                yield Accusation(syndrome, part, seats, percent, f"preflight: {words} {percent} % of what is usual")


def is_of_preflight(frames: bytes) -> bool:
    """Whether these frames begin with one of a preflight."""
    return frames[RECORD_BYTES : RECORD_BYTES + 1] == bytes([Kind.PREFLIGHT])
