"""Consolidation: a node is emptied where its pods fit elsewhere and its price exceeds the price of the moves.

For each node that runs only pods that may be moved, most expensive first: places for all of them on other active nodes.
They move when

    dollars an hour of the node * hours for which that is expected to last  >  Σ price of moving each pod

(`MovePrice`, also used by priced defragmentation). No other term counts: the saving is the node.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster.actions import Move
from cluster.arrays import IntArray
from cluster.plans import Phase, Reason, Step
from cluster.snapshot import PENDING, Snapshot, device_numbers
from placement.batch.assignment_table import Table
from placement.batch.pod_assignment import Seats, seat_pods
from placement.batch.problem import SYSTEM_PRIORITY, HostPrice, batch_of
from placement.batch.proposal import within_headroom
from placement.moves import MovePrice

MOST_TRIED = 100
"""Nodes that are examined in one plan, the most expensive first: half a second at 1,000 nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class Emptied:
    """Node that is worth emptying, with the new placements of its pods."""

    node: int
    seats: Seats
    saving_usd: float
    """Price of the node for as long as the saving is expected to last."""
    price_usd: float
    """Price of the moves."""


def consolidated(snapshot: Snapshot, price: MovePrice, host: HostPrice, *, most_moves: int) -> tuple[Phase, ...]:
    """One phase of moves for each node that is worth emptying, up to `most_moves` moves in total.

    Each is weighed in the fleet as the earlier moves leave it. Pods of gangs and pods that may not be moved stay, and
    so does a node that runs one of them.
    """
    return emptying(snapshot, candidates(snapshot, host)[:MOST_TRIED], price, host, most_moves=most_moves)


def emptying(
    snapshot: Snapshot,
    nodes: Iterable[int],
    price: MovePrice,
    host: HostPrice,
    *,
    most_moves: int,
) -> tuple[Phase, ...]:
    """Same phases for these nodes, which are `candidates`, in this order."""
    usd = batch_of(snapshot, host).node_usd
    phases: list[Phase] = []
    now, moves = snapshot, 0
    for node in nodes:
        emptied = _emptied(now, node, float(usd[node]), price, host)
        if emptied is not None and moves + len(emptied.seats) <= most_moves:
            moves += len(emptied.seats)
            phases.append(_phase(now, emptied, len(phases) + 1))
            now = now.after(step.action for step in phases[-1].steps)
    return tuple(phases)


def candidates(snapshot: Snapshot, host: HostPrice) -> Sequence[int]:
    """Nodes whose pods may all be moved, the most expensive first, then those with fewest pods."""
    pods, usd = snapshot.pods, batch_of(snapshot, host).node_usd
    runs = (pods.node != PENDING) & ((pods.priority < SYSTEM_PRIORITY) | (pods.devices != 0))
    fixed = runs & (~pods.movable | (pods.gang >= 0))
    count = np.bincount(pods.node[runs], minlength=len(snapshot.nodes))
    held = np.bincount(pods.node[fixed], minlength=len(snapshot.nodes))
    able = np.flatnonzero((count > 0) & (held == 0))
    order: list[int] = able[np.lexsort((able, count[able], -usd[able]))].tolist()
    return order


def _emptied(snapshot: Snapshot, node: int, usd: float, price: MovePrice, host: HostPrice) -> Emptied | None:
    """New placements of the node's pods, if they fit on other active nodes and the moves pay."""
    pods = snapshot.pods
    rows = np.flatnonzero((pods.node == node) & ((pods.priority < SYSTEM_PRIORITY) | (pods.devices != 0)))
    cost = sum(price.of(pods.shapes[pods.shape[row]]) for row in rows.tolist())
    saving = usd * price.stay_h
    if not len(rows) or saving <= cost:
        return None
    pending = _with_pending(snapshot, rows)
    among = np.zeros(len(pods), dtype=np.bool_)
    among[rows] = True
    table = Table(batch_of(pending, host, among), pending.free())
    elsewhere = table.batch.in_use.copy()
    elsewhere[node] = False
    table.fit_all(elsewhere)
    if table.left.any():
        return None
    seats, _ = seat_pods(pending, table, among)
    if len(within_headroom(pending, seats)[1]):
        return None
    return Emptied(node, seats, saving, cost)


def _with_pending(snapshot: Snapshot, rows: IntArray) -> Snapshot:
    """Snapshot with these pods pending."""
    node, devices = snapshot.pods.node.copy(), snapshot.pods.devices.copy()
    node[rows], devices[rows] = PENDING, 0
    return replace(snapshot, pods=replace(snapshot.pods, node=node, devices=devices))


def _phase(snapshot: Snapshot, emptied: Emptied, number: int) -> Phase:
    names, pods = snapshot.nodes.names, snapshot.pods
    words = (
        f"empties {names[emptied.node]}, which saves ${emptied.saving_usd:.2f} while it stays empty; "
        f"moving its pods costs ${emptied.price_usd:.2f}"
    )
    reason = Reason("EmptiesNode", words, {"saving_usd": emptied.saving_usd, "price_usd": emptied.price_usd})
    seats = emptied.seats
    steps = (
        Step(Move(pods.names[row], names[emptied.node], names[to], device_numbers(devices)), reason)
        for row, to, devices in zip(seats.row.tolist(), seats.node.tolist(), seats.devices.tolist(), strict=True)
    )
    return Phase(f"consolidate-{number}", tuple(steps))
