"""Whole nodes from fractions of patterns or targets: a dive, best fit, and trials of empty nodes."""

from collections.abc import Sequence

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.capacity import Free
from placement.batch.assignment_table import Table
from placement.batch.column_generation import Effort, SearchResult, pattern_entries
from placement.batch.columns import Columns
from placement.batch.problem import Batch
from placement.batch.relaxation import Relaxed
from placement.highs_program import Entries, Program, joined

WHOLE = 1e-6
"""Distance from a whole number within which a fraction counts as whole."""


def rounded(batch: Batch, free: Free, found: SearchResult, effort: Effort) -> Table:
    """Best whole plan of a dive from the fractions, with or without its last nodes.

    A dive keeps all whole parts, solves the small program of the rest, rounds the largest fraction up, and so on; every
    step is a handful of simplex iterations.
    """
    whole = np.floor(found.nodes + WHOLE).astype(np.int64)
    steps = _dive(batch, found, whole)
    kept = (steps[: len(steps) - without] for without in range(min(effort.last_nodes, len(steps)) + 1))
    tables = (deal_patterns(batch, free, found.columns, (whole, *some), found.in_group) for some in kept)
    return min(tables, key=lambda table: table.usd_per_hour)


def _dive(batch: Batch, found: SearchResult, whole: IntArray) -> list[IntArray]:
    """Numbers of nodes per column, step by step, until no pods are left or no step helps."""
    columns, classes = found.columns, len(batch.shapes)
    in_use = np.floor(found.in_group.sum(axis=1) + WHOLE)
    rest = np.maximum(batch.pods - whole @ columns.pattern - in_use, 0.0)
    nodes = (batch.kind_nodes - np.bincount(columns.kind, weights=whole, minlength=len(batch.kinds))).astype(np.float64)
    program = _pattern_program(batch, columns, rest, nodes)
    unlimited, free_rows = np.full(classes, np.inf), np.full(len(nodes), -np.inf)
    steps: list[IntArray] = []
    while len(columns) and rest.any() and program.solve():
        fraction = program.values[: len(columns)]
        step = np.floor(fraction + WHOLE).astype(np.int64)
        if not step.any():
            column = int(fraction.argmax())
            if fraction[column] <= WHOLE or nodes[columns.kind[column]] < 1:
                break
            step[column] = 1
        steps.append(step)
        rest = np.maximum(rest - step @ columns.pattern, 0.0)
        nodes = nodes - np.bincount(columns.kind, weights=step, minlength=len(nodes))
        program.limit_rows(np.concatenate([rest, free_rows]), np.concatenate([unlimited, nodes]))
    return steps


def _pattern_program(batch: Batch, columns: Columns, demand: FloatArray, nodes: FloatArray) -> Program:
    """Nodes per pattern and pods left out, for a demand by class and a number of nodes by kind."""
    classes, count = len(batch.shapes), len(columns)
    return Program(
        cost=np.concatenate([batch.kind_usd[columns.kind], batch.left_out_usd]),
        upper=np.full(count + classes, np.inf),
        row_lower=np.concatenate([demand, np.full(len(nodes), -np.inf)]),
        row_upper=np.concatenate([np.full(classes, np.inf), nodes]),
        entries=joined(
            pattern_entries(columns, classes),
            Entries(np.arange(classes), count + np.arange(classes), np.ones(classes)),
        ),
    )


def deal_patterns(batch: Batch, free: Free, columns: Columns, nodes: Sequence[IntArray], in_group: FloatArray) -> Table:
    """Placements on nodes in use first, then one node after the other by its pattern, then the rest by best fit.

    nodes: numbers of nodes per column, one array after the other; the last nodes get fewer pods where patterns together
    hold more than are pending.
    """
    table = Table(batch, free)
    content = np.zeros((len(batch.kind), len(batch.shapes)), dtype=np.int64)
    waiting = [np.flatnonzero(batch.kind == k) for k in range(len(batch.kinds))]
    opened: list[IntArray] = []
    for counts in nodes:
        for column in np.flatnonzero(counts).tolist():
            k = int(columns.kind[column])
            taken, waiting[k] = np.split(waiting[k], [int(counts[column])])
            content[taken] = columns.pattern[column]
            opened.append(taken)
    order = np.concatenate(opened) if opened else np.zeros(0, dtype=np.int64)
    for c in table.batch.order.tolist():
        for g in np.flatnonzero(in_group[c] > WHOLE).tolist():
            table.fit(c, int(in_group[c, g] + WHOLE), batch.group == g)
        table.seat(c, order, content[order, c])
    table.fit_all()
    return table


def deal_by_targets(batch: Batch, free: Free, relaxation: Relaxed) -> Table:
    """Deals the relaxation's pods, in whole numbers, to nodes in use and to each kind by best fit; then the rest.

    A kind gets no more nodes than the relaxation runs of it (rounded up) until all targets were tried.
    """
    table = Table(batch, free)
    allowed = [batch.group == g for g in range(len(batch.group_room))]
    targets = [relaxation.in_group[:, g] for g in range(len(allowed))]
    for k in range(len(batch.kinds)):
        nodes = np.flatnonzero(batch.kind == k)[: int(np.ceil(relaxation.kind_nodes[k] - 1e-6))]
        among = np.zeros(len(batch.kind), dtype=np.bool_)
        among[nodes] = True
        allowed.append(among)
        targets.append(relaxation.on_kind[:, k])
    for c in table.batch.order.tolist():
        for among, target in zip(allowed, targets, strict=True):
            if (most := round(float(target[c]))) and table.left[c]:
                table.fit(c, most, among)
    table.fit_all()
    return table


WORTH_TRYING = 1e-9
"""Smallest gain in dollars an hour that counts; less is rounding."""


def improved(table: Table, pod_usd: FloatArray, tries: int) -> Table:
    """Best table after that many trials; never more expensive than the given one. pod_usd: shape (classes,).

    Pods that are left out come first, then nodes: one is emptied on trial, and its pods are placed elsewhere.
    """
    spent = 0
    for c in table.batch.order.tolist():
        while table.left[c] and spent < tries:
            better, used = _freed_for(table, c, tries - spent)
            spent += used
            if better is None:
                break
            table = better
    while spent < tries:
        better, used = _emptied_one(table, pod_usd, tries - spent)
        spent += used
        if better is None:
            break
        table = better
    return table


def _emptied_one(table: Table, pod_usd: FloatArray, tries: int) -> tuple[Table | None, int]:
    """Table after the first node that is better empty, and the number of trials.

    Nodes whose pods are worth little per dollar of them come first: they are the likeliest to be saved.
    """
    batch = table.batch
    opened = np.flatnonzero(table.running & ~batch.in_use & (batch.kind >= 0))
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
