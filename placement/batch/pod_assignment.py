"""Assignment of dealt placements to pods: by priority, gangs whole or not at all."""

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from placement.batch.assignment_table import Table
from placement.batch.gang_topology import Seats, all_seats, gang_priorities


def seat_pods(snapshot: Snapshot, table: Table, among: BoolArray) -> Seats:
    """Pods for the placements of a table. Placements of gangs that cannot start whole are dealt again.

    among: the pending pods for which the table was dealt, shape (pods,).
    """
    pods = snapshot.pods
    number = {shape: c for c, shape in enumerate(table.batch.shapes)}
    class_of = np.array([number.get(shape, -1) for shape in pods.shapes], dtype=np.int64)
    rows = np.flatnonzero(among & (pods.node == PENDING))
    classes = class_of[pods.shape[rows]]
    if table.left.any():
        seated = _chosen(snapshot, table, rows, classes)
        single = pods.gang[rows] < 0
        _deal_again(table, classes, seated, single)
        # Placements that are dealt again go to single pods, the most important first.
        room = np.array([len(table.seats(c).node) for c in range(len(number))])
        room -= np.bincount(classes[seated], minlength=len(number))
        _take(seated, np.flatnonzero(single & ~seated), pods.priority[rows], classes, room)
        rows, classes = rows[seated], classes[seated]
    return _dealt_to(table, rows, classes)


def _chosen(snapshot: Snapshot, table: Table, rows: IntArray, classes: IntArray) -> BoolArray:
    """Pods that get scarce placements: by priority, gangs before single pods, the smallest gangs first.

    Shape (len(rows),).
    """
    pods = snapshot.pods
    room = np.array([len(table.seats(c).node) for c in range(len(table.batch.shapes))], dtype=np.int64)
    gang = pods.gang[rows]
    running = np.bincount(pods.gang[(pods.gang >= 0) & (pods.node != PENDING)], minlength=len(snapshot.gangs))
    members = {g: np.flatnonzero(gang == g) for g in np.unique(gang[gang >= 0]).tolist()}
    priority = gang_priorities(snapshot)
    rank = {g: int(priority[g]) for g in members}
    single = np.flatnonzero(gang < 0)
    seated = np.zeros(len(rows), dtype=np.bool_)
    levels = sorted({*rank.values(), *np.unique(pods.priority[rows[single]]).tolist()}, reverse=True)
    for level in levels:
        for g in sorted((g for g in members if rank[g] == level), key=lambda g: (len(members[g]), g)):
            need = max(0, snapshot.gangs[g].min_members - int(running[g]))
            _seat_whole(seated, members[g], need, classes, room)
        at_level = single[pods.priority[rows[single]] == level]
        _take(seated, at_level, pods.priority[rows], classes, room)
    return seated


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


def _deal_again(table: Table, classes: IntArray, seated: BoolArray, single: BoolArray) -> None:
    """Frees unused placements, and fits single pods without one into the freed capacity."""
    used = np.bincount(classes[seated], minlength=len(table.batch.shapes))
    for c in range(len(table.batch.shapes)):
        spare = range(int(used[c]), len(table.seats(c).node))
        if len(spare):
            table.take_back(c, spare)
    waiting = np.bincount(classes[single & ~seated], minlength=len(table.batch.shapes))
    held = table.left - waiting
    table.left = waiting.astype(np.int64)
    table.fit_all()
    table.left = table.left + held


def _dealt_to(table: Table, rows: IntArray, classes: IntArray) -> Seats:
    order = np.argsort(classes, kind="stable")
    rows, classes = rows[order], classes[order]
    parts = []
    for c in range(len(table.batch.shapes)):
        dealt, mine = table.seats(c), rows[classes == c]
        parts.append(Seats(mine[: len(dealt.node)], dealt.node[: len(mine)], dealt.devices[: len(mine)]))
    return all_seats(parts)
