"""Deaths: the rank that was lost, from its peers' errors and from its silence."""

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


@dataclass(slots=True)
class Errors:
    """Errors of a job, and the ranks that ended."""

    rank: list[int] = field(default_factory=list)
    path: list[int] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    failure: list[int] = field(default_factory=list)

    def add(self, rank: IntArray, path: IntArray, at_s: FloatArray, failure: IntArray) -> None:
        self.rank += rank.tolist()
        self.path += path.tolist()
        self.at_s += at_s.tolist()
        self.failure += failure.tolist()


def lost(errors: Errors, layout: Layout, silent_s: FloatArray, ended: BoolArray) -> Lost | None:
    """The silent rank in most operations that failed; None while it may still speak.

    The first error tells whether the program failed or a connection. Of ranks on several nodes that fell silent
    together it also tells which: a launcher ends ranks that live while errors still spread. Else it tells no more: in
    36 deaths of 8 to 512 ranks the errors of its first 30 ms named the same one as all of them.
    """
    if not errors.rank:
        return None
    first = int(np.argmin(errors.at_s))
    if errors.failure[first] == Failure.OWN:
        return Lost((errors.rank[first],), errors.at_s[first], 1, own_error=True)
    partners = [set(layout.ranks_on(path).tolist()) for path in errors.path if path >= 0]
    quiet = _quiet(errors, silent_s, ended)
    votes = {rank: sum(rank in members for members in partners) for rank in set().union(*partners) if quiet[rank]}
    if not votes:
        return None
    most = max(votes.values())
    named = sorted(rank for rank, got in votes.items() if got == most)
    longest = max(named, key=lambda rank: silent_s[rank])
    named = [rank for rank in named if silent_s[rank] > silent_s[longest] - 0.3]
    if len(set(layout.node[named].tolist())) > 1 and errors.path[first] >= 0:
        named = _next_to(errors.rank[first], layout.ranks_on(errors.path[first]).tolist(), named, layout) or named
    return Lost(tuple(named), errors.at_s[first], most, own_error=False)


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
    quiet[errors.rank] = False
    return quiet
