"""The second rung: the batch as a linear program over classes and kinds, in milliseconds: prices, targets, a bound.

As in `question.py`, with the patterns of a kind replaced by what its nodes have all together:

Variables  y_k ≥ 0: nodes of kind k that run;  x_ck ≥ 0: pods on them;  z_cg, s_c as there
Objective  min Σ_k usd_k y_k + Σ_c u_c s_c
Subject to Σ_k x_ck + Σ_g z_cg + s_c ≥ d_c         demand;   dual π_c
           Σ_c ask_cr x_ck ≤ room_kr y_k            resources of a kind
           x_ck ≤ copies_ck y_k                      no node runs more than fit on it when it is empty
           Σ_c ask_cr z_cg ≤ room_gr                 resources of a group
           y_k ≤ N_k,  z_cg ≤ copies_cg

Every plan is a point of it, so its optimum is a bound; what is returned as the bound follows from the duals by
arithmetic (`bound.py`), so it does not hang on the solver's tolerances.
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray
from placement.batch.bound import Prices, group_ceilings, kind_ceilings, proven_usd
from placement.batch.program import Entries, Program, joined
from placement.batch.question import Batch


@dataclass(frozen=True, slots=True, eq=False)
class Relaxed:
    """The program's answer."""

    bound_usd: float
    """Dollars an hour that every plan costs at least."""
    prices: Prices
    on_kind: FloatArray
    """x: pods per kind, fractions included. Shape (classes, kinds)."""
    in_group: FloatArray
    """z: pods on nodes in use. Shape (classes, groups)."""
    kind_nodes: FloatArray
    """y: nodes per kind, fractions included. Shape (kinds,)."""


def relaxed(batch: Batch) -> Relaxed:
    """Solve it. 25 classes, 9 kinds: 4 ms."""
    classes, resources = batch.ask.shape
    kinds, groups = len(batch.kinds), batch.group_room.shape[0]
    c, k = np.nonzero(batch.kind_copies)
    cg, g = np.nonzero(batch.group_copies)
    first_x, first_z = kinds, kinds + len(c)
    first_s = first_z + len(cg)
    x, z, s = first_x + np.arange(len(c)), first_z + np.arange(len(cg)), first_s + np.arange(classes)
    kind_row = classes + np.arange(kinds * resources).reshape(kinds, resources)
    link_row = classes + kinds * resources + np.arange(len(c))
    group_row = classes + kinds * resources + len(c) + np.arange(groups * resources).reshape(groups, resources)
    rows = classes + kinds * resources + len(c) + groups * resources
    y_column = np.repeat(np.arange(kinds), resources)
    entries = joined(
        Entries(c, x, np.ones(len(c))),
        Entries(cg, z, np.ones(len(cg))),
        Entries(np.arange(classes), s, np.ones(classes)),
        Entries(kind_row.reshape(-1), y_column, -batch.kind_room.reshape(-1)),
        Entries(kind_row[k].reshape(-1), np.repeat(x, resources), batch.ask[c].reshape(-1)),
        Entries(link_row, x, np.ones(len(c))),
        Entries(link_row, k, -batch.kind_copies[c, k].astype(np.float64)),
        Entries(group_row[g].reshape(-1), np.repeat(z, resources), batch.ask[cg].reshape(-1)),
    )
    lower = np.full(rows, -np.inf)
    lower[:classes] = batch.pods
    upper = np.zeros(rows)
    upper[:classes] = np.inf
    upper[group_row.reshape(-1)] = batch.group_room.reshape(-1)
    program = Program(
        cost=np.concatenate([batch.kind_usd, np.zeros(len(c) + len(cg)), batch.left_out_usd]),
        upper=np.concatenate([batch.kind_nodes, np.full(len(c), np.inf), batch.group_copies[cg, g], batch.pods]).astype(
            float
        ),
        row_lower=lower,
        row_upper=upper,
        entries=entries,
    )
    if not program.solve():
        # Leaving everything out is feasible and costs are not negative, so any other end is a broken solver.
        raise RuntimeError("relaxing a batch: HiGHS found no optimum")
    dual, value = program.row_duals, program.values
    prices = Prices(
        pod_usd=np.clip(dual[:classes], 0.0, batch.left_out_usd),
        kind_resource_usd=np.maximum(-dual[kind_row], 0.0).reshape(kinds, resources),
        group_resource_usd=np.maximum(-dual[group_row], 0.0).reshape(groups, resources),
    )
    on_kind, in_group = np.zeros((classes, kinds)), np.zeros((classes, groups))
    on_kind[c, k], in_group[cg, g] = value[x], value[z]
    bound = proven_usd(batch, prices.pod_usd, kind_ceilings(batch, prices), group_ceilings(batch, prices))
    return Relaxed(bound, prices, on_kind, in_group, value[:kinds])
