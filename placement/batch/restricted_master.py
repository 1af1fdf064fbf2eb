"""Top stage, for small pools and for the background: the restricted program in whole numbers, from the best plan.

Where one node is a percent of the cost, fractions mean little, and a tree search over the known patterns may still save
a node. It starts from the existing plan, so its result is never more expensive.
"""

import numpy as np

from cluster.arrays import IntArray
from cluster.snapshot import Free
from placement.batch.assignment_table import Table
from placement.batch.local_search import improved
from placement.batch.lp.column_generation import SearchResult, pattern_entries
from placement.batch.lp.columns import Columns, distinct
from placement.batch.lp.highs_program import Entries, Program, joined
from placement.batch.problem import Batch
from placement.batch.rounding import deal_patterns

POLISH_GAP = 2e-3
"""Distance from the optimum of the known patterns at which the tree search stops, as a fraction of the plan's price of
nodes."""


def polished(batch: Batch, free: Free, found: SearchResult, best: Table, *, most_nodes: int, tries: int) -> Table:
    """Better of the given plan and the result of a tree search of at most `most_nodes` nodes."""
    rows = np.flatnonzero((batch.kind >= 0) & best.content.any(axis=1))
    of_plan = distinct(best.content[rows], batch.kind[rows])
    columns = of_plan.plus(found.columns.pattern, found.columns.kind)
    if not len(columns):
        return best
    chosen = _whole_numbers(batch, columns, best, _counts(columns, best.content[rows], batch.kind[rows]), most_nodes)
    if chosen is None:
        return best
    table = deal_patterns(batch, free, columns, (chosen,), _in_use(batch, best).astype(np.float64))
    table = improved(table, found.prices.pod_usd, tries)
    return table if table.usd_per_hour < best.usd_per_hour else best


def _counts(columns: Columns, content: IntArray, kind: IntArray) -> IntArray:
    """Number of nodes that run each pattern, shape (columns,)."""
    number = {(int(k), row.tobytes()): n for n, (k, row) in enumerate(zip(columns.kind, columns.pattern, strict=True))}
    counts = np.zeros(len(columns), dtype=np.int64)
    for k, row in zip(kind, content, strict=True):
        counts[number[int(k), row.tobytes()]] += 1
    return counts


def _in_use(batch: Batch, table: Table) -> IntArray:
    """Pods of the plan on nodes in use, shape (classes, groups)."""
    groups = len(batch.group_room)
    return (
        np.array([table.content[batch.group == g].sum(axis=0) for g in range(groups)], dtype=np.int64)
        .reshape(groups, len(batch.shapes))
        .T
    )


def _whole_numbers(batch: Batch, columns: Columns, best: Table, start: IntArray, most_nodes: int) -> IntArray | None:
    """Nodes per pattern for all pods that the plan does not put on nodes in use; None: nothing was found."""
    classes, count = len(batch.shapes), len(columns)
    demand = (batch.pods - _in_use(batch, best).sum(axis=1)).astype(np.float64)
    nodes = batch.kind_nodes.astype(np.float64)
    program = Program(
        cost=np.concatenate([batch.kind_usd[columns.kind], batch.left_out_usd]),
        upper=np.concatenate([nodes[columns.kind], demand]),
        row_lower=np.concatenate([demand, np.full(len(nodes), -np.inf)]),
        row_upper=np.concatenate([np.full(classes, np.inf), nodes]),
        entries=joined(
            pattern_entries(columns, classes),
            Entries(np.arange(classes), count + np.arange(classes), np.ones(classes)),
        ),
        whole=True,
        most_nodes=most_nodes,
        gap=POLISH_GAP * best.node_usd / max(best.usd_per_hour, 1e-9),
    )
    program.start_from(np.concatenate([start, best.left]).astype(np.float64))
    return np.round(program.values[:count]).astype(np.int64) if program.solve() else None
