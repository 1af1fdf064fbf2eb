"""Consolidation: a node is emptied where its pods fit elsewhere and its price exceeds the price of the moves."""

from collections.abc import Iterable, Sequence

import numpy as np

from cluster.actions import Move
from cluster.arrays import IntArray
from cluster.plans import Phase, Reason, Step
from cluster.snapshot import PENDING, Snapshot, device_numbers
from placement.batch import assignment_table, ladder, pod_assignment, problem, proposal
from placement.move_price import MovePrice


def emptying(
    snapshot: Snapshot,
    nodes: Iterable[int],
    price: MovePrice,
    host: problem.HostPrice,
    *,
    most_moves: int,
) -> tuple[Phase, ...]:
    """One phase of moves for each of these nodes that is worth emptying, up to `most_moves` moves in total.

    A node is emptied where its price for as long as that is expected to last exceeds the price of moving its pods; no
    other term counts. Each is weighed in the fleet as the earlier moves leave it. Pods of gangs and pods that may not
    be moved stay, and so does a node that runs one of them. nodes: `candidates`, in this order.
    """
    names, usd = snapshot.nodes.names, problem.batch_of(snapshot, host).node_usd
    phases: list[Phase] = []
    now, moves, received = snapshot, 0, set[int]()
    for node in nodes:
        if node in received:
            continue  # a pod moves once in a plan
        pods = now.pods
        rows = np.flatnonzero((pods.node == node) & ((pods.priority < problem.SYSTEM_PRIORITY) | (pods.devices != 0)))
        cost = sum(price.of(pods.shapes[pods.shape[row]]) for row in rows.tolist())
        saving = float(usd[node]) * price.stay_h
        seats = _elsewhere(now, node, rows, host) if len(rows) and saving > cost else None
        if seats is None or moves + len(seats) > most_moves:
            continue
        moves += len(seats)
        received.update(seats.node.tolist())
        words = (
            f"empties {names[node]}, which saves ${saving:.2f} while it stays empty; moving its pods costs ${cost:.2f}"
        )
        reason = Reason("EmptiesNode", words, {"saving_usd": saving, "price_usd": cost})
        steps = tuple(
            Step(Move(pods.names[row], names[node], names[to], device_numbers(devices)), reason)
            for row, to, devices in zip(seats.row.tolist(), seats.node.tolist(), seats.devices.tolist(), strict=True)
        )
        phases.append(Phase(f"consolidate-{len(phases) + 1}", steps))
        now = now.after(step.action for step in steps)
    return tuple(phases)


def candidates(snapshot: Snapshot, host: problem.HostPrice) -> Sequence[int]:
    """Nodes whose pods may all be moved, the most expensive first, then those with fewest pods."""
    pods, usd = snapshot.pods, problem.batch_of(snapshot, host).node_usd
    runs = (pods.node != PENDING) & ((pods.priority < problem.SYSTEM_PRIORITY) | (pods.devices != 0))
    fixed = runs & (~(pods.movable & pods.may_be_stopped) | (pods.gang >= 0))
    if (plain := proposal.by_batch(snapshot)) is not None:
        fixed |= runs & ~plain
    count = np.bincount(pods.node[runs], minlength=len(snapshot.nodes))
    held = np.bincount(pods.node[fixed], minlength=len(snapshot.nodes))
    able = np.flatnonzero((count > 0) & (held == 0))
    order: list[int] = able[np.lexsort((able, count[able], -usd[able]))].tolist()
    return order


def _elsewhere(snapshot: Snapshot, node: int, rows: IntArray, host: problem.HostPrice) -> pod_assignment.Seats | None:
    """Placements of these pods of a node, if they fit on other active nodes."""
    nowhere = pod_assignment.Seats(rows, np.full(len(rows), PENDING), np.zeros(len(rows), dtype=np.int64))
    pending = ladder.seated(snapshot, nowhere)
    among = np.zeros(len(snapshot.pods), dtype=np.bool_)
    among[rows] = True
    table = assignment_table.Table(problem.batch_of(pending, host, among), pending.free())
    elsewhere = table.batch.in_use.copy()
    elsewhere[node] = False
    table.fit_all(elsewhere)
    if table.left.any():
        return None
    seats, _ = pod_assignment.seat_pods(pending, table, among)
    return None if len(proposal.within_limits(pending, seats)[1]) else seats
