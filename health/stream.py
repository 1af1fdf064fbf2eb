"""Analyser: frames of one job in, verdicts out, as they come."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import Array, FloatArray, IntArray
from cluster.frame import Buffer
from health.analysis.excess import TIERS, Baseline, Pulse, Tier, baseline_of
from health.analysis.last_words import Errors, Stacks, lost
from health.analysis.matching import Finished, Matcher, StepSums
from health.records.frames import decoded
from health.records.layout import Layout
from health.verdicts import slow_paths, slow_ranks, stopped
from health.verdicts.verdict import OWN_LIMITS, SLOW, Cause, Fact, JobVerdict, Part, Syndrome, expected_speed
from tonnage.records import Kind, Op, Phase, Times

ALIGN_S, ALIGN_STEPS = 5.0, 6
"""Pause between two alignments of clocks, and steps that each needs: either rank of a pair must have been last now and
then."""
FIRST_ALIGNED = 3
"""Alignments that follow each other after ALIGN_STEPS alone, so that a young job's sends can be measured soon."""
BASELINE_STEPS = 16
"""Steps of the first baseline; it is renewed with more steps while nothing stands out."""
SETTLED_STEPS, SETTLED_POINT_STEPS = 1, 2
"""Steps for which a slow part must be found again before it is named; a NIC first shows on its busiest path alone, so a
link or a group must stand longer."""
QUIET_S = 60.0
"""Time without a disturbance after which the same one is a new one."""
REPEAT_S = 120.0
"""Time after which a verdict that still stands is repeated: whoever tolerates a slow part must know that it lasts."""
ENDED_STEPS, ENDED_S = 56, 10.0
"""Steps, and time, without a sign of a slow part after which it is as fast as before: twice the longest window."""
_UNMARKED_S = 0.3
_PLACE_BYTES, _SUM_BYTES = 140, 3_600
"""Memory of the analysis for each place of a rank on a path, and for each rank and span: the last steps' sums with the
copies that a look at them takes. Measured: 20 MB at most with 1,024 ranks in 18,432 places and 3,905 spans."""


@dataclass(frozen=True, slots=True)
class Options:
    """Features that can be taken out, to see what each is good for."""

    tiers: tuple[Tier, ...] = TIERS
    points: bool = True
    causes: bool = True
    peels: bool = True
    """Whether what stands out beside a slow rank is looked at, too."""
    peers: bool = True
    """Whether ranks are compared with others of the same stage and groups."""
    loads: bool = True
    """Whether computing and transfers that grow with the bytes that a rank takes are the data's."""


def bytes_for(layout: Layout) -> int:
    """Memory that the analysis of a job takes, without records that wait: that of its ranks, spans and places."""
    sums, places = layout.ranks + len(layout.span_path), len(layout.members)
    return _SUM_BYTES * sums + _PLACE_BYTES * places + layout.group_of.nbytes + layout.index_of.nbytes


HOT = 1.5
"""Bytes of the rank that takes most over the median rank's from which they are told: two doublings of experts' use."""
_NEEDS_DEVICE_TIME = JobVerdict(
    0.0,
    Syndrome.NONE,
    Part.NOTHING,
    (),
    0.0,
    0.5,
    ("steps are longer than before; hosts queue ahead of their devices: hangs and deaths alone are told",),
    Cause.NO_DEVICE_TIME,
)


