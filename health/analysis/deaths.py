"""Deaths: the rank that was lost, from its peers' errors and from its silence."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from health.records.layout import Layout
from tonnage.records import Failure

SILENT_S = 0.55
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
    votes[~_quiet(errors, silent_s, ended)] = 0
    most = int(votes.max(initial=0))
    if not most:
        return None
    named = np.flatnonzero(votes == most)
    named = named[silent_s[named] > silent_s[named].max() - 0.3]
    ranks: list[int] = named.tolist()
    if len(set(layout.node[named].tolist())) > 1 and first.path >= 0:
        ranks = _next_to(first.rank, layout.ranks_on(first.path).tolist(), ranks, layout) or ranks
    return Lost(tuple(ranks), first.at_s, most, own_error=False)


def _next_to(rank: int, members: list[int], named: list[int], layout: Layout) -> list[int]:
    """Those of the named ranks that share a node with a neighbour of this rank in the group's ring.

    Along a ring the neighbours of a dead rank fail first, and their own neighbours after them. None where neighbours on
    several nodes are named, or none is.
    """
    at = members.index(rank) if rank in members else 0
    beside = {members[at - 1], members[(at + 1) % len(members)]} & set(named)
    nodes = {int(layout.node[each]) for each in beside}
    return [each for each in named if int(layout.node[each]) in nodes] if len(nodes) == 1 else []


def _quiet(errors: Errors, silent_s: FloatArray, ended: BoolArray) -> BoolArray:
    quiet = (silent_s > SILENT_S) & ~ended
    quiet[list(errors.ranks)] = False
    return quiet
