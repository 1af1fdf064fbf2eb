"""Stack samples of ranks that stand still: where each is, and which of them only waits for another."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from cluster.arrays import Array, IntArray
from tonnage.records import STACK_BYTES, STACK_PIECES

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
                self.of_rank[by] = Stack(now_s, _frames(b"".join(pieces[each] for each in range(count))))
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


def _frames(text: bytes) -> tuple[str, ...]:
    lines = text.rstrip(b"\0").decode("ascii", "replace").split("\n")
    return tuple(_STRANGE.sub("?", line) for line in lines if line)
