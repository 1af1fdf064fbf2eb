"""Transcript: the frames of a whole job in the order of their arrival, tick by tick."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cluster.arrays import Array, FloatArray, IntArray
from health.records.frames import HEADER, RECORD, Records
from tonnage.records import MAGIC, VERSION, Kind

TICK_S = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """Records with the frame that each left in; shape (records,) each, in the order of leaving per rank."""

    rows: Array
    rank: IntArray
    frame: IntArray
    """Number of the frame, per rank."""
    local_ns: IntArray
    """Sender's clock when the frame left."""
    arrival_s: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Transcript:
    """Frames as they arrive."""

    introductions: Records
    """PLACE and MEMBER records of all ranks."""
    rows: Array
    """Headers and records, dtype RECORD, in order of arrival."""
    ends: IntArray
    """Shape (ticks,): end of each tick in `rows`."""

    def ticks(self) -> Iterator[tuple[float, bytes]]:
        """Instant and frames of each tick."""
        start = 0
        for tick, end in enumerate(self.ends.tolist()):
            yield (tick + 1) * TICK_S, self.rows[start:end].tobytes()
            start = end

    @property
    def records(self) -> int:
        return len(self.rows)


def transcript(sent: Sent, wall_minus_ns: IntArray, introductions: Records, until_s: float) -> Transcript:
    """wall_minus_ns: shape (ranks,), wall clock minus local clock. until_s: end of the transcript."""
    kept = sent.arrival_s < until_s
    rows, rank, frame = sent.rows[kept], sent.rank[kept], sent.frame[kept]
    tick = (sent.arrival_s[kept] / TICK_S).astype(np.int64)
    code = (tick << 40) | (rank << 24) | frame
    order = np.argsort(code, kind="stable")
    rows, code, rank, tick = rows[order], code[order], rank[order], tick[order]
    first = np.flatnonzero(np.diff(code, prepend=-1))
    count = np.diff(first, append=len(code))
    headers = np.zeros(len(first), HEADER)
    headers["magic"], headers["version"], headers["count"] = MAGIC, VERSION, count
    headers["rank"], headers["at_ns"] = rank[first], sent.local_ns[kept][order][first]
    headers["wall_minus_ns"] = wall_minus_ns[rank[first]]
    both = np.empty(len(rows) + len(first), RECORD)
    at = first + np.arange(len(first))
    is_header = np.zeros(len(both), np.bool_)
    is_header[at] = True
    both[is_header], both[~is_header] = headers.view(RECORD), rows
    ends = np.searchsorted(tick, np.arange(int(until_s / TICK_S)), side="right")
    return Transcript(introductions, both, ends + np.searchsorted(first, ends))


def introductions(rank: IntArray, rows: Array) -> Records:
    return Records(rows, rank, np.zeros(0, HEADER))


def members(groups: list[tuple[int, int, IntArray]], number: dict[int, int]) -> tuple[IntArray, Array]:
    """MEMBER records of groups (key, role, ranks); number: the ranks' own number of the groups of each role."""
    ranks = np.concatenate([ranks for _, _, ranks in groups])
    rows = np.zeros(len(ranks), RECORD)
    sizes = [len(ranks) for _, _, ranks in groups]
    rows["kind"] = Kind.MEMBER
    rows["at_ns"] = np.repeat([key for key, _, _ in groups], sizes)
    rows["op"] = np.repeat([role for _, role, _ in groups], sizes)
    rows["group"] = np.repeat([number[role] for _, role, _ in groups], sizes)
    rows["step"] = np.repeat(sizes, sizes)
    rows["seq"] = np.concatenate([np.arange(size) for size in sizes])
    return ranks.astype(np.int64), rows


def places(stage: IntArray, replica: IntArray) -> tuple[IntArray, Array]:
    rows = np.zeros(len(stage), RECORD)
    rows["kind"], rows["seq"], rows["at_ns"], rows["step"] = Kind.PLACE, stage, replica, len(stage)
    return np.arange(len(stage), dtype=np.int64), rows
