"""Gangs with a required or preferred topology label: placed whole, before the batch, where that is cheapest."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.snapshot import PENDING, Snapshot
from placement.batch.assignment_table import Table
from placement.batch.problem import Batch

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
    """Gangs of these pods with a topology label, in the order of service. among: shape (pods,)."""
    pods = snapshot.pods
    waiting = np.unique(pods.gang[among & (pods.gang >= 0)]).tolist()
    bound = [g for g in waiting if snapshot.gangs[g].within or snapshot.gangs[g].prefer_within]
    priority = gang_priorities(snapshot)
    members = np.bincount(pods.gang[pods.gang >= 0], minlength=len(snapshot.gangs))
    return sorted(bound, key=lambda g: (-int(priority[g]), -int(members[g]), g))


def gang_priorities(snapshot: Snapshot) -> IntArray:
    """Priority of each gang: that of its most important member, or its own. Shape (gangs,)."""
    pods = snapshot.pods
    priority = np.array([gang.priority for gang in snapshot.gangs], dtype=np.int64)
    members = pods.gang >= 0
    np.maximum.at(priority, pods.gang[members], pods.priority[members])
    return priority


def seat_near(snapshot: Snapshot, batch: Batch, table: Table, gangs: Sequence[int], among: BoolArray) -> Seats:
    """Placements for the gangs that can start whole inside a domain of their label; the others hold nothing.

    among: pending pods that the batch is about, shape (pods,).

    Members beyond a gang's minimum follow as far as they fit in the same domain.
    """
    number = {shape: c for c, shape in enumerate(batch.shapes)}
    class_of = np.array([number.get(shape, -1) for shape in snapshot.pods.shapes], dtype=np.int64)
    domains: dict[str, IntArray] = {}
    for gang in gangs:
        for label in (snapshot.gangs[gang].within, snapshot.gangs[gang].prefer_within):
            if label and label not in domains:
                domains[label] = snapshot.nodes.domain(label)
    return all_seats([_seat_gang(snapshot, table, class_of, gang, domains, among) for gang in gangs])


def _seat_gang(
    snapshot: Snapshot,
    table: Table,
    class_of: IntArray,
    gang: int,
    domains: dict[str, IntArray],
    among: BoolArray,
) -> Seats:
    pods, wanted = snapshot.pods, snapshot.gangs[gang]
    members = pods.gang == gang
    running = members & (pods.node != PENDING)
    rows = np.flatnonzero(members & among)
    need = max(0, wanted.min_members - int(running.sum()))
    counts = _by_class(table, class_of[pods.shape[rows]])
    prefer = domains[wanted.prefer_within] if wanted.prefer_within else None
    anywhere = np.ones(len(snapshot.nodes), dtype=np.bool_)
    places = [anywhere]
    if wanted.within:
        domain = domains[wanted.within]
        at = np.unique(domain[pods.node[running]]).tolist()
        values = at if at else _cheapest_first(table, counts, domain)
        places = [domain == value for value in values if value >= 0]
    for place in places:
        before = [len(table.seats(c).node) for c, _ in counts]
        _seat_in(table, counts, place, prefer)
        got = [len(table.seats(c).node) - start for (c, _), start in zip(counts, before, strict=True)]
        if sum(got) >= max(need, 1):
            return _seats_of(table, counts, before, class_of[pods.shape[rows]], rows)
        for (c, _), start in zip(counts, before, strict=True):
            table.take_back(c, range(start, len(table.seats(c).node)))
    return no_seats()


def _by_class(table: Table, classes: IntArray) -> list[tuple[int, int]]:
    """(class, members) in the order of dealing."""
    count = np.bincount(classes, minlength=len(table.order))
    return [(c, int(count[c])) for c in table.order.tolist() if count[c]]


def _seat_in(table: Table, counts: list[tuple[int, int]], place: BoolArray, prefer: IntArray | None) -> None:
    """Places members in a domain; with a preferred label, one value after the other, the cheapest first."""
    left = dict(counts)
    if prefer is not None:
        values = np.unique(prefer[place & (prefer >= 0)]).tolist()
        while values and any(left.values()):
            best = _cheapest_first(table, [(c, n) for c, n in left.items() if n], np.where(place, prefer, -1))
            value = next((v for v in best if v in values), values[0])
            values.remove(value)
            for c in left:
                left[c] -= table.fit(c, left[c], place & (prefer == value)) if left[c] else 0
    for c, count in left.items():
        if count:
            table.fit(c, count, place)


def _cheapest_first(table: Table, counts: list[tuple[int, int]], domain: IntArray) -> list[int]:
    """Values of a label by the price of the nodes that the largest members would start there, dollars an hour.

    Values with too little capacity come last, the roomiest of them first. At most MOST_TRIES.
    """
    if not counts:
        return []
    c, wanted = counts[0]
    nodes = np.flatnonzero(table.batch.eligible[c] & (domain >= 0))
    copies = table.room.copies(table.batch.shapes[c], nodes)
    nodes, copies = nodes[copies > 0], copies[copies > 0]
    if not len(nodes):
        return []
    order = table.preference(nodes, copies, wanted)
    order = order[np.argsort(domain[nodes[order]], kind="stable")]
    nodes, copies = nodes[order], copies[order]
    value, first, number = np.unique(domain[nodes], return_index=True, return_inverse=True)
    before = np.cumsum(copies) - copies
    before -= before[first][number]
    opens = (before < wanted) & ~table.room.running[nodes]
    usd = np.bincount(number, weights=np.where(opens, table.batch.node_usd[nodes], 0.0), minlength=len(value))
    room = np.bincount(number, weights=copies, minlength=len(value))
    short = room < wanted
    ranked = np.lexsort((value, np.where(short, -room, room), np.where(short, 0.0, usd), short))
    return [int(v) for v in value[ranked[:MOST_TRIES]]]


def _seats_of(
    table: Table, counts: list[tuple[int, int]], before: list[int], classes: IntArray, rows: IntArray
) -> Seats:
    """Placements dealt since `before`, assigned to the gang's members of each class in table order."""
    parts = []
    for (c, _), start in zip(counts, before, strict=True):
        dealt = table.seats(c)
        node, devices = dealt.node[start:], dealt.devices[start:]
        parts.append(Seats(rows[classes == c][: len(node)], node, devices))
    return all_seats(parts)
