"""Wait-for graph: the ranks and paths on which a job that stands still waits in the end."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from cluster.arrays import Array, BoolArray, FloatArray, IntArray
from health.analysis.excess import Pulse, Waiting
from health.records.layout import Layout
from health.verdicts.standstill import CallState, GroupPath, RecordedCall, Standstill
from health.verdicts.verdict import Cause
from tonnage.records import STACK_BYTES, STACK_PIECES, Failure, Op

LEAST_S = 3.0
"""Age from which a wait counts as a hang: above the stalls of data loading, within the goal of 5 s with heartbeats
four times a second."""
START_S = 120.0
"""The same while a job starts: ranks load weights and compile for unlike times before they meet."""
_FIRST, _MANY = 32, 1_000
"""Operations of a group that count as its start, unless some group of the job has had many."""
_TYPICAL = 5.0
"""Multiple of the job's own 99th percentile that a wait must exceed too."""
_OLD_S = 1.0
"""Age of a wait that takes part in the graph."""
SILENT_S = 2.5
"""Silence from which a rank counts as stopped: ten heartbeats. It may have left what the last of them named."""
BLIND = 0.5
"""Share of silent ranks above which the records, not the job, are what stopped."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Ranks that the others wait for, and that wait for none."""

    ranks: tuple[int, ...]
    waiting: int
    """Ranks that wait for them, directly or behind others."""
    since_s: float
    silent: bool
    """Whether their heartbeats stopped as well."""
    phase: int


@dataclass(frozen=True, slots=True)
class Stuck:
    """Operation that all its members entered and that does not end."""

    path: int
    waiting: int
    since_s: float


@dataclass(frozen=True, slots=True)
class Differs:
    """Ranks whose calls differ from those of the others: the program's mistake."""

    ranks: tuple[int, ...]
    cause: Cause
    since_s: float


_ALIKE = (Op.ALL_REDUCE, Op.BROADCAST, Op.REDUCE)
"""Operations whose size is the same on all members."""


def stands_still(pulse: Pulse, layout: Layout, now_s: float) -> Absent | Stuck | Differs | None:
    """Cause of the oldest waits; None while the job makes progress or while the cause is too young to tell."""
    waits = pulse.waiting(now_s)
    if not len(waits.rank) or waits.age_s.max() < _least_s(waits, pulse):
        return None
    old = np.flatnonzero(waits.age_s >= _OLD_S)
    silent = np.flatnonzero(pulse.silent_s(now_s) > SILENT_S)
    if len(silent):
        ready = len(silent) <= BLIND * layout.ranks
        return _longest_absent(silent.tolist(), pulse, len(set(waits.rank[old].tolist())), now_s) if ready else None
    still = Standstill(_calls(pulse, layout, waits, old, now_s))
    for cause, ranks, _ in still.differing():
        return Differs(ranks, cause, now_s - float(waits.age_s[old].max()))
    waiting = len(set(waits.rank[old].tolist()))
    in_operation = pulse.in_operation()
    absent = [rank for rank in sorted(still.absent) if not in_operation[rank]]
    if still.stuck is not None:
        path, since_s = int(still.stuck.path.group), still.complete_s(still.stuck)
        if now_s - since_s >= max(LEAST_S, _TYPICAL * pulse.lately_s(path)):
            return Stuck(path, len(set(waits.rank.tolist())), since_s)
    if absent:
        return _longest_absent(absent, pulse, waiting, now_s)
    since_s = now_s - float(waits.age_s[old].max())
    is_circle = still.blockers and still.stuck is None and now_s - since_s > 2 * LEAST_S
    return Differs(tuple(sorted(still.blockers)), Cause.CALL_ORDER, since_s) if is_circle else None


