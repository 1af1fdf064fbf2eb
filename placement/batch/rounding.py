"""Rounding of pattern fractions to whole nodes: whole parts stay, a dive rounds the small rest, best fit fills up."""

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.snapshot import Free
from placement.batch.assignment_table import Table
from placement.batch.lp.column_generation import Effort, SearchResult, pattern_entries
from placement.batch.lp.columns import Columns
from placement.batch.lp.highs_program import Entries, Program, joined
from placement.batch.problem import Batch

WHOLE = 1e-6
"""Distance from a whole number within which a fraction counts as whole."""


def rounded(batch: Batch, free: Free, found: SearchResult, effort: Effort) -> Table:
    """Best whole plan of the dives from the fractions.

    A dive keeps all whole parts, solves the small program of the rest, rounds the largest fraction up, and so on; every
    step is a handful of simplex iterations. The second dive begins with the second largest fraction, and so on (limited
    discrepancy; Harvey and Ginsberg, IJCAI 1995).
    """
    whole = np.floor(found.nodes + WHOLE).astype(np.int64)
    best = None
    for first in range(effort.dives if found.is_last else effort.checkpoint_dives):
        steps = _dive(batch, found, whole, first)
        for without in range(min(effort.last_nodes, len(steps)) + 1):
            kept = steps[: len(steps) - without]
            table = deal_patterns(batch, free, found.columns, (whole, *kept), found.in_group)
            if best is None or table.usd_per_hour < best.usd_per_hour:
                best = table
    return best or deal_patterns(batch, free, found.columns, (whole,), found.in_group)


def _dive(batch: Batch, found: SearchResult, whole: IntArray, first: int) -> list[IntArray]:
    """Numbers of nodes per column, step by step, until no pods are left or no step helps.

    first: the fraction that is rounded up first, counted from the largest.
    """
    columns, classes = found.columns, len(batch.shapes)
    if not len(columns):
        return []
    in_use = np.floor(found.in_group.sum(axis=1) + WHOLE)
    rest = np.maximum(batch.pods - whole @ columns.pattern - in_use, 0.0)
    nodes = (batch.kind_nodes - np.bincount(columns.kind, weights=whole, minlength=len(batch.kinds))).astype(np.float64)
    program = _program_of_the_rest(batch, columns, rest, nodes)
    unlimited, free_rows = np.full(classes, np.inf), np.full(len(nodes), -np.inf)
    steps: list[IntArray] = []
    while rest.any() and program.solve():
        fraction = program.values[: len(columns)]
        step = np.floor(fraction + WHOLE).astype(np.int64)
        if not step.any():
            column = int(np.argsort(-fraction, kind="stable")[min(first, len(fraction) - 1)])
            first = 0
            if fraction[column] <= WHOLE or nodes[columns.kind[column]] < 1:
                break
            step[column] = 1
        steps.append(step)
        rest = np.maximum(rest - step @ columns.pattern, 0.0)
        nodes = nodes - np.bincount(columns.kind, weights=step, minlength=len(nodes))
        program.limit_rows(np.concatenate([rest, free_rows]), np.concatenate([unlimited, nodes]))
    return steps


def _program_of_the_rest(batch: Batch, columns: Columns, rest: FloatArray, nodes: FloatArray) -> Program:
    classes, count = len(batch.shapes), len(columns)
    return Program(
        cost=np.concatenate([batch.kind_usd[columns.kind], batch.left_out_usd]),
        upper=np.full(count + classes, np.inf),
        row_lower=np.concatenate([rest, np.full(len(nodes), -np.inf)]),
        row_upper=np.concatenate([np.full(classes, np.inf), nodes]),
        entries=joined(
            pattern_entries(columns, classes),
            Entries(np.arange(classes), count + np.arange(classes), np.ones(classes)),
        ),
    )


def deal_patterns(
    batch: Batch, free: Free, columns: Columns, nodes: tuple[IntArray, ...], in_group: FloatArray
) -> Table:
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
    for c in table.order.tolist():
        for g in np.flatnonzero(in_group[c] > WHOLE).tolist():
            table.fit(c, int(in_group[c, g] + WHOLE), batch.group == g)
        table.seat(c, order, content[order, c])
    table.fit_all()
    return table
