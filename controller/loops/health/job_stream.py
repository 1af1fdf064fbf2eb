"""Stream of one job: frames of its ranks, the layout that they introduce, and the analysis of its present run.

Everything in a frame was written by the job, so that a lie concerns the job alone: a rank belongs to the first pod that
speaks for it, nodes come from the API server, and a job whose records the analysis cannot bear is left out for a while.
"""

import struct
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster.arrays import IntArray
from controller.loops.health.analyser_process import Analysis, AnalysisOf
from health.records.frames import HEADER, RECORD, Records, decoded, frame_starts
from health.records.layout import Layout, layout_from
from health.stream import Analyser
from health.verdicts.verdict import Fact, JobVerdict, Part, Syndrome
from tonnage.pairs import SLOW_SHARE
from tonnage.records import FRAME_RECORDS, LAST_KIND, MAGIC, RECORD_BYTES, AccusedPart, Kind, Phase, is_preflight

MOST_GROUPS = 128
"""Process groups of one rank; more are not followed."""
INTRODUCED_BYTES = 400
"""Memory for what a rank says of itself or of one of its groups."""
RANKS_PER_POD = 16
SETTLE_S = 1.0
"""Time after the last introduction until the layout counts as complete."""
MOST_WAITING_BYTES = 4 * 1024 * 1024
"""Frames of a job that wait for its layout."""
DIGESTED_BYTES = 8 * 1024 * 1024
"""Frames that are looked at together at most: a quarter of a second of 10,000 ranks at 100 operations a second."""
PACE_STEPS = 64
SAVED_S = 5.0
"""Time without a sign of a checkpoint after which it is over."""
LOOK_S = 0.25
"""Least length of a checkpoint that can be told: the pause between heartbeats."""
MOST_RANKS = 1 << 17
"""Ranks of a job; frames of others are refused."""
_HEAD = struct.Struct("<BBHIqqII")
_Chunk = tuple[str, str, bytes]
"""Pod, node, and frames one after another."""


@dataclass(frozen=True, slots=True)
class RankSeat:
    """Where a rank runs."""

    pod: str
    """UID."""
    node: str


