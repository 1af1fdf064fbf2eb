"""Assignment of a batch's placements to pods: by priority, gangs whole or not at all, near each other if they ask."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.snapshot import PENDING, Snapshot
from placement.batch.assignment_table import Table
from placement.batch.problem import Batch
from placement.packing.draft import gang_priorities

MOST_TRIES = 8
"""Domains that are tried for a gang of unequal pods. Equal pods need one: their capacity is counted exactly."""


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
    """Gangs of these pods that must be inside a domain, in the order of service. among: shape (pods,)."""
    pods = snapshot.pods
    waiting = np.unique(pods.gang[among & (pods.gang >= 0)]).tolist()
    priority = gang_priorities(snapshot)
    members = np.bincount(pods.gang[pods.gang >= 0], minlength=len(snapshot.gangs))
    bound = [g for g in waiting if snapshot.gangs[g].within]
    return sorted(bound, key=lambda g: (-int(priority[g]), -int(members[g]), g))


def seat_near(snapshot: Snapshot, batch: Batch, table: Table, gangs: Sequence[int], among: BoolArray) -> Seats:
    """Placements for the gangs that can start whole inside a domain of their label; the others hold nothing.

    among: pending pods that the batch is about, shape (pods,).

    Members beyond a gang's minimum follow as far as they fit in the same domain.
    """
    class_of = batch.class_of(snapshot.pods.shapes)
    domains = {label: snapshot.nodes.domain(label) for g in gangs if (label := snapshot.gangs[g].within)}
    return all_seats([_seat_gang(snapshot, table, class_of, gang, domains, among) for gang in gangs])


def _seat_gang(
    snapshot: Snapshot,
    table: Table,
    class_of: IntArray,
    gang: int,
    domains: Mapping[str, IntArray],
    among: BoolArray,
) -> Seats:
    pods, wanted = snapshot.pods, snapshot.gangs[gang]
    members, domain = pods.gang == gang, domains[wanted.within or ""]
    running = members & (pods.node != PENDING)
    rows = np.flatnonzero(members & among)
    classes = class_of[pods.shape[rows]]
    need = max(1, wanted.min_members - int(running.sum()))
    count = np.bincount(classes, minlength=len(table.batch.order))
    counts = [(c, int(count[c])) for c in table.batch.order.tolist() if count[c]]
    at = np.unique(domain[pods.node[running]]).tolist()
    for value in at or _cheapest_first(table, counts, domain):
        before = [len(table.seats(c).node) for c, _ in counts]
        parts = []  # the placements dealt here, assigned to the members of each class in table order
        for (c, many), start in zip(counts, before, strict=True):
            table.fit(c, many, (domain == value) & (domain >= 0))
            node, devices = table.seats(c).node[start:], table.seats(c).devices[start:]
            parts.append(Seats(rows[classes == c][: len(node)], node, devices))
        if sum(map(len, parts)) >= need:
            return all_seats(parts)
        for (c, _), start in zip(counts, before, strict=True):
            table.take_back(c, range(start, len(table.seats(c).node)))
    return no_seats()


def _cheapest_first(table: Table, counts: list[tuple[int, int]], domain: IntArray) -> list[int]:
    """Values of a label by the price of the nodes that the largest members would start there, dollars an hour.

    Values with too little capacity come last, the roomiest of them first. At most MOST_TRIES.
    """
    if not counts:
        return []
    c, wanted = counts[0]
    nodes = np.flatnonzero(table.batch.eligible[c] & (domain >= 0))
    copies = table.free.copies(table.batch.shapes[c], nodes)
    nodes, copies = nodes[copies > 0], copies[copies > 0]
    if not len(nodes):
        return []
    order = table.preference(nodes, copies, wanted)
    order = order[np.argsort(domain[nodes[order]], kind="stable")]
    nodes, copies = nodes[order], copies[order]
    value, first, number = np.unique(domain[nodes], return_index=True, return_inverse=True)
    before = np.cumsum(copies) - copies
    before -= before[first][number]
    opens = (before < wanted) & ~table.running[nodes]
    usd = np.bincount(number, weights=np.where(opens, table.batch.node_usd[nodes], 0.0), minlength=len(value))
    room = np.bincount(number, weights=copies, minlength=len(value))
    short = room < wanted
    ranked = np.lexsort((value, np.where(short, -room, room), np.where(short, 0.0, usd), short))
    return [int(v) for v in value[ranked[:MOST_TRIES]]]


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
