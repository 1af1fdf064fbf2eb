"""What the preflight of one job's pods has said: who took part where, and whom rank 0 accuses."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from controller.loops.health.job_stream import RankSeat, frames_in
from health.records.frames import RECORD
from health.verdicts.verdict import JobVerdict, Part, Syndrome
from tonnage.pairs import SLOW_SHARE
from tonnage.records import Kind, Suspect

_MEANS = {
    Suspect.DEVICE: (Syndrome.OTHER_HANG, Part.NODE, "its matrix products reach"),
    Suspect.NIC: (Syndrome.COMMUNICATION_HANG, Part.NIC, "its network reaches"),
    Suspect.LINK: (Syndrome.COMMUNICATION_HANG, Part.LINK, "the path between them reaches"),
}
"""A job that does not begin has stopped."""


@dataclass(slots=True)
class Preflight:
    """Its ranks are pods; those of training are others."""

    _seats: dict[int, RankSeat] = field(default_factory=dict)
    _accused: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Percent of the usual speed, by suspect, rank and peer: what nobody was told of yet."""

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

    def verdicts(self, now_s: float, own_speed: dict[str, float]) -> Iterator[tuple[JobVerdict, list[RankSeat]]]:
        """On ranks whose pods are known, each once. own_speed: what our own watts leave nodes that they slow."""
        for (suspect, *ranks), percent in list(self._accused.items()):
            ends = tuple(ranks if suspect == Suspect.LINK else ranks[:1])
            if suspect not in _MEANS or not all(rank in self._seats for rank in ends):
                continue
            del self._accused[suspect, ranks[0], ranks[1]]
            seats = [self._seats[rank] for rank in ends]
            if suspect == Suspect.DEVICE and percent >= 100 * SLOW_SHARE * own_speed.get(seats[0].node, 1.0):
                continue
            syndrome, part, words = _MEANS[Suspect(suspect)]
            shown = f"preflight: {words} {percent} % of what is usual"
            yield JobVerdict(now_s, syndrome, part, ends, now_s, 0.95, (shown,)), seats
