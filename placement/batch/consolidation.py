"""Consolidation: a node is emptied where its pods fit elsewhere and its price exceeds the price of the moves."""

from collections.abc import Iterable, Sequence

import numpy as np

from cluster.actions import Move
from cluster.arrays import BoolArray
from cluster.plans import Phase, Reason, Step
from cluster.snapshot import PENDING, PodTable, Snapshot, device_numbers
from placement.batch.problem import SYSTEM_PRIORITY, node_usd
from placement.engine.packer import Packer
from placement.move_price import MovePrice
from placement.packing.draft import PackingDraft
from placement.packing.preemption import may_all_leave


def emptying(
    snapshot: Snapshot, packer: Packer, nodes: Iterable[int], price: MovePrice, *, most_moves: int
) -> tuple[Phase, ...]:
    """One phase of moves for each of these nodes that is worth emptying, up to `most_moves` moves in total.

    A node is emptied where its price for as long as that is expected to last exceeds the price of moving its pods; no
    other term counts. Each is weighed in the fleet as the earlier moves leave it. Pods of gangs and pods that may not
    be moved stay, and so does a node that runs one of them. nodes: `candidates`, in this order.
    """
    draft, usd, is_users = PackingDraft(snapshot, packer), node_usd(snapshot), _is_users(snapshot.pods)
    names, pods, phases = snapshot.nodes.names, snapshot.pods, list[Phase]()
    for node in nodes:
        rows = [row for row in draft.pods_on(node) if is_users[row]]
        cost, saving = sum(price.of(draft.shape(row)) for row in rows), float(usd[node]) * price.stay_h
        is_useful = bool(rows) and saving > cost and len(draft.moved) + len(rows) <= most_moves
        if not is_useful or not draft.moved.isdisjoint(rows) or not may_all_leave(draft, rows):
            continue  # a pod moves once in a plan
        elsewhere = np.zeros(len(names), dtype=np.bool_)
        elsewhere[draft.node[is_users & (draft.node != PENDING)]] = True
        elsewhere[node] = False
        mark = draft.mark
        for row in rows:
            draft.unseat(row)
        rows.sort(key=lambda row: (-draft.shape(row).total_gpu_milli, -draft.shape(row).cpu_milli, row))
        if not all(draft.seat(row, elsewhere) for row in rows):
            draft.roll_back(mark)
            continue
        draft.moved.update(rows)
        words = (
            f"empties {names[node]}, which saves ${saving:.2f} while it stays empty; moving its pods costs ${cost:.2f}"
        )
        reason = Reason("EmptiesNode", words, {"saving_usd": saving, "price_usd": cost})
        steps = (
            Move(pods.names[row], names[node], names[int(draft.node[row])], device_numbers(int(draft.devices[row])))
            for row in sorted(rows)
        )
        phases.append(Phase(f"consolidate-{len(phases) + 1}", tuple(Step(each, reason) for each in steps)))
    return tuple(phases)


def candidates(snapshot: Snapshot) -> Sequence[int]:
    """Nodes whose pods may all be moved, the most expensive first, then those with fewest pods."""
    pods, usd = snapshot.pods, node_usd(snapshot)
    runs = (pods.node != PENDING) & _is_users(pods)
    fixed = runs & (~(pods.movable & pods.may_be_stopped) | (pods.gang >= 0))
    count = np.bincount(pods.node[runs], minlength=len(snapshot.nodes))
    held = np.bincount(pods.node[fixed], minlength=len(snapshot.nodes))
    able = np.flatnonzero((count > 0) & (held == 0))
    order: list[int] = able[np.lexsort((able, count[able], -usd[able]))].tolist()
    return order


def _is_users(pods: PodTable) -> BoolArray:
    """Pods that are not the node's own, which stay there. Shape (pods,)."""
    return np.asarray((pods.priority < SYSTEM_PRIORITY) | (pods.devices != 0), dtype=np.bool_)
