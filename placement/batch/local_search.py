"""Improves a plan node by node: empties one on trial, seats its pods elsewhere, and keeps what is cheaper so.

Prices tell where to look first: a node whose pods are worth little per dollar of it is the likeliest to be saved.
"""

import numpy as np

from cluster.arrays import FloatArray
from placement.batch.assignment_table import Table

WORTH_TRYING = 1e-9
"""Dollars an hour; a gain below it is rounding."""


def improved(table: Table, pod_usd: FloatArray, tries: int) -> Table:
    """The best table that so many trials lead to; never dearer than the given one. pod_usd: shape (classes,)."""
    spent = 0
    table, spent = _seat_left_out(table, tries)
    while spent < tries:
        better, used = _closed_one(table, pod_usd, tries - spent)
        spent += used
        if better is None:
            break
        table = better
    return table


def _closed_one(table: Table, pod_usd: FloatArray, tries: int) -> tuple[Table | None, int]:
    """The table after the first node that is better empty, and how many were tried."""
    batch = table.batch
    opened = np.flatnonzero(table.room.running & ~batch.in_use & (batch.kind >= 0))
    worth = table.content[opened] @ pod_usd / np.maximum(batch.node_usd[opened], 1e-9)
    for number, node in enumerate(opened[np.argsort(worth, kind="stable")][:tries].tolist(), start=1):
        trial = table.copy()
        trial.vacate(node)
        elsewhere = np.ones(len(batch.kind), dtype=np.bool_)
        elsewhere[node] = False
        trial.fit_all(elsewhere)
        if trial.usd_per_hour < table.usd_per_hour - WORTH_TRYING:
            return trial, number
    return None, min(tries, len(opened))


def _seat_left_out(table: Table, tries: int) -> tuple[Table, int]:
    """Seats for pods that found none, where others that can go elsewhere make room; and how many trials it took."""
    spent = 0
    for c in table.order.tolist():
        while table.left[c] and spent < tries:
            better, used = _made_room(table, c, tries - spent)
            spent += used
            if better is None:
                break
            table = better
    return table, spent


def _made_room(table: Table, c: int, tries: int) -> tuple[Table | None, int]:
    """The table after one class left one node to a pod of class c and sits elsewhere, and how many were tried."""
    batch = table.batch
    nodes = np.flatnonzero(batch.eligible[c] & table.content.any(axis=1))
    spent = 0
    # Pods that may go to many nodes are the likeliest to find another seat.
    flexible = np.argsort(-batch.eligible.sum(axis=1), kind="stable")
    for other in flexible.tolist():
        if other == c or batch.eligible[other].sum() <= batch.eligible[c].sum():
            continue
        holders = nodes[table.content[nodes, other] > 0]
        for node in holders[np.argsort(-table.content[holders, other], kind="stable")].tolist():
            if spent >= tries:
                return None, spent
            spent += 1
            trial = table.copy()
            trial.vacate(node, other)
            here = np.zeros(len(batch.kind), dtype=np.bool_)
            here[node] = True
            if trial.fit(c, among=here):
                trial.fit_all()
            if trial.usd_per_hour < table.usd_per_hour - WORTH_TRYING:
                return trial, spent
    return None, spent
