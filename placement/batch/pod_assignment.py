"""Assignment of dealt placements to pods: by priority, gangs whole or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.snapshot import PENDING, Snapshot
from placement.batch.assignment_table import Table
from placement.batch.gang_topology import Seats, all_seats, gang_priorities

MOST_GANGS = 100
GANG_NODES = 30_000
"""Gangs that are tried again after the others have their placements, the largest first: at most this number, and this
number times the nodes of the fleet. Chosen: ten gangs on 3,000 nodes."""


def seat_pods(snapshot: Snapshot, table: Table, among: BoolArray) -> tuple[Seats, Table]:
    """Pods for the placements of a table, and the table of these. Placements that gangs cannot use are dealt again.

    among: the pending pods for which the table was dealt, shape (pods,). Where placements are short, gangs are served
    the smallest first and the largest first, and the better result counts: small gangs waste the least, but a large
    gang that misses one placement loses all of them.
    """
    scarce = _Scarce.of(snapshot, table, among)
    if not table.left.any():
        return _dealt_to(table, scarce.rows, scarce.classes), table
    signs = (1, -1) if len(scarce.members) > 1 else (1,)
    filled = [scarce.filled(table.copy(), sign) for sign in signs]
    seated, best = min(filled, key=lambda each: (round(each[1].left_out_usd, 6), round(each[1].node_usd, 6)))
    return _dealt_to(best, scarce.rows[seated], scarce.classes[seated]), best


@dataclass(frozen=True, slots=True, eq=False)
class _Scarce:
    """Pods of a batch, where there are fewer placements than pods."""

    rows: IntArray
    """Rows of the pods."""
    classes: IntArray
    """Shape (len(rows),)."""
    priority: IntArray
    """Own priority of each pod, shape (len(rows),)."""
    single: IntArray
    """Positions of pods without a gang."""
    members: Mapping[int, IntArray]
    """Gang → positions of its pods."""
    rank: Mapping[int, int]
    """Gang → priority."""
    need: Mapping[int, int]
    """Gang → members that have to start."""

    @classmethod
    def of(cls, snapshot: Snapshot, table: Table, among: BoolArray) -> "_Scarce":
        pods = snapshot.pods
        number = {shape: c for c, shape in enumerate(table.batch.shapes)}
        class_of = np.array([number.get(shape, -1) for shape in pods.shapes], dtype=np.int64)
        rows = np.flatnonzero(among & (pods.node == PENDING))
        gang = pods.gang[rows]
        running = np.bincount(pods.gang[(pods.gang >= 0) & (pods.node != PENDING)], minlength=len(snapshot.gangs))
        order = np.argsort(gang, kind="stable")
        found, first = np.unique(gang[order], return_index=True)
        members = dict(zip(found.tolist(), np.split(order, first)[1:], strict=True))
        single = members.pop(-1, np.zeros(0, dtype=np.int64))
        priority = gang_priorities(snapshot)
        return cls(
            rows=rows,
            classes=class_of[pods.shape[rows]],
            priority=pods.priority[rows],
            single=single,
            members=members,
            rank={g: int(priority[g]) for g in members},
            need={g: max(0, snapshot.gangs[g].min_members - int(running[g])) for g in members},
        )

    def filled(self, table: Table, sign: int) -> tuple[BoolArray, Table]:
        """Pods that get placements, shape (len(rows),), and the table of these placements.

        sign: 1 serves the smallest gangs of a priority first, -1 the largest.
        """
        seated = self._chosen(table, sign)
        used = np.bincount(self.classes[seated], minlength=len(table.batch.shapes))
        for c in range(len(table.batch.shapes)):
            spare = range(int(used[c]), len(table.seats(c).node))
            if len(spare):
                table.take_back(c, spare)
        for level in self._levels():
            self._gangs_again(table, seated, level)
            self._singles_again(table, seated, level)
        return seated, table

    def _levels(self) -> list[int]:
        levels: list[int] = sorted({*self.rank.values(), *np.unique(self.priority[self.single]).tolist()}, reverse=True)
        return levels

    def _chosen(self, table: Table, sign: int) -> BoolArray:
        """Pods that get scarce placements: by priority, gangs before single pods. Shape (len(rows),)."""
        room = np.array([len(table.seats(c).node) for c in range(len(table.batch.shapes))], dtype=np.int64)
        seated = np.zeros(len(self.rows), dtype=np.bool_)
        for level in self._levels():
            for g in self._gangs_of(level, sign):
                _seat_whole(seated, self.members[g], self.need[g], self.classes, room)
            at_level = self.single[self.priority[self.single] == level]
            _take(seated, at_level, self.priority, self.classes, room)
        return seated

    def _gangs_of(self, level: int, sign: int) -> list[int]:
        at_level = [g for g, rank in self.rank.items() if rank == level]
        return sorted(at_level, key=lambda g: (sign * len(self.members[g]), g))

    def _gangs_again(self, table: Table, seated: BoolArray, level: int) -> None:
        """Places gangs that missed a placement whole in the resources that others left, the largest first."""
        missed = [g for g in self._gangs_of(level, -1) if not seated[self.members[g]].any()]
        for g in missed[: min(MOST_GANGS, max(1, GANG_NODES // len(table.content)))]:
            members = self.members[g]
            counts = np.bincount(self.classes[members], minlength=len(table.batch.shapes))
            before = [len(table.seats(c).node) for c in range(len(counts))]
            got = [table.fit(c, int(counts[c])) if counts[c] else 0 for c in table.order.tolist()]
            if sum(got) >= max(1, self.need[g]):
                for c, count in zip(table.order.tolist(), got, strict=True):
                    seated[members[self.classes[members] == c][:count]] = True
                continue
            for c, count in zip(table.order.tolist(), got, strict=True):
                if count:
                    table.take_back(c, range(before[c], before[c] + count))

    def _singles_again(self, table: Table, seated: BoolArray, level: int) -> None:
        """Places single pods of this priority without a placement in the resources that are left."""
        waiting = self.single[~seated[self.single] & (self.priority[self.single] == level)]
        for c in table.order.tolist():
            mine = waiting[self.classes[waiting] == c]
            if len(mine):
                seated[mine[: table.fit(c, len(mine))]] = True


def _seat_whole(seated: BoolArray, members: IntArray, need: int, classes: IntArray, room: IntArray) -> None:
    """Places a gang's members, if enough of them get a placement."""
    taken: list[int] = []
    left = room.copy()
    for member in members.tolist():
        if left[classes[member]] > 0:
            left[classes[member]] -= 1
            taken.append(member)
    if len(taken) >= need:
        seated[taken] = True
        room[:] = left


def _take(seated: BoolArray, who: IntArray, priority: IntArray, classes: IntArray, room: IntArray) -> None:
    """Places as many of these as their class has placements for, the most important first."""
    for c in np.unique(classes[who]).tolist():
        mine = who[classes[who] == c]
        mine = mine[np.argsort(-priority[mine], kind="stable")][: max(0, int(room[c]))]
        seated[mine] = True
        room[c] -= len(mine)


def _dealt_to(table: Table, rows: IntArray, classes: IntArray) -> Seats:
    order = np.argsort(classes, kind="stable")
    rows, classes = rows[order], classes[order]
    parts = []
    for c in range(len(table.batch.shapes)):
        dealt, mine = table.seats(c), rows[classes == c]
        parts.append(Seats(mine[: len(dealt.node)], dealt.node[: len(mine)], dealt.devices[: len(mine)]))
    return all_seats(parts)