@dataclass(slots=True)
class StepPace:
    """Step times as one rank shows them, to tell how much speed a slow job has lost."""

    begins_s: dict[int, float] = field(default_factory=dict)

    def add(self, steps: Sequence[int], enters_s: Sequence[float]) -> None:
        for step, enter_s in zip(steps, enters_s, strict=True):
            self.begins_s.setdefault(step, enter_s)
        for step in sorted(self.begins_s)[:-PACE_STEPS]:
            del self.begins_s[step]

    def lost_share(self) -> float:
        """Share of the speed lost in the last eighth of the steps, against the first half; 0 where it is not known."""
        length_s = np.diff([self.begins_s[step] for step in sorted(self.begins_s)])
        if len(length_s) < 16:
            return 0.0
        before, now = (
            float(np.median(length_s[: len(length_s) // 2])),
            float(np.median(length_s[-len(length_s) // 8 :])),
        )
        return max(0.0, 1 - before / now) if now > 0 else 0.0


_MEANS = {
    AccusedPart.DEVICE: (Syndrome.OTHER_HANG, Part.NODE, "its matrix products reach"),
    AccusedPart.NIC: (Syndrome.COMMUNICATION_HANG, Part.NIC, "its network reaches"),
    AccusedPart.LINK: (Syndrome.COMMUNICATION_HANG, Part.LINK, "the path between them reaches"),
}
"""A job that does not begin has stopped."""


@dataclass(slots=True)
class Preflight:
    """What the preflight of the job has said: its ranks are pods, and those of training are others."""

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
            ends = tuple(ranks if suspect == AccusedPart.LINK else ranks[:1])
            if suspect not in _MEANS or not all(rank in self._seats for rank in ends):
                continue
            del self._accused[suspect, ranks[0], ranks[1]]
            seats = [self._seats[rank] for rank in ends]
            if suspect == AccusedPart.DEVICE and percent >= 100 * SLOW_SHARE * own_speed.get(seats[0].node, 1.0):
                continue
            syndrome, part, words = _MEANS[AccusedPart(suspect)]
            shown = f"preflight: {words} {percent} % of what is usual"
            yield JobVerdict(now_s, syndrome, part, ends, now_s, 0.95, (shown,)), seats


class JobStream:
    """Present run of one job."""

    def __init__(self, job: str, incarnation: str, analysis_of: AnalysisOf = Analyser) -> None:
        """analysis_of: begins the analysis of a run."""
        self.job, self.incarnation, self._analysis_of = job, incarnation, analysis_of
        self.preflight = Preflight()
        self.seats: dict[int, RankSeat] = {}
        """Pod and node of each rank that has spoken."""
        self.refused = 0
        """Frames that were not taken and not counted yet: of a rank of another pod, or beyond what a pod may have."""
        self.records = 0
        """Records that were looked at."""
        self.progressed_s = float("-inf")
        """When the newest finished operation arrived."""
        self.checkpoint_s = float("-inf")
        """When a checkpoint was last seen under way."""
        self.saves: deque[tuple[float, float]] = deque(maxlen=16)
        """When the last checkpoints were first and last seen under way."""
        self._run = -1
        self._introduced: dict[tuple[int, int, int], np.void] = {}
        self._introduced_s = float("-inf")
        self._ranks: int | None = 0
        """Ranks that it introduces itself with; None after a change of that."""
        self._arrived: list[_Chunk] = []
        """Frames that were not looked at yet, their length, and when the last of them came."""
        self._arrived_bytes, self._arrived_s = 0, float("-inf")
        self._ranks_of: Counter[str] = Counter()
        """Ranks of each pod."""
        self._pod_number: dict[str, int] = {}
        self._seated = np.zeros(0, np.int64)
        """Number of the pod that each rank belongs to; -1 for none."""
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._analyser: Analysis | None = None
        self._lost = 0
        """Batches that it had given up at the last look."""
        self.pace = StepPace()

    @property
    def layout(self) -> Layout | None:
        """Layout of the present run; None while it is not complete."""
        return self._analyser.layout if self._analyser is not None else None

    @property
    def held_bytes(self) -> int:
        """Memory that it takes."""
        analysis = self._analyser.held_bytes if self._analyser is not None else 0
        return analysis + INTRODUCED_BYTES * len(self._introduced) + self._waiting_bytes + self._arrived_bytes

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the layout's nodes."""
        return tuple(sorted({seat.node for seat in self.seats.values()}))

    @property
    def ranks(self) -> int:
        """Ranks in the job, as it introduces itself; 0 while unknown."""
        if self._ranks is None:
            places = (int(row["step"]) for (_, kind, _), row in self._introduced.items() if kind == Kind.PLACE)
            self._ranks = max(places, default=0)
        return self._ranks

    @property
    def save_s(self) -> float:
        """How long a checkpoint holds the job up, as heartbeats show it; 0 where none was seen."""
        return float(np.median([max(end_s - began_s, LOOK_S) for began_s, end_s in self.saves])) if self.saves else 0.0

    @property
    def save_every_s(self) -> float | None:
        """Time from one checkpoint to the next; None before the second."""
        begins_s = [began_s for began_s, _ in self.saves]
        return float(np.median(np.diff(begins_s))) if len(begins_s) > 1 else None

    def take(self, pod: str, node: str, frames: bytes, now_s: float) -> None:
        """Frames of one pod, one after another; they are looked at together with those of others."""
        if is_preflight(frames):
            frames = self.preflight.take(pod, node, frames)
        self._arrived.append((pod, node, frames))
        self._arrived_bytes += len(frames)
        self._arrived_s = now_s
        if self._arrived_bytes > DIGESTED_BYTES:
            self._digest()

    def take_recorded(self, frames: bytes, now_s: float) -> None:
        """Frames of all ranks of a recorded job, whose pods are unknown: each rank counts as its own."""
        for rank, _, frame in frames_in(frames):
            self.take(f"rank-{rank}", f"rank-{rank}", frame, now_s)

    def _digest(self) -> None:
        """Looks at everything that has arrived: one look at a thousand pods costs little more than at one."""
        arrived, now_s = self._arrived, self._arrived_s
        self._arrived, self._arrived_bytes = [], 0
        joined = self._admitted(arrived)
        if not joined:
            return
        records = decoded(joined)
        kinds = records.rows["kind"]
        self.records += len(records.rows)
        about = (kinds == Kind.PLACE) | (kinds == Kind.MEMBER)
        for rank, row in zip(records.rank[about].tolist(), records.rows[about], strict=True):
            number = int(row["group"])
            key = (rank, int(row["kind"]), number)
            known = self._introduced.get(key)
            if number < MOST_GROUPS and (known is None or known.tobytes() != row.tobytes()):
                self._introduced[key] = row
                self._introduced_s, self._ranks = now_s, None
                self._analyser = None  # groups that are joined later make another layout
        done = kinds == Kind.OPERATION
        if done.any():
            self.progressed_s = now_s
            first = done & (records.rank == min(self.seats))
            self.pace.add(records.rows["step"][first].tolist(), (records.rows["at_ns"][first] * 1e-9).tolist())
        if (records.rows["phase"] == Phase.CHECKPOINT).any():
            is_new = now_s - self.checkpoint_s > SAVED_S or not self.saves
            began_s = now_s if is_new else self.saves.pop()[0]
            self.saves.append((began_s, now_s))
            self.checkpoint_s = now_s
        if self._analyser is not None:
            self._analyser.take(joined, now_s)
            return
        self._waiting.append(joined)
        self._waiting_bytes += len(joined)
        while self._waiting_bytes > MOST_WAITING_BYTES:
            self._waiting_bytes -= len(self._waiting.pop(0))

    def _admitted(self, arrived: Sequence[_Chunk]) -> bytes:
        """Frames of ranks of the present run that the pods may speak for, in the order of their arrival."""
        chunks = [frames for _, _, frames in arrived]
        at = _starts(chunks)
        if at is None:  # what follows a frame that contradicts itself is left out
            chunks = [b"".join(frame for *_, frame in frames_in(frames)) for frames in chunks]
            at = _starts(chunks)
        if at is None:
            return b""
        joined = b"".join(chunks)
        rows = np.frombuffer(joined, dtype=RECORD)
        headers = rows[at].view(HEADER)
        ends = np.cumsum([len(frames) // RECORD_BYTES for frames in chunks])
        chunk, rank = np.searchsorted(ends, at, side="right"), headers["rank"].astype(np.int64)
        run, newest = headers["incarnation"], int(headers["incarnation"].max())
        kept = (run == max(newest, self._run)) & (rank < MOST_RANKS)
        if newest > self._run:
            # The same pods began another run: its ranks and groups are new.
            self._run, self.seats, self._introduced, self._ranks = newest, {}, {}, 0
            self._ranks_of, self._pod_number, self._seated = Counter(), {}, np.zeros(0, np.int64)
            self._waiting, self._waiting_bytes, self._analyser, self.pace = [], 0, None, StepPace()
        most = int(rank[kept].max(initial=0))
        if most >= len(self._seated):
            self._seated = np.append(self._seated, np.full(2 * most + 1 - len(self._seated), -1, np.int64))
        pods = np.array([self._pod_number.setdefault(pod, len(self._pod_number)) for pod, _, _ in arrived])[chunk]
        for each in np.flatnonzero(kept & (self._seated[np.where(kept, rank, 0)] < 0)).tolist():
            pod, node, _ = arrived[chunk[each]]
            if int(rank[each]) not in self.seats and self._ranks_of[pod] < RANKS_PER_POD:
                self.seats[int(rank[each])], self._seated[rank[each]] = RankSeat(pod, node), pods[each]
                self._ranks_of[pod] += 1
        own = kept & (self._seated[np.where(kept, rank, 0)] == pods)
        self.refused += int(np.count_nonzero(~own))
        return joined if own.all() else rows[np.repeat(own, np.diff(at, append=len(rows)))].tobytes()

    def judge(self, now_s: float, facts: Sequence[Fact] = ()) -> tuple[JobVerdict, ...]:
        """New verdicts; none before the layout is complete."""
        self._digest()
        if self._analyser is None:
            self._analyser = self._begun(now_s)
        if self._analyser is None:
            return ()
        return self._analyser.judge(now_s, [fact for fact in facts if fact.rank < len(self.seats)])

    def ended(self, now_s: float) -> tuple[JobVerdict, ...]:
        """Verdicts on slow parts that are as fast as before again; each once."""
        return self._analyser.ended(now_s) if self._analyser is not None else ()

    def newly_lost(self) -> int:
        """Batches of frames that the analysis has given up unread since the last call, since it cannot keep up."""
        before, self._lost = self._lost, self._analyser.lost if self._analyser is not None else 0
        return max(self._lost - before, 0)

    def _begun(self, now_s: float) -> Analysis | None:
        """The analysis of the present run, once all ranks have introduced themselves."""
        ranks = self.ranks
        complete = ranks > 0 and len(self.seats) == ranks and max(self.seats) == ranks - 1
        if not complete or now_s - self._introduced_s < SETTLE_S:
            return None
        rows = np.array([*self._introduced.values()], dtype=RECORD)
        # Memberships of groups of which other members have not introduced themselves are left out: operations of
        # them are no help.
        is_member = rows["kind"] == Kind.MEMBER
        _, group = np.unique(np.where(is_member, rows["at_ns"], 0), return_inverse=True)
        seen = np.bincount(group[is_member], minlength=len(rows))
        known = ~(is_member & ((seen[group] != rows["step"]) | (rows["seq"] >= rows["step"])))
        if not is_member[known].any():
            return None
        rank = np.array([rank for rank, *_ in self._introduced], dtype=np.int64)
        number = {node: index for index, node in enumerate(self.nodes)}
        node = np.array([number[self.seats[each].node] for each in range(ranks)], dtype=np.int64)
        introductions = Records(rows[known], rank[known], np.zeros(0))
        analyser = self._analysis_of(layout_from(introductions, node=node, nic=np.arange(ranks, dtype=np.int64)))
        for waiting in self._waiting:
            analyser.take(waiting, now_s)
        self._waiting, self._waiting_bytes = [], 0
        return analyser


def _starts(chunks: Sequence[bytes]) -> IntArray | None:
    """Rows at which frames begin; None unless each chunk holds whole frames alone."""
    lengths = np.array([len(frames) for frames in chunks], dtype=np.int64)
    if (lengths % RECORD_BYTES).any() or not lengths.any():
        return None
    starts = (np.cumsum(lengths) - lengths)[lengths > 0] // RECORD_BYTES
    return frame_starts(b"".join(chunks), starts)


def frames_in(frames: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Rank, run and bytes of each frame; what follows a frame that contradicts itself is left out."""
    at = 0
    while at + RECORD_BYTES <= len(frames):
        magic, _, count, rank, _, _, run, _ = _HEAD.unpack_from(frames, at)
        end = at + RECORD_BYTES * (1 + count)
        if magic != MAGIC or count > FRAME_RECORDS or end > len(frames):
            return
        kinds = frames[at + RECORD_BYTES : end : RECORD_BYTES]
        if kinds and max(kinds) > LAST_KIND:
            return
        yield rank, run, frames[at:end]
        at = end


def facts_on(seats: Mapping[int, RankSeat], of_rank: Mapping[tuple[str, int], Sequence[Fact]]) -> tuple[Fact, ...]:
    """Facts about the ranks of a job, from those by pod and rank that agents report."""
    if not of_rank:
        return ()
    return tuple(fact for rank, seat in seats.items() for fact in of_rank.get((seat.pod, rank), ()))
