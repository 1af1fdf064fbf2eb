"""Consolidation: a node is emptied where its pods fit beside others and its price outweighs that of moving them.

For each node that runs only pods that may be moved, dearest first: seats for all of them on other nodes that run
anyway. They move when

    dollars an hour of the node * hours for which that is expected to last  >  Σ price of moving each pod

(`MovePrice`, the same price that priced defragmentation pays). Nothing else is weighed: what it saves is the node.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster.actions import Move
from cluster.arrays import IntArray
from cluster.plans import Phase, Reason, Step
from cluster.pods import PENDING, device_numbers
from cluster.snapshot import Snapshot
from placement.batch.assignment_table import Table
from placement.batch.gang_topology import Seats
from placement.batch.headroom import within_headroom
from placement.batch.pod_assignment import seat_pods
from placement.batch.problem import HostPrice
from placement.batch.problem_builder import SYSTEM_PRIORITY, batch_of
from placement.moves.defragmentation import MovePrice

MOST_TRIED = 100
"""Nodes that are looked at in one plan, the dearest first: half a second at 1,000 nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class Emptied:
    """A node that is worth emptying, and where its pods go."""

    node: int
    seats: Seats
    saving_usd: float
    """What the node costs for as long as the saving is expected to last."""
    price_usd: float
    """What the moves cost."""


def consolidated(snapshot: Snapshot, price: MovePrice, host: HostPrice, *, most_moves: int) -> tuple[Phase, ...]:
    """One phase of moves for each node that is worth emptying, so many moves in all at most.

    Each is weighed in the fleet as those before it leave it; pods of gangs and pods that may not be moved stay, and so
    does a node that runs one of them.
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
    """The same of these nodes, which are `candidates`, in this order."""
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
    """Nodes that run pods which may all be moved, the dearest first, then those with fewest pods."""
    pods, usd = snapshot.pods, batch_of(snapshot, host).node_usd
    runs = (pods.node != PENDING) & ((pods.priority < SYSTEM_PRIORITY) | (pods.devices != 0))
    fixed = runs & (~pods.movable | (pods.gang >= 0))
    count = np.bincount(pods.node[runs], minlength=len(snapshot.nodes))
    held = np.bincount(pods.node[fixed], minlength=len(snapshot.nodes))
    able = np.flatnonzero((count > 0) & (held == 0))
    order: list[int] = able[np.lexsort((able, count[able], -usd[able]))].tolist()
    return order


def _emptied(snapshot: Snapshot, node: int, usd: float, price: MovePrice, host: HostPrice) -> Emptied | None:
    """The node's pods elsewhere, if there is room on nodes that run anyway and it pays."""
    pods = snapshot.pods
    rows = np.flatnonzero((pods.node == node) & ((pods.priority < SYSTEM_PRIORITY) | (pods.devices != 0)))
    cost = sum(price.of(pods.shapes[pods.shape[row]]) for row in rows.tolist())
    saving = usd * price.stay_h
    if not len(rows) or saving <= cost:
        return None
    lifted = _lifted(snapshot, rows)
    among = np.zeros(len(pods), dtype=np.bool_)
    among[rows] = True
    table = Table(batch_of(lifted, host, among), lifted.free())
    elsewhere = table.batch.in_use.copy()
    elsewhere[node] = False
    table.fit_all(elsewhere)
    if table.left.any():
        return None
    seats = seat_pods(lifted, table, among)
    if len(within_headroom(lifted, seats)[1]):
        return None
    return Emptied(node, seats, saving, cost)


def _lifted(snapshot: Snapshot, rows: IntArray) -> Snapshot:
    """The snapshot as if these pods waited."""
    node, devices = snapshot.pods.node.copy(), snapshot.pods.devices.copy()
    node[rows], devices[rows] = PENDING, 0
    return replace(snapshot, pods=replace(snapshot.pods, node=node, devices=devices))


def _phase(snapshot: Snapshot, emptied: Emptied, number: int) -> Phase:
    names, pods = snapshot.nodes.names, snapshot.pods
    words = (
        f"empties {names[emptied.node]}, which costs ${emptied.saving_usd:.2f} for as long as that lasts; "
        f"moving its pods costs ${emptied.price_usd:.2f}"
    )
    reason = Reason("EmptiesNode", words, {"saving_usd": emptied.saving_usd, "price_usd": emptied.price_usd})
    seats = emptied.seats
    steps = (
        Step(Move(pods.names[row], names[emptied.node], names[to], device_numbers(devices)), reason)
        for row, to, devices in zip(seats.row.tolist(), seats.node.tolist(), seats.devices.tolist(), strict=True)
    )
    return Phase(f"consolidate-{number}", tuple(steps))
