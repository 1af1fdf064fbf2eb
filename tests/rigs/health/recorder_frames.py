"""Frames that the recorders of a simulated job send, by clocks that are skewed, drift and step, in order of arrival."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cluster.arrays import Array, FloatArray, IntArray
from health.records.frames import HEADER, RECORD, Records
from tests.builders.frame_header import header
from tests.rigs.health.job import NUMBERS, Disturbance, DisturbanceKind, TrainingJob
from tests.rigs.health.recorded import TICK_S
from tests.rigs.health.training_steps import Timeline
from tonnage.records import MAGIC, NO_PEER, VERSION, Failure, Kind, Role

BEAT_S = 0.25
EPOCH_NS = 1_790_000_000_000_000_000


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


def introductions_of(found: Records) -> bytes:
    """Frames that introduce all ranks."""
    rows_of = {rank: found.rows[found.rank == rank] for rank in np.unique(found.rank).tolist()}
    return b"".join(header(len(rows), rank=rank, at_ns=0) + rows.tobytes() for rank, rows in rows_of.items())


@dataclass(frozen=True, slots=True, eq=False)
class RankClocks:
    """Monotonic and wall clocks of all ranks; shape (ranks,) each."""

    start_ns: IntArray
    drift: FloatArray
    wall_error_ns: IntArray
    """What network time leaves."""
    step_s: FloatArray
    """Instant when the monotonic clock jumps; infinite for most."""
    jump_ns: IntArray

    def local_ns(self, rank: IntArray, true_s: FloatArray) -> IntArray:
        ns = self.start_ns[rank] + (true_s * (1 + self.drift[rank]) * 1e9).astype(np.int64)
        return np.asarray(ns + np.where(true_s >= self.step_s[rank], self.jump_ns[rank], 0))

    @property
    def wall_minus_ns(self) -> IntArray:
        return EPOCH_NS + self.wall_error_ns - self.start_ns


def clocks_of(ranks: int, random: np.random.Generator, end_s: float, *, steps: bool) -> RankClocks:
    """Up to 50 ms apart by network time, up to 20 ppm of drift; with `steps`, one or two jump by up to 100 ms."""
    jumps = np.zeros(ranks, np.bool_)
    jumps[random.integers(ranks, size=2 * steps)] = True
    return RankClocks(
        random.integers(10**9, 10**15, ranks),
        random.uniform(-20e-6, 20e-6, ranks),
        random.integers(-50_000_000, 50_000_000, ranks),
        np.where(jumps, random.uniform(0.1, 1.0, ranks) * end_s, np.inf),
        random.integers(-100_000_000, 100_000_000, ranks),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Lives:
    """How long each rank speaks, and its error; shape (ranks,) each."""

    until_s: FloatArray
    error_s: FloatArray
    """Instant of its first error; infinite without one."""


def lives_of(job: TrainingJob, which: Disturbance, made: Timeline, random: np.random.Generator) -> Lives:
    until_s, error_s = np.full(job.ranks, np.inf), np.full(job.ranks, np.inf)
    mute = which.kind in (DisturbanceKind.FROZEN_RANK, DisturbanceKind.DEAD_RANK, DisturbanceKind.DEAD_NODE)
    if mute and np.isfinite(made.fault_s):
        until_s[list(which.ranks)] = made.fault_s
    if which.kind is DisturbanceKind.DEAD_RANK and np.isfinite(made.fault_s):
        # Instant at which each rank's operation fails: partners of the dead within 20 ms, theirs after them.
        failed = np.full(job.ranks, np.inf)
        failed[which.ranks[0]] = made.fault_s
        waits = np.flatnonzero(np.isinf(made.exit_s))
        rank, group, peer, enter_s = made.rank[waits], made.group[waits], made.peer[waits], made.enter_s[waits]
        index = np.stack(np.unravel_index(np.arange(job.ranks), job.shape))
        delay_s = random.uniform(0.002, 0.02, len(waits))
        axes = {NUMBERS[int(Role.TENSOR)]: 2, NUMBERS[int(Role.DATA)]: 1}
        for _ in range(12):
            shaped = failed.reshape(job.shape)
            first = np.full(len(waits), shaped.min())
            for number, axis in axes.items():
                group_first = np.broadcast_to(shaped.min(axis=axis, keepdims=True), job.shape).ravel()
                first = np.where(group == number, group_first[rank], first)
            sends = peer != NO_PEER
            other = job.numbers[np.where(sends, peer, 0), index[1][rank], index[2][rank]]
            first = np.where(sends, failed[other], first)
            later = np.maximum(first, enter_s) + delay_s
            better = later < failed[rank]
            if not better.any():
                break
            failed[rank[better]] = later[better]
        error_s = failed
        error_s[which.ranks[0]] = np.inf
        until_s = np.minimum(until_s, error_s + random.uniform(0.1, 1.0, job.ranks))
        if random.random() < 0.5:  # the launcher ends all others before some could report
            ended_s = made.fault_s + random.uniform(0.03, 1.0)
            until_s = np.minimum(until_s, ended_s + random.uniform(0, 0.05, job.ranks))
    return Lives(until_s, np.where(error_s <= until_s, error_s, np.inf))


def arriving_frames(
    job: TrainingJob,
    which: Disturbance,
    made: Timeline,
    clocks: RankClocks,
    random: np.random.Generator,
    until_s: float,
) -> Transcript:
    """All frames of a job that arrive until an instant."""
    lives = lives_of(job, which, made, random)
    beats = _Beats(job.ranks, random, until_s)
    done = np.flatnonzero(np.isfinite(made.exit_s))
    beat = beats.after(made.rank[done], made.exit_s[done])
    leaves_s = beats.at_s(made.rank[done], beat)
    spoken = leaves_s <= lives.until_s[made.rank[done]]
    done, beat, leaves_s = done[spoken], beat[spoken], leaves_s[spoken]
    rank = made.rank[done]
    enter_ns, exit_ns = clocks.local_ns(rank, made.enter_s[done]), clocks.local_ns(rank, made.exit_s[done])
    rows = _filled(
        Kind.OPERATION,
        len(done),
        op=made.op[done],
        group=made.group[done],
        seq=made.seq[done],
        at_ns=enter_ns,
        for_ns=np.maximum(exit_ns - enter_ns, 0),
        step=made.step[done],
        peer=made.peer[done],
        size=made.size[done],
        phase=made.phase[done],
    )
    parts = [
        Sent(rows, rank, 2 * beat, clocks.local_ns(rank, leaves_s), leaves_s + beats.delivery_s[rank]),
        _heartbeats(made, clocks, lives, beats),
    ]
    parts += [_errors(made, clocks, lives, random)] if np.isfinite(lives.error_s).any() else []
    sent = Sent(
        np.concatenate([each.rows for each in parts]),
        np.concatenate([each.rank for each in parts]),
        np.concatenate([each.frame for each in parts]),
        np.concatenate([each.local_ns for each in parts]),
        np.concatenate([each.arrival_s for each in parts]),
    )
    return transcript(sent, clocks.wall_minus_ns, job.introductions(), until_s)


class _Beats:
    """Instants of heartbeats and of their arrival."""

    def __init__(self, ranks: int, random: np.random.Generator, until_s: float) -> None:
        self.start_s = random.uniform(0, BEAT_S, ranks)
        self.delivery_s = random.uniform(0.002, 0.03, ranks)
        self.count = int(until_s / BEAT_S) + 1
        self.ranks = ranks

    def at_s(self, rank: IntArray, number: IntArray) -> FloatArray:
        return np.asarray(self.start_s[rank] + BEAT_S * number)

    def after(self, rank: IntArray, instant_s: FloatArray) -> IntArray:
        """Number of the first heartbeat at or after an instant."""
        return np.maximum(np.ceil((instant_s - self.start_s[rank]) / BEAT_S), 0).astype(np.int64)


def _filled(kind: int, count: int, **columns: Array | int) -> Array:
    rows = np.zeros(count, RECORD)
    rows["kind"], rows["peer"] = kind, NO_PEER
    for name, values in columns.items():
        rows[name] = values
    return rows


def _heartbeats(made: Timeline, clocks: RankClocks, lives: Lives, beats: _Beats) -> Sent:
    rank = np.repeat(np.arange(beats.ranks), beats.count)
    number = np.tile(np.arange(beats.count), beats.ranks)
    at_s = beats.at_s(rank, number)
    alive = at_s <= lives.until_s[rank]
    rank, number, at_s = rank[alive], number[alive], at_s[alive]
    span_s = max(float(at_s.max()), made.end_s) + 1
    newest = np.searchsorted(made.rank * span_s + made.enter_s, rank * span_s + at_s, side="right") - 1
    begun = (newest >= 0) & (made.rank[newest] == rank)
    waits = begun & (made.exit_s[newest] > at_s)
    before = newest - waits
    had = (before >= 0) & (made.rank[before] == rank)
    left_s = np.where(had, made.exit_s[before], 0.0)
    local_ns = clocks.local_ns(rank, at_s)
    idle_ns = np.maximum(at_s - np.where(np.isfinite(left_s), left_s, at_s), 0) * 1e9
    following = np.minimum(newest + 1, len(made.rank) - 1)
    phase = np.where(~waits & (made.rank[following] == rank), made.phase[following], 0)
    beat = _filled(
        Kind.BEAT, len(rank), group=waits, seq=number, at_ns=local_ns, for_ns=idle_ns.astype(np.int64), phase=phase
    )
    op = newest[waits]
    flying = _filled(
        Kind.IN_FLIGHT,
        len(op),
        op=made.op[op],
        group=made.group[op],
        seq=made.seq[op],
        at_ns=clocks.local_ns(rank[waits], made.enter_s[op]),
        for_ns=((at_s[waits] - made.enter_s[op]) * 1e9).astype(np.int64),
        step=made.step[op],
        peer=made.peer[op],
        size=made.size[op],
    )
    arrival_s = at_s + beats.delivery_s[rank]
    return Sent(
        np.concatenate([beat, flying]),
        np.concatenate([rank, rank[waits]]),
        np.concatenate([2 * number + 1, 2 * number[waits] + 1]),
        np.concatenate([local_ns, local_ns[waits]]),
        np.concatenate([arrival_s, arrival_s[waits]]),
    )


def _errors(made: Timeline, clocks: RankClocks, lives: Lives, random: np.random.Generator) -> Sent:
    """First errors; each leaves at once in a frame of its own."""
    waits = np.flatnonzero(np.isinf(made.exit_s) & np.isfinite(lives.error_s[made.rank]))
    rank = made.rank[waits]
    error_s = lives.error_s[rank]
    rows = _filled(
        Kind.ERROR,
        len(waits),
        op=made.op[waits],
        group=made.group[waits],
        seq=made.seq[waits],
        at_ns=clocks.local_ns(rank, error_s),
        peer=made.peer[waits],
        size=int(Failure.CONNECTION),
    )
    frame = 2 * np.ceil(error_s / BEAT_S).astype(np.int64) + 100_001  # a number of its own
    return Sent(rows, rank, frame, clocks.local_ns(rank, error_s), error_s + random.uniform(0.002, 0.03, len(rank)))