def _calls(pulse: Pulse, layout: Layout, waits: Waiting, old: IntArray, now_s: float) -> Iterator[RecordedCall]:
    """On the paths of old waits: what each rank entered last, and what it is in."""
    of: dict[int, GroupPath] = {}
    for number in np.unique(waits.path[old]).tolist():
        slots = slice(layout.starts[number], layout.starts[number + 1])
        is_send = number >= len(layout.groups)
        path = of[number] = GroupPath(str(number), tuple(layout.members[slots].tolist()), is_send)
        entered, at_s = pulse.entered[slots].tolist(), pulse.advanced_s[slots].tolist()
        for rank, seq, since_s in zip(path.members, entered, at_s, strict=True):
            yield RecordedCall(rank, path, seq, state=CallState.DONE, created_s=since_s)
    rows = zip(
        *(column.tolist() for column in (waits.rank, waits.path, waits.seq, waits.op, waits.size, waits.age_s)),
        strict=True,
    )
    for rank, number, seq, op, size, age_s in rows:
        if number in of:
            kind = Op.SEND if op == Op.RECEIVE else Op(op)  # two ends of one operation
            state = CallState.BEGUN if age_s >= _OLD_S else CallState.DONE
            elements = size if op in _ALIKE else -1
            yield RecordedCall(rank, of[number], seq, kind.name, elements, "", state, now_s - age_s)


def _least_s(waits: Waiting, pulse: Pulse) -> float:
    """Age from which the oldest wait counts, by how far its group has come."""
    starts = waits.seq[waits.age_s.argmax()] <= _FIRST and pulse.entered.max() < _MANY
    return START_S if starts else LEAST_S


def _longest_absent(absent: list[int], pulse: Pulse, waiting: int, now_s: float) -> Absent | None:
    limit_s = max(LEAST_S, _TYPICAL * pulse.typical_gap_s)
    silent_s = pulse.silent_s(now_s)
    idle_s: FloatArray = pulse.idle_s + silent_s
    ripe = [rank for rank in absent if idle_s[rank] > limit_s or silent_s[rank] > SILENT_S]
    if len(ripe) < len(absent):  # the youngest may be what the others wait for
        return None
    longest = max(ripe, key=lambda rank: idle_s[rank])
    silent = bool(silent_s[longest] > _OLD_S)
    return Absent(tuple(ripe), waiting, now_s - float(idle_s[longest]), silent, int(pulse.phase[longest]))


DEAD_SILENT_S = 0.55
"""Two heartbeats and a delivery: a rank that lives has been heard of by then."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Rank that ended without a word."""

    ranks: tuple[int, ...]
    since_s: float
    """Aligned instant of the first error."""
    errors: int
    """Operations with it that failed."""
    own_error: bool
    """Whether it reported an exception of its own before."""


@dataclass(frozen=True, slots=True)
class FirstError:
    """The earliest error of a job."""

    rank: int
    path: int
    """-1 for none that is known."""
    at_s: float
    failure: int


@dataclass(slots=True)
class Errors:
    """What is kept of a job's errors: in a large group every rank reports one, and a job may repeat its own."""

    first: FirstError | None = None
    ranks: set[int] = field(default_factory=set)
    """Ranks that reported one."""
    on_path: Counter[int] = field(default_factory=Counter)
    """How many there were on each path."""

    def add(self, rank: IntArray, path: IntArray, at_s: FloatArray, failure: IntArray) -> None:
        """Shape (errors,) each, one at least."""
        at = int(np.argmin(at_s))
        if self.first is None or at_s[at] < self.first.at_s:
            self.first = FirstError(int(rank[at]), int(path[at]), float(at_s[at]), int(failure[at]))
        self.ranks.update(rank.tolist())
        self.on_path.update(path[path >= 0].tolist())


def lost(errors: Errors, layout: Layout, silent_s: FloatArray, ended: BoolArray) -> Lost | None:
    """The silent rank in most operations that failed; None while it may still speak.

    The first error tells whether the program failed or a connection. Of ranks on several nodes that fell silent
    together it also tells which: a launcher ends ranks that live while errors still spread. Else it tells no more: in
    36 deaths of 8 to 512 ranks the errors of its first 30 ms named the same one as all of them.
    """
    first = errors.first
    if first is None:
        return None
    if first.failure == Failure.OWN:
        return Lost((first.rank,), first.at_s, 1, own_error=True)
    votes = np.zeros(layout.ranks, np.int64)
    for path, count in errors.on_path.items():
        votes[layout.ranks_on(path)] += count
    quiet = (silent_s > DEAD_SILENT_S) & ~ended
    quiet[list(errors.ranks)] = False
    votes[~quiet] = 0
    most = int(votes.max(initial=0))
    if not most:
        return None
    named = np.flatnonzero(votes == most)
    named = named[silent_s[named] > silent_s[named].max() - 0.3]
    ranks: list[int] = named.tolist()
    if len(set(layout.node[named].tolist())) > 1 and first.path >= 0:
        # Along a ring the neighbours of a dead rank fail first, and their own neighbours after them.
        members = layout.ranks_on(first.path).tolist()
        at = members.index(first.rank) if first.rank in members else 0
        beside = {members[at - 1], members[(at + 1) % len(members)]} & set(ranks)
        nodes = {int(layout.node[each]) for each in beside}
        if len(nodes) == 1:
            ranks = [each for each in ranks if int(layout.node[each]) in nodes]
    return Lost(tuple(ranks), first.at_s, most, own_error=False)


