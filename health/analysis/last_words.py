"""Last words of a job that stops: who ended without one, and where ranks say that they stand."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from cluster.arrays import Array, BoolArray, FloatArray, IntArray
from health.records.layout import Layout
from tonnage.records import STACK_BYTES, STACK_PIECES, Failure

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
    lines = []
    for each in rarest:
        who = f"rank {each[0]}" if len(each) == 1 else f"{len(each)} ranks, {each[0]} among them,"
        frames = stacks[each[0]].frames[:SHOWN_FRAMES]
        lines.append(f"{_WORD}{who} in {' < '.join(frame[:_LONGEST] for frame in frames)}")
    return tuple(lines)


def is_stack(line: str) -> bool:
    """Whether a line of evidence is a stack, which the job wrote: it belongs in the incident and in no log."""
    return line.startswith(_WORD)
