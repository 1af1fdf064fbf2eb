"""Layout of a job: ranks, their nodes and NICs, process groups, and the paths that operations take between ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cluster.arrays import Array, BoolArray, IntArray
from health.records.frames import Records
from tonnage.records import Kind, Op, Role, Times

SMALL_GROUP = 8
"""Members up to which a group may send between any two; in larger ones only neighbours are followed."""
MOST_PAIRS = 64
"""Pairs that are followed for each rank of a job, in the mean: eight for each stage of a pipeline of eight."""


@dataclass(frozen=True, eq=False)
class Layout:
    """A path is a process group, or an ordered pair of ranks for sends: groups first, then pairs."""

    node: IntArray
    """Shape (ranks,), the node of each rank: from the node agents, since a job could lie about it."""
    nic: IntArray
    """Shape (ranks,), the NIC of each rank."""
    stage: IntArray
    """Shape (ranks,), pipeline stage."""
    replica: IntArray
    """Shape (ranks,), data-parallel replica."""
    group_of: IntArray
    """Shape (ranks, numbers): group behind a rank's own number of it; -1 where it has none."""
    index_of: IntArray
    """Shape (ranks, numbers): place of the rank in that group."""
    role: IntArray
    """Shape (groups,), `Role`."""
    groups: tuple[IntArray, ...]
    """Members of each group, in its order."""
    times: Times = Times.HOST
    """Whose times operations bear; QUEUED where those of any rank are."""

    @property
    def ranks(self) -> int:
        return len(self.node)

    @cached_property
    def peers(self) -> IntArray:
        """Shape (ranks,): number shared by ranks that are to do the same work: of one stage, in groups of the same
        roles and sizes; -1 where a pipeline's stages are not told."""
        if not self.stage.any() and np.isin(self.role, (Role.PIPELINE, Role.OTHER)).any():
            return np.full(self.ranks, -1, np.int64)
        code = np.append(self.role * (self.ranks + 1) + [len(each) for each in self.groups], -1)
        joined = np.sort(code[self.group_of], axis=1)  # ranks number their groups as they meet them
        _, number = np.unique(np.column_stack([self.stage, joined]), axis=0, return_inverse=True)
        return np.asarray(number.ravel(), np.int64)

    @cached_property
    def pair_codes(self) -> IntArray:
        """Shape (pairs,), rising: sender * ranks + receiver of each pair that may send."""
        codes, room = [np.zeros(0, np.int64)], MOST_PAIRS * self.ranks
        for members, role in zip(self.groups, self.role, strict=True):
            if role in (Role.PIPELINE, Role.OTHER) and room > 0:
                if len(members) > SMALL_GROUP:
                    after = np.roll(members, -1)
                    sender, receiver = np.concatenate([members, after]), np.concatenate([after, members])
                else:
                    sender, receiver = np.repeat(members, len(members)), np.tile(members, len(members))
                    others = ~np.eye(len(members), dtype=np.bool_).ravel()
                    sender, receiver = sender[others], receiver[others]
                codes.append(np.asarray(sender * self.ranks + receiver)[:room])
                room -= len(codes[-1])
        return np.unique(np.concatenate(codes))

    @cached_property
    def sizes(self) -> IntArray:
        """Shape (paths,), ranks on each path."""
        return np.array([len(members) for members in self.groups] + [2] * len(self.pair_codes), dtype=np.int64)

    @cached_property
    def starts(self) -> IntArray:
        """Shape (paths + 1,): where each path's ranks begin in `members`."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @cached_property
    def members(self) -> IntArray:
        """Ranks of all paths, one path after another; a pair's sender first."""
        pairs = np.stack([self.pair_codes // self.ranks, self.pair_codes % self.ranks], axis=1).ravel()
        return np.concatenate([*self.groups, pairs]).astype(np.int64)

    @cached_property
    def path_role(self) -> IntArray:
        """Shape (paths,); pairs are of role PIPELINE."""
        return np.concatenate([self.role, np.full(len(self.pair_codes), int(Role.PIPELINE))]).astype(np.int64)

    @cached_property
    def crosses(self) -> BoolArray:
        """Shape (paths,): whether its ranks are on more than one node, so that it uses NICs."""
        nodes = self.node[self.members]
        low = np.minimum.reduceat(nodes, self.starts[:-1])
        return np.asarray(low != np.maximum.reduceat(nodes, self.starts[:-1]))

    @cached_property
    def span(self) -> IntArray:
        """Shape (paths,): number shared by paths between the same ranks: both directions of a pair are one span."""
        low, high = np.minimum(*self._ends), np.maximum(*self._ends)
        _, number = np.unique(low * self.ranks + high, return_inverse=True)
        return np.concatenate([np.arange(len(self.groups)), len(self.groups) + number]).astype(np.int64)

    @cached_property
    def span_path(self) -> IntArray:
        """Shape (spans,): one path of each span."""
        path = np.zeros(int(self.span.max(initial=-1)) + 1, np.int64)
        path[self.span] = np.arange(len(self.span))
        return path

    @property
    def _ends(self) -> tuple[IntArray, IntArray]:
        return self.pair_codes // self.ranks, self.pair_codes % self.ranks

    def ranks_on(self, path: int) -> IntArray:
        return self.members[self.starts[path] : self.starts[path + 1]]

    def slots(self, path: IntArray, index: IntArray) -> IntArray:
        """Places in `members` of ranks on paths; 0 for path -1."""
        return np.where(path >= 0, self.starts[path] + index, 0)

    def located(self, rank: IntArray, rows: Array) -> tuple[IntArray, IntArray]:
        """Path of each record's operation, and the rank's place on it; -1 where the job did not introduce it."""
        number = np.minimum(rows["group"].astype(np.int64), self.group_of.shape[1] - 1)
        path, index = self.group_of[rank, number], self.index_of[rank, number]
        path[rows["group"] >= self.group_of.shape[1]] = -1
        sends = np.flatnonzero((rows["op"] >= Op.SEND) & (path >= 0))
        if len(sends):
            group, peer = path[sends], rows["peer"][sends].astype(np.int64)
            known = peer < self.sizes[group]
            other = self.members[self.starts[group] + np.where(known, peer, 0)]
            receives = rows["op"][sends] == Op.RECEIVE
            own = rank[sends]
            pairs = self.pair_paths(np.where(receives, other, own), np.where(receives, own, other))
            path[sends], index[sends] = np.where(known, pairs, -1), receives
        return path, index

    def pair_paths(self, sender: IntArray, receiver: IntArray) -> IntArray:
        """Path of each ordered pair; -1 where it is not followed."""
        codes = sender * self.ranks + receiver
        at = np.searchsorted(self.pair_codes, codes)
        found = at < len(self.pair_codes)
        found[found] = self.pair_codes[at[found]] == codes[found]
        return np.where(found, len(self.groups) + at, -1)


def layout_from(introductions: Records, *, node: Sequence[int] | IntArray, nic: Sequence[int] | IntArray) -> Layout:
    """Layout from the PLACE and MEMBER records of all ranks, joined by group key.

    node, nic: shape (ranks,), from the node agents.
    """
    places = introductions.of_kind(Kind.PLACE)
    stage, replica = np.zeros(len(node), np.int64), np.zeros(len(node), np.int64)
    said = set(places.rows["op"].tolist())
    times = Times.QUEUED if Times.QUEUED in said else Times.DEVICE if Times.DEVICE in said else Times.HOST
    stage[places.rank], replica[places.rank] = places.rows["seq"], places.rows["at_ns"]
    joined = introductions.of_kind(Kind.MEMBER)
    keys, group = np.unique(joined.rows["at_ns"], return_inverse=True)
    group_of = np.full((len(node), int(joined.rows["group"].max(initial=0)) + 1), -1, np.int64)
    group_of[joined.rank, joined.rows["group"]] = group
    index_of = np.zeros_like(group_of)
    index_of[joined.rank, joined.rows["group"]] = joined.rows["seq"]
    role = np.zeros(len(keys), np.int64)
    role[group] = joined.rows["op"]
    order = np.lexsort((joined.rank, joined.rows["seq"], group))
    ranks, sorted_groups = joined.rank[order], group[order]
    again = np.flatnonzero((np.diff(sorted_groups) == 0) & (np.diff(ranks) == 0)) + 1  # introduced twice
    ranks, sorted_groups = np.delete(ranks, again), np.delete(sorted_groups, again)
    return Layout(
        node=np.asarray(node, np.int64),
        nic=np.asarray(nic, np.int64),
        stage=stage,
        replica=replica,
        group_of=group_of,
        index_of=index_of,
        role=role,
        groups=tuple(np.split(ranks, np.searchsorted(sorted_groups, np.arange(1, len(keys))))) if len(keys) else (),
        times=times,
    )