SHOWN_FRAMES = 3
SHOWN_PLACES = 3
"""Different places that a verdict names, those of the fewest ranks first."""
_WORD = "stack: "
_STRANGE = re.compile(r"[^A-Za-z0-9_./:<>\- ]")
_LINE = re.compile(r":\d+ ")
_LONGEST = 72
"""Characters of one frame that are shown."""
_WAITS = ("distributed/", "c10d", "rendezvous", "multiprocessing/")
"""Parts of files whose code waits for other processes: torch's collectives and stores, and what they are built on."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One sample of one rank. A job writes it, so nothing but the job's own case may rest on it."""

    at_s: float
    """Arrival, the analyser's clock."""
    frames: tuple[str, ...]
    """`folder/file.py:line function`, the innermost first; other characters than those of names are replaced."""

    @property
    def place(self) -> tuple[str, ...]:
        """What makes two stacks the same: files and functions, without lines."""
        return tuple(_LINE.sub(" ", frame) for frame in self.frames)

    @property
    def waits_for_others(self) -> bool:
        """Whether its innermost frames are in code that waits for other processes."""
        return any(part in frame for frame in self.frames[:SHOWN_FRAMES] for part in _WAITS)


@dataclass(slots=True)
class Stacks:
    """Newest sample of each rank."""

    of_rank: dict[int, Stack] = field(default_factory=dict)
    _pieces: dict[int, tuple[int, dict[int, bytes]]] = field(default_factory=dict)

    def take(self, rows: Array, rank: IntArray, now_s: float) -> None:
        """Records of kind STACK, in any order; a sample counts once all of its pieces are there."""
        text = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)[:, -STACK_BYTES:]
        for row, piece, by in zip(rows, text, rank.tolist(), strict=True):
            number, count, sample = int(row["op"]), int(row["group"]), int(row["seq"])
            if not number < count <= STACK_PIECES:
                continue
            known, pieces = self._pieces.get(by, (-1, {}))
            if sample != known:
                pieces = {}
                self._pieces[by] = (sample, pieces)
            pieces[number] = piece.tobytes()
            if len(pieces) == count:
                sampled = b"".join(pieces[each] for each in range(count)).rstrip(b"\0")
                lines = sampled.decode("ascii", "replace").split("\n")
                self.of_rank[by] = Stack(now_s, tuple(_STRANGE.sub("?", line) for line in lines if line))
                del self._pieces[by]

    def since(self, since_s: float) -> dict[int, Stack]:
        """Samples that arrived at this instant or later."""
        return {rank: stack for rank, stack in self.of_rank.items() if stack.at_s >= since_s}


def idle_alone(ranks: Iterable[int], stacks: Mapping[int, Stack]) -> int | None:
    """The one rank among these that waits for no other process, where the stacks of all of them are known."""
    found = list(ranks)
    if not all(rank in stacks and stacks[rank].frames for rank in found):
        return None
    idle = [rank for rank in found if not stacks[rank].waits_for_others]
    return idle[0] if len(idle) == 1 else None


def shown(stacks: Mapping[int, Stack]) -> tuple[str, ...]:
    """Lines for people: the places that ranks stand at, the rarest first, for there the cause is."""
    ranks: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, stack in sorted(stacks.items()):
        if stack.frames:
            ranks[stack.place].append(rank)
    rarest = sorted(ranks.values(), key=lambda each: (len(each), each))[:SHOWN_PLACES]
    return tuple(_line(each, stacks[each[0]]) for each in rarest)


def is_stack(line: str) -> bool:
    """Whether a line of evidence is a stack, which the job wrote: it belongs in the incident and in no log."""
    return line.startswith(_WORD)


def _line(ranks: list[int], stack: Stack) -> str:
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks, {ranks[0]} among them,"
    return f"{_WORD}{who} in {' < '.join(frame[:_LONGEST] for frame in stack.frames[:SHOWN_FRAMES])}"