class Analyser:
    """State of the analysis of one incarnation of one job."""

    def __init__(self, layout: Layout, options: Options | None = None) -> None:
        self.layout, self._options = layout, options or Options()
        self._layout_bytes = bytes_for(layout)
        self.lost = 0
        """Batches of frames that were given up unread: none, since it keeps up."""
        self._matcher = Matcher(layout)
        self._sums = StepSums(layout.ranks, layout.span)
        self._pulse = Pulse(layout)
        self._errors = Errors()
        self._stacks = Stacks()
        self._reported = np.zeros(len(layout.members), np.int64)
        """Sequence number of the last finished operation of each member of each path."""
        self._origin_ns: int | None = None
        self._local_ns = np.zeros(layout.ranks, np.int64)
        """Origin of all seconds by each rank's own clock, as its wall clock has it."""
        self._known = np.zeros(layout.ranks, np.bool_)
        self._left_s = np.full(layout.ranks, np.nan)
        """Last exit of each rank."""
        self._aligned, self._aligned_s, self._aligned_step = 0, -np.inf, -1
        self._first_step: int | None = None
        self._baseline: Baseline | None = None
        self._renewed_step = -1
        self._judged_step = -1
        self._suspected: dict[object, tuple[int, int]] = {}
        self._heard_s: dict[object, float] = {}
        self._repeated_s: dict[object, float] = {}
        self._marked: dict[int, float] = {}
        self._blamed: dict[Syndrome, set[int]] = {}
        self._standing: dict[object, tuple[JobVerdict, int, float]] = {}
        """Slow parts that are blamed, with the step and the instant at which each last showed."""
        self._stopped = False

    @property
    def held_bytes(self) -> int:
        """Memory that it takes."""
        return self._layout_bytes + self._matcher.pending_bytes

    def take(self, frames: Buffer, now_s: float) -> None:
        """Frames that arrived by `now_s`, the analyser's clock."""
        records = decoded(frames)
        self._meet(records.headers)
        known = (records.rank < self.layout.ranks) & self._known[np.minimum(records.rank, self.layout.ranks - 1)]
        rows, rank = records.rows, records.rank
        if not known.all():
            rows, rank = rows[known], rank[known]
        at_s = np.asarray((rows["at_ns"] - self._local_ns[rank]) * 1e-9, np.float64)
        kind = rows["kind"]
        self._operations(rows, rank, at_s, np.flatnonzero(kind == Kind.OPERATION), now_s)
        beats = (kind == Kind.BEAT) | (kind == Kind.IN_FLIGHT)
        path, index = self.layout.located(rank[beats], rows[beats])
        seq = self._unwrapped(self.layout.slots(path, index), rows["seq"][beats])
        self._pulse.beat(rows[beats], rank[beats], path, index, seq, now_s)
        failed = kind == Kind.ERROR
        if failed.any():
            path, _ = self.layout.located(rank[failed], rows[failed])
            self._errors.add(rank[failed], path, at_s[failed], rows["size"][failed])
        self._pulse.ended[rank[kind == Kind.END]] = True
        sampled = kind == Kind.STACK
        if sampled.any():
            self._stacks.take(rows[sampled], rank[sampled], now_s)

    def _meet(self, headers: Array) -> None:
        """Puts the clocks of ranks that speak for the first time beside those of the others, by their wall clocks.

        Those need not agree to better than a step: a send and the send back bear the same difference, once each way.
        """
        if not len(headers):
            return
        rank = headers["rank"].astype(np.int64)
        fresh = rank < self.layout.ranks
        fresh[fresh] = ~self._known[rank[fresh]]
        if not fresh.any():
            return
        new, first = np.unique(rank[fresh], return_index=True)
        at_ns = headers["at_ns"][fresh][first]
        wall_ns = at_ns + headers["wall_minus_ns"][fresh][first]
        self._origin_ns = int(wall_ns[0]) if self._origin_ns is None else self._origin_ns
        self._known[new], self._local_ns[new] = True, at_ns - (wall_ns - self._origin_ns)

    def _operations(self, rows: Array, rank: IntArray, at_s: FloatArray, chosen: IntArray, now_s: float) -> None:
        """chosen: places of the finished operations among all records."""
        if not len(chosen):
            return
        by = rank[chosen]
        order = chosen[np.argsort(by.astype(np.uint16) if self.layout.ranks < 1 << 16 else by, kind="stable")]
        rows, rank, enter_s = rows[order], rank[order], at_s[order]
        exit_s = enter_s + rows["for_ns"] * 1e-9
        path, index = self.layout.located(rank, rows)
        step = rows["step"].astype(np.int64)
        gap_s = self._gaps(rank, enter_s, exit_s)
        phase = rows["phase"]
        long = np.flatnonzero((phase != Phase.COMPUTE) & (gap_s > _UNMARKED_S))
        for number in np.unique(phase[long]).tolist():
            at = long[phase[long] == number][0]
            self._marked[number] = float(enter_s[at])
        gap_s = np.where(phase == Phase.COMPUTE, gap_s, 0.0)
        self._sums.add_compute(rank, step, gap_s, enter_s)
        uneven = (rows["op"] == Op.ALL_TO_ALL) & (path >= 0)
        if self._options.loads and uneven.any():
            self._sums.add_taken(rank[uneven], step[uneven], path[uneven], rows["size"][uneven].astype(np.int64))
        slot = self.layout.slots(path, index)
        seq = self._unwrapped(slot, rows["seq"])
        fresh = (path >= 0) & (seq > self._reported[slot])  # frames may come twice
        done = Finished(path, seq, index, rank, step, enter_s, exit_s)
        if not fresh.all():
            done, slot = done[fresh], slot[fresh]
        np.maximum.at(self._reported, slot, done.seq)
        self._pulse.progressed(slot, done.seq, now_s)
        matched = self._matcher.match(done)
        self._sums.add_transfers(matched)
        self._pulse.learn_gaps(gap_s)
        self._pulse.learn_transfers(matched.path, matched.transfer_s)

    def _unwrapped(self, slot: IntArray, seq: Array) -> IntArray:
        """Sequence numbers without the wrap of their 32 bits, from the last one reported at the same place."""
        ahead = (seq.astype(np.int64) - self._reported[slot] + (1 << 31)) % (1 << 32) - (1 << 31)
        return np.asarray(self._reported[slot] + ahead)

    def _gaps(self, rank: IntArray, enter_s: FloatArray, exit_s: FloatArray) -> FloatArray:
        """Time from each operation's predecessor on its rank to its enter; free of clock differences."""
        before = np.empty_like(exit_s)
        before[1:] = exit_s[:-1]
        first = np.flatnonzero(np.diff(rank, prepend=-1))
        before[first] = self._left_s[rank[first]]
        last = np.append(first[1:], len(rank)) - 1
        self._left_s[rank[last]] = exit_s[last]
        gap_s = enter_s - before
        return np.where(gap_s > 0, gap_s, 0.0)

    def judge(self, now_s: float, facts: Sequence[Fact] = ()) -> tuple[JobVerdict, ...]:
        """Verdicts that are new at this instant."""
        pause_s, complete = 0.0 if self._aligned < FIRST_ALIGNED else ALIGN_S, self._sums.complete
        if now_s - self._aligned_s >= pause_s and complete - self._aligned_step >= ALIGN_STEPS:
            self._matcher.align()
            self._aligned, self._aligned_s, self._aligned_step = self._aligned + 1, now_s, complete
        found = list(self._on_stop(now_s, facts))
        if not self._stopped:
            found += self._on_pace(now_s, facts)
            for number, since_s in self._marked.items():
                cause = stopped.PHASE_CAUSES.get(number)
                if cause is not None:
                    shown = ("marked by the job",)
                    found.append(JobVerdict(now_s, Syndrome.NONE, Part.NOTHING, (), since_s, 0.9, shown, cause))
            self._marked.clear()
        for verdict in found:
            if verdict.blames and verdict.syndrome in SLOW:
                self._standing[verdict.subject] = (verdict, self._judged_step, now_s)
        if not self._options.causes:
            found = [verdict for verdict in found if verdict.cause is None]
        # What is new again anyway is forgotten: each set of ranks is a subject of its own, and may be large.
        for subject in [each for each, heard_s in self._heard_s.items() if now_s - heard_s > QUIET_S]:
            del self._heard_s[subject]
            self._repeated_s.pop(subject, None)
        for subject in [each for each, (_, last) in self._suspected.items() if last < self._judged_step - 2]:
            del self._suspected[subject]
        return tuple(verdict for verdict in found if self._is_news(verdict, now_s))

    def ended(self, now_s: float) -> tuple[JobVerdict, ...]:
        """Verdicts on slow parts that have shown no sign of it for a while, although the job goes on; each once."""
        over = [
            verdict
            for verdict, step, heard_s in self._standing.values()
            if self._judged_step - step >= ENDED_STEPS and now_s - heard_s >= ENDED_S
        ]
        for verdict in over:
            for known in (self._standing, self._heard_s, self._repeated_s):
                known.pop(verdict.subject, None)
            self._blamed.get(verdict.syndrome, set()).difference_update(verdict.ranks)
        return tuple(over)

    def _is_news(self, verdict: JobVerdict, now_s: float) -> bool:
        """Whether the verdict is new, or stands long enough to be repeated, and is no doubt about what is blamed."""
        heard_s = self._heard_s.get(verdict.subject, -np.inf)
        self._heard_s[verdict.subject] = now_s
        due = verdict.blames and now_s - self._repeated_s.get(verdict.subject, -np.inf) >= REPEAT_S
        if not due and now_s - heard_s <= QUIET_S:
            return False
        self._repeated_s[verdict.subject] = now_s
        if verdict.blames:
            self._blamed.setdefault(verdict.syndrome, set()).update(verdict.ranks)
        return not (verdict.abstains and self._blamed.get(verdict.syndrome, set()) & set(verdict.ranks))

    def _on_stop(self, now_s: float, facts: Sequence[Fact]) -> Iterator[JobVerdict]:
        died = lost(self._errors, self.layout, self._pulse.silent_s(now_s), self._pulse.ended)
        if died is not None and not self._stopped:
            self._stopped = True
            yield stopped.on_death(died, self.layout, facts, now_s)
        if self._errors.first is not None or self._stopped:
            return
        hang = stopped.on_hang(self._pulse, self.layout, facts, now_s, self._stacks, causes=self._options.causes)
        if hang is not None:
            yield hang

    def _on_pace(self, now_s: float, facts: Sequence[Fact]) -> list[JobVerdict]:
        """Verdicts on slow ranks and paths, once for each step that all ranks have left behind."""
        complete = self._sums.complete
        if complete <= self._judged_step:
            return []
        baseline = self._first_baseline(complete)
        if baseline is None:
            return []
        self._judged_step = complete
        longest = max(tier.steps for tier in self._options.tiers)
        if self.layout.times is Times.QUEUED:
            verdicts = [each for each in (self._slower(complete, baseline, now_s),) if each is not None]
        else:
            first = max(self._sums.oldest(), complete - longest + 1)
            compute_s, transfer_s = self._sums.compute_s(first, complete), self._sums.transfer_s(first, complete)
            verdicts = list(self._slow(compute_s, transfer_s, baseline, now_s, facts))
        clock = "device" if self.layout.times is Times.DEVICE else "host"
        verdicts = [replace(verdict, signals=f"times on the {clock}") for verdict in verdicts]
        quiet = all(verdict.syndrome is Syndrome.NONE for verdict in verdicts)
        if quiet and complete - self._renewed_step >= longest and self._first_step is not None:
            # The baseline widens, without the newest steps: they may hide a beginning.
            first = max(self._sums.oldest(), self._first_step)
            renewed = self._baseline_of(first, complete - longest // 2)
            self._baseline, self._renewed_step = renewed or baseline, complete
        return [verdict for verdict in verdicts if self._has_settled(verdict, complete)]

    def _slower(self, complete: int, baseline: Baseline, now_s: float) -> JobVerdict | None:
        """That steps are longer than before, of a job whose hosts queue ahead: their times tell no more."""
        for tier in self._options.tiers:
            length_s = self._sums.length_s(complete - tier.steps, complete)
            is_known = complete - tier.steps >= self._sums.oldest()
            if is_known and length_s >= (1 + tier.least_share) * baseline.length_s:
                return replace(_NEEDS_DEVICE_TIME, at_s=now_s, since_s=now_s - tier.steps * length_s)
        return None

    def _first_baseline(self, complete: int) -> Baseline | None:
        """The baseline, made once there are steps for it, after two alignments of clocks: sends need them."""
        if self._first_step is None:
            if complete >= 2 and self._aligned >= 2:
                self._first_step = complete + 1
            return None
        if self._baseline is None and complete - self._first_step + 1 >= BASELINE_STEPS:
            self._baseline = self._baseline_of(self._first_step, complete)
            self._renewed_step = complete
        return self._baseline

    def _baseline_of(self, first: int, last: int) -> Baseline | None:
        return baseline_of(self._sums, self.layout, first, last, peers=self._options.peers)

    def _slow(
        self, compute_s: FloatArray, transfer_s: FloatArray, baseline: Baseline, now_s: float, facts: Sequence[Fact]
    ) -> Iterator[JobVerdict]:
        """Verdicts on what is slower than before in these steps, or why it is slower without a fault."""
        layout, options = self.layout, self._options
        since_s = now_s - len(compute_s) * baseline.length_s
        speed = expected_speed(facts, layout.ranks, now_s)
        slow: list[int] = []
        while len(slow) < layout.ranks:
            ranks, standing = slow_ranks.slow_ranks(compute_s, baseline, speed, layout, options.tiers, slow)
            if standing is None:
                break
            slow += ranks.tolist()
            since_s = now_s - standing.tier.steps * baseline.length_s
            found = list(
                slow_ranks.blamed(
                    ranks, standing, layout, now_s, since_s, causes=options.causes, behind=baseline.behind
                )
            )
            yield from found
            if not options.peels or not all(each.part is Part.RANK for each in found):
                break  # what stands out beside an imbalance, or a node, may be more of it
        spans = slow_paths.slow_spans(transfer_s, baseline, layout, options.tiers, np.array(slow, np.int64))
        if spans is not None:
            since_s = now_s - spans.tier.steps * baseline.length_s
            yield slow_paths.named(spans, layout, now_s, since_s, points=options.points)
        load = self._sums.load(self._judged_step - len(compute_s) + 1, self._judged_step)
        if options.causes and len(compute_s) >= options.tiers[-1].steps and load.max(axis=1).mean() >= HOT:
            hot = int(load.mean(axis=0).argmax())
            shown = (f"rank {hot} takes {load[:, hot].mean():.1f} times the bytes of the median rank",)
            yield JobVerdict(
                now_s, Syndrome.NONE, Part.NOTHING, (), since_s, 0.9, shown, Cause.DATA_IMBALANCE, signals="bytes"
            )
        if not options.causes or slow:
            return
        limits: list[Cause | None] = [None] * layout.ranks
        for fact in facts:
            if fact.kind in OWN_LIMITS:
                limits[fact.rank] = OWN_LIMITS[fact.kind]
        for cause, capped in slow_ranks.capped(compute_s, baseline, speed, options.tiers[-1], limits):
            shown = ("slower by what our own limit explains",)
            yield JobVerdict(now_s, Syndrome.NONE, Part.NOTHING, tuple(capped.tolist()), since_s, 0.95, shown, cause)
        for cause, note in slow_ranks.imbalances(compute_s, baseline, layout, options.tiers[-1]):
            yield JobVerdict(now_s, Syndrome.NONE, Part.NOTHING, (), since_s, 0.9, (note,), cause)

    def _has_settled(self, verdict: JobVerdict, complete: int) -> bool:
        """Whether the same subject was found some steps before: a location sharpens while it is watched."""
        first, last = self._suspected.get(verdict.subject, (complete, complete))
        first = complete if last < complete - 2 else first
        self._suspected[verdict.subject] = (first, complete)
        needed = SETTLED_POINT_STEPS if verdict.part in (Part.LINK, Part.GROUP, Part.NOTHING) else SETTLED_STEPS
        return verdict.syndrome is Syndrome.NONE or complete - first >= needed
