"""Frames of a job that are looked at together are admitted as if each was looked at alone."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, strategies as st

from controller.loops.health.job_stream import MOST_RANKS, RANKS_PER_POD, JobStream, RankSeat, frames_in
from tests.builders.frame_header import header
from tonnage import records
from tonnage.records import FRAME_RECORDS, LAST_KIND, MAGIC, Kind

PODS = ("u-0", "u-1", "u-2")
RECORDS = st.sampled_from(
    [
        records.packed(Kind.BEAT, seq=1, at_ns=5),
        records.packed(Kind.OPERATION, seq=1, at_ns=5, step=1),
        records.packed(Kind.PLACE, step=4, at_ns=0),
        bytes([MAGIC]) + bytes(31),
        bytes([LAST_KIND + 1]) + bytes(31),
    ]
)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame of one of few ranks and runs, now and then one that contradicts itself or is cut off."""
    body = draw(st.lists(RECORDS, max_size=3))
    count = draw(st.sampled_from([len(body)] * 6 + [len(body) + 1, FRAME_RECORDS + 1]))
    rank, run = draw(st.sampled_from([0, 1, 2, 3, 1 << 31])), draw(st.sampled_from([0, 0, 0, 1]))
    head = header(count, rank=rank, at_ns=9, incarnation=run)
    made = head + b"".join(body)
    return made[: len(made) - draw(st.sampled_from([0] * 8 + [7, 32]))]


CHUNKS = st.lists(
    st.tuples(st.sampled_from(PODS), st.lists(frames(), max_size=3).map(b"".join)), min_size=1, max_size=6
)


class OneByOne(JobStream):
    """Looks at each frame alone."""

    def _admitted(self, arrived: Sequence[tuple[str, str, bytes]]) -> bytes:
        kept = []
        found = [(pod, node, *each) for pod, node, chunk in arrived for each in frames_in(chunk)]
        newest = max((run for _, _, _, run, _ in found), default=-1)
        if newest > self._run:
            self._run, self.seats, self._introduced, self._ranks = newest, {}, {}, 0
            self._ranks_of.clear()
            self._waiting, self._waiting_bytes, self._analyser = [], 0, None
        for pod, node, rank, run, frame in found:
            is_own = run == self._run and rank < MOST_RANKS
            if is_own and rank not in self.seats and self._ranks_of[pod] < RANKS_PER_POD:
                self.seats[rank] = RankSeat(pod, node)
                self._ranks_of[pod] += 1
            if is_own and rank in self.seats and self.seats[rank].pod == pod:
                kept.append(frame)
            else:
                self.refused += 1
        return b"".join(kept)


@given(st.lists(CHUNKS, min_size=1, max_size=4))
def test_frames_are_admitted_together_as_one_by_one(batches: list[list[tuple[str, bytes]]]) -> None:
    together, alone = JobStream("ns/job", "run"), OneByOne("ns/job", "run")
    for now_s, batch in enumerate(batches):
        for stream in (together, alone):
            for pod, chunk in batch:
                stream.take(pod, "n0", chunk, float(now_s))
            stream._digest()

    assert together.seats == alone.seats
    assert (together.refused, together.records) == (alone.refused, alone.records)
    assert together._waiting == alone._waiting


class Counted(dict[Any, Any]):
    """A dict that counts how often all of it is looked at."""

    looks = 0

    def items(self) -> Any:
        self.looks += 1
        return super().items()


def introduced(rank: int, ranks: int) -> bytes:
    place = records.packed(Kind.PLACE, step=ranks, at_ns=rank)
    return header(1, rank=rank, at_ns=9) + place


def test_a_job_that_waits_for_a_rank_costs_no_look_at_all_introductions() -> None:
    """One rank of 10,000 without a recorder took 28 ms of every turn of the operator's intake."""
    stream = JobStream("ns/job", "run")
    stream.take("u-0", "n0", introduced(0, 3), 0.0)
    stream.judge(0.0)
    stream._introduced = counted = Counted(stream._introduced)
    for turn in range(10):
        stream.judge(10.0 + turn)
    assert (stream.ranks, counted.looks) == (3, 0)

    stream.take("u-0", "n0", introduced(0, 2), 20.0)
    stream.judge(20.0)
    assert stream.ranks == 2
