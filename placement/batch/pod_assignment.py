"""Assignment of a batch's placements to pods: by priority, gangs whole or not at all, near each other if they ask."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.snapshot import PENDING, Snapshot
from placement.batch.assignment_table import Table
from placement.engine.packer import Packer
from placement.packing.draft import PackingDraft, gang_priorities
from placement.packing.gangs import Seat, seat_gang
from placement.packing.units import gang_units
from placement.policies.published import BestFit


@dataclass(frozen=True, slots=True, eq=False)
class Seats:
    """Placements: rows of the pod table, nodes, and device bit masks. Each of shape (seats,)."""

    row: IntArray
    node: IntArray
    devices: IntArray

    def __len__(self) -> int:
        return len(self.row)


def no_seats() -> Seats:
    nothing = np.zeros(0, dtype=np.int64)
    return Seats(nothing, nothing, nothing)


def all_seats(parts: Sequence[Seats]) -> Seats:
    if not parts:
        return no_seats()
    return Seats(
        np.concatenate([p.row for p in parts]),
        np.concatenate([p.node for p in parts]),
        np.concatenate([p.devices for p in parts]),
    )


def gangs_with_a_place(snapshot: Snapshot, among: BoolArray) -> list[int]:
    """Gangs of these pods with a topology label, in the order of service. among: shape (pods,)."""
    pods = snapshot.pods
    waiting = np.unique(pods.gang[among & (pods.gang >= 0)]).tolist()
    bound = [g for g in waiting if snapshot.gangs[g].within or snapshot.gangs[g].prefer_within]
    priority = gang_priorities(snapshot)
    members = np.bincount(pods.gang[pods.gang >= 0], minlength=len(snapshot.gangs))
    return sorted(bound, key=lambda g: (-int(priority[g]), -int(members[g]), g))


def seat_near(snapshot: Snapshot, gangs: Sequence[int]) -> Seats:
    """Placements for the gangs that can start whole inside a domain of their label, as packing places them: on the
    fewest nodes, of which the fewest were idle. The others hold nothing.
    """
    draft = PackingDraft(snapshot, Packer(snapshot, BestFit()))
    for unit in (unit for gang in gangs for unit in gang_units(draft, gang)):
        seat_gang(draft, unit, Seat(draft.seat))
    rows = np.array(draft.changed()[1], dtype=np.int64)
    return Seats(rows, draft.node[rows], draft.devices[rows])


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
            classes=table.batch.class_of(pods.shapes)[pods.shape[rows]],
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
        levels = sorted({*self.rank.values(), *np.unique(self.priority[self.single]).tolist()}, reverse=True)
        seated = self._chosen(table, levels, sign)
        classes = range(len(table.batch.shapes))
        used = np.bincount(self.classes[seated], minlength=len(classes))
        for c in classes:
            spare = range(int(used[c]), len(table.seats(c).node))
            if len(spare):
                table.take_back(c, spare)
        for level in levels:
            # Gangs that missed a placement go whole into the resources that others left, the largest first.
            missed = [g for g in self._gangs_of(level, -1) if not seated[self.members[g]].any()]
            for g in missed[: min(MOST_GANGS, max(1, GANG_NODES // len(table.content)))]:
                members = self.members[g]
                counts = np.bincount(self.classes[members], minlength=len(classes))
                before = [len(table.seats(c).node) for c in classes]
                got = {c: table.fit(c, int(counts[c])) if counts[c] else 0 for c in table.batch.order.tolist()}
                is_whole = sum(got.values()) >= max(1, self.need[g])
                for c, count in got.items():
                    if is_whole:
                        seated[members[self.classes[members] == c][:count]] = True
                    elif count:
                        table.take_back(c, range(before[c], before[c] + count))
            # Then single pods of this priority without a placement.
            waiting = self.single[~seated[self.single] & (self.priority[self.single] == level)]
            for c in table.batch.order.tolist():
                mine = waiting[self.classes[waiting] == c]
                if len(mine):
                    seated[mine[: table.fit(c, len(mine))]] = True
        return seated, table

    def _chosen(self, table: Table, levels: Sequence[int], sign: int) -> BoolArray:
        """Pods that get scarce placements: by priority, gangs before single pods. Shape (len(rows),)."""
        room = np.array([len(table.seats(c).node) for c in range(len(table.batch.shapes))], dtype=np.int64)
        seated = np.zeros(len(self.rows), dtype=np.bool_)
        for level in levels:
            for g in self._gangs_of(level, sign):
                taken, left = list[int](), room.copy()
                for member in self.members[g].tolist():
                    if left[self.classes[member]] > 0:
                        left[self.classes[member]] -= 1
                        taken.append(member)
                if len(taken) >= self.need[g]:
                    seated[taken] = True
                    room = left
            # As many single pods as their class has placements for, the most important first.
            at_level = self.single[self.priority[self.single] == level]
            for c in np.unique(self.classes[at_level]).tolist():
                mine = at_level[self.classes[at_level] == c]
                mine = mine[np.argsort(-self.priority[mine], kind="stable")][: max(0, int(room[c]))]
                seated[mine] = True
                room[c] -= len(mine)
        return seated

    def _gangs_of(self, level: int, sign: int) -> list[int]:
        at_level = [g for g, rank in self.rank.items() if rank == level]
        return sorted(at_level, key=lambda g: (sign * len(self.members[g]), g))


def _dealt_to(table: Table, rows: IntArray, classes: IntArray) -> Seats:
    order = np.argsort(classes, kind="stable")
    rows, classes = rows[order], classes[order]
    parts = []
    for c in range(len(table.batch.shapes)):
        dealt, mine = table.seats(c), rows[classes == c]
        parts.append(Seats(mine[: len(dealt.node)], dealt.node[: len(mine)], dealt.devices[: len(mine)]))
    return all_seats(parts)
