"""Local search: empties one node on trial, places its pods elsewhere, and keeps the plan if it is cheaper.

Prices decide the order: a node whose pods are worth little per dollar of it is the likeliest to be saved.
"""

import numpy as np

from cluster.arrays import FloatArray
from placement.batch.assignment_table import Table

WORTH_TRYING = 1e-9
"""Smallest gain in dollars an hour that counts; less is rounding."""


def improved(table: Table, pod_usd: FloatArray, tries: int) -> Table:
    """Best table after that many trials; never more expensive than the given one. pod_usd: shape (classes,)."""
    spent = 0
    table, spent = _place_left_out(table, tries)
    while spent < tries:
        better, used = _emptied_one(table, pod_usd, tries - spent)
        spent += used
        if better is None:
            break
        table = better
    return table


def _emptied_one(table: Table, pod_usd: FloatArray, tries: int) -> tuple[Table | None, int]:
    """Table after the first node that is better empty, and the number of trials."""
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


def _place_left_out(table: Table, tries: int) -> tuple[Table, int]:
    """Placements for left-out pods, freed by moving others elsewhere. Returns the table and the number of trials."""
    spent = 0
    for c in table.order.tolist():
        while table.left[c] and spent < tries:
            better, used = _freed_for(table, c, tries - spent)
            spent += used
            if better is None:
                break
            table = better
    return table, spent


def _freed_for(table: Table, c: int, tries: int) -> tuple[Table | None, int]:
    """Table in which one class left a node to a pod of class c and is placed elsewhere, and the number of trials."""
    batch = table.batch
    nodes = np.flatnonzero(batch.eligible[c] & table.content.any(axis=1))
    spent = 0
    # Pods that may use many nodes are the likeliest to fit elsewhere.
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
