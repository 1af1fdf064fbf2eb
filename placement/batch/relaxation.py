"""Second stage: the batch as a linear program over classes and kinds, in milliseconds: prices, targets, a bound.

As in `problem.py`, with the patterns of a kind replaced by the totals of its nodes:

Variables  y_k ≥ 0: nodes of kind k that run;  x_ck ≥ 0: pods on them;  z_cg, s_c as there
Objective  min Σ_k usd_k y_k + Σ_c u_c s_c
Subject to Σ_k x_ck + Σ_g z_cg + s_c ≥ d_c         demand;   dual π_c
           Σ_c ask_cr x_ck ≤ room_kr y_k            resources of a kind
           x_ck ≤ copies_ck y_k                      no node runs more than fit on it when it is empty
           Σ_c ask_cr z_cg ≤ room_gr                 resources of a group
           y_k ≤ N_k,  z_cg ≤ copies_cg

Every plan is a point of it, so its optimum is a bound. What is returned follows from prices by arithmetic alone, so it
does not depend on the solver's tolerances. For any prices π_c ≥ 0 of pods with π_c ≤ u_c, from any source:

    cost of any plan ≥ Σ_c π_c d_c - Σ_k N_k max(0, U_k - usd_k) - Σ_g U_g

when U_k is at least what the pods on one node of kind k can be worth under π, and U_g what the pods on all nodes of
group g can. (Lagrangian relaxation of the demand rows of `problem.py`; Lasdon, Optimization Theory for Large Systems,
1970, chapter 3.) Such ceilings come from resource prices by `ceilings`, from a complete search or from a solver's
proven bound (`column_generation.py`); never from an interrupted search.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import FloatArray, IntArray
from placement.batch.columns import Proof, aligned_proof
from placement.batch.problem import Batch
from placement.highs_program import Entries, Program, TreeSearch, joined


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices of pods and of resources: the duals of a relaxation, kept feasible by their users."""

    pod_usd: FloatArray
    """π, dollars an hour, shape (classes,)."""
    kind_resource_usd: FloatArray
    """Price per unit of a resource on a node of a kind, shape (kinds, resources)."""
    group_resource_usd: FloatArray
    """Shape (groups, resources)."""


def ceilings(pod_usd: FloatArray, ask: FloatArray, room: FloatArray, copies: IntArray, usd: FloatArray) -> FloatArray:
    """Maximum worth of the pods in some rooms: valid for any resource prices `usd` ≥ 0, tight for good ones.

    Σ_c π_c n_c = Σ_c (π_c - usd·ask_c) n_c + usd·Σ_c ask_c n_c ≤ Σ_c copies_c max(0, π_c - usd·ask_c) + usd·room

    room, usd: shape (rooms, resources); copies: shape (classes, rooms). Returns shape (rooms,).
    """
    surplus = np.maximum(pod_usd[:, None] - ask @ usd.T, 0.0)
    most: FloatArray = (copies * surplus).sum(axis=0) + (usd * room).sum(axis=1)
    return most


def group_ceilings(batch: Batch, prices: Prices) -> FloatArray:
    """U_g, shape (groups,)."""
    return ceilings(prices.pod_usd, batch.ask, batch.group_room, batch.group_copies, prices.group_resource_usd)


def kind_ceilings(batch: Batch, prices: Prices) -> FloatArray:
    """U_k by resource prices, without any search. Shape (kinds,)."""
    return ceilings(prices.pod_usd, batch.ask, batch.kind_room, batch.kind_copies, prices.kind_resource_usd)


def proven_usd(batch: Batch, pod_usd: FloatArray, kind_ceiling: FloatArray, group_ceiling: FloatArray) -> float:
    """Lower bound on the price per hour of every plan for the batch in dollars, left-out pods included."""
    affordable = np.clip(pod_usd, 0.0, batch.left_out_usd)
    # Clipping lowers no ceiling below the value under the clipped prices, so ceilings of the given prices still hold.
    profit = np.maximum(kind_ceiling - batch.kind_usd, 0.0)
    return max(0.0, float(affordable @ batch.pods - batch.kind_nodes @ profit - group_ceiling.sum()))


@dataclass(frozen=True, slots=True, eq=False)
class Relaxed:
    """Solution of the program."""

    bound_usd: float
    """Lower bound on the price per hour of every plan, in dollars."""
    prices: Prices
    on_kind: FloatArray
    """x: pods per kind, fractions included. Shape (classes, kinds)."""
    in_group: FloatArray
    """z: pods on nodes in use. Shape (classes, groups)."""
    kind_nodes: FloatArray
    """y: nodes per kind, fractions included. Shape (kinds,)."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Maximum worth of the pods on one node of each kind, and on a whole group, under some prices."""

    pod_usd: FloatArray
    """π ≥ 0, shape (classes,)."""
    kind_ceiling: FloatArray
    """U_k, shape (kinds,); infinite where unknown."""
    group_ceiling: FloatArray
    """U_g, shape (groups,)."""


def cut_of(batch: Batch, relaxation: Relaxed, proof: Proof) -> Cut:
    """Ceilings of a proof for this problem or a similar one, each the lower of the proof's and that by resources."""
    pod_usd, ceiling = aligned_proof(proof, batch)
    prices = replace(relaxation.prices, pod_usd=pod_usd)
    return Cut(pod_usd, np.minimum(ceiling, kind_ceilings(batch, prices)), group_ceilings(batch, prices))


class _Layout:
    """Positions of columns y (from 0), x, z, s, and of rows demand, kinds' resources, links, groups' resources."""

    def __init__(self, batch: Batch) -> None:
        classes, resources = batch.ask.shape
        kinds, groups = len(batch.kinds), batch.group_room.shape[0]
        self.c, self.k = np.nonzero(batch.kind_copies)
        self.cg, self.g = np.nonzero(batch.group_copies)
        first_x, first_z = kinds, kinds + len(self.c)
        first_s = first_z + len(self.cg)
        self.x = first_x + np.arange(len(self.c))
        self.z = first_z + np.arange(len(self.cg))
        self.s = first_s + np.arange(classes)
        first_link = classes + kinds * resources
        self.kind_row = classes + np.arange(kinds * resources).reshape(kinds, resources)
        self.link_row = first_link + np.arange(len(self.c))
        first_group = first_link + len(self.c)
        self.group_row = first_group + np.arange(groups * resources).reshape(groups, resources)
        self.rows = first_group + groups * resources


def relaxed(batch: Batch) -> Relaxed:
    """Solves the relaxation. 25 classes, 9 kinds: 4 ms."""
    classes, resources = batch.ask.shape
    kinds, groups = len(batch.kinds), batch.group_room.shape[0]
    at = _Layout(batch)
    program = _program(batch, at, (), None)
    if not program.solve():
        # Leaving everything out is feasible and costs are not negative, so any other status is a solver failure.
        raise RuntimeError("relaxing a batch: HiGHS found no optimum")
    dual, value = program.row_duals, program.values
    prices = Prices(
        pod_usd=np.clip(dual[:classes], 0.0, batch.left_out_usd),
        kind_resource_usd=np.maximum(-dual[at.kind_row], 0.0).reshape(kinds, resources),
        group_resource_usd=np.maximum(-dual[at.group_row], 0.0).reshape(groups, resources),
    )
    on_kind, in_group = np.zeros((classes, kinds)), np.zeros((classes, groups))
    on_kind[at.c, at.k], in_group[at.cg, at.g] = value[at.x], value[at.z]
    bound = proven_usd(batch, prices.pod_usd, kind_ceilings(batch, prices), group_ceilings(batch, prices))
    return Relaxed(bound, prices, on_kind, in_group, value[:kinds])


def _program(batch: Batch, at: _Layout, cuts: Sequence[Cut], whole: TreeSearch | None) -> Program:
    """Program in fractions, or in whole nodes and whole pods.

    Each cut adds Σ_c π_c x_ck ≤ U_k y_k for every kind and Σ_c π_c z_cg ≤ U_g for every group: true of every plan.
    """
    classes, resources = batch.ask.shape
    kinds = len(batch.kinds)
    c, k, cg, g = at.c, at.k, at.cg, at.g
    upper = np.zeros(at.rows)
    upper[:classes] = np.inf
    upper[at.group_row.reshape(-1)] = batch.group_room.reshape(-1)
    of_cuts: list[Entries] = []
    row = at.rows
    for cut in cuts:  # one row per kind, then one per group; a kind without a ceiling has a row without a limit
        known = np.flatnonzero(np.isfinite(cut.kind_ceiling))
        of_cuts += [
            Entries(row + k, at.x, cut.pod_usd[c]),
            Entries(row + known, known, -cut.kind_ceiling[known]),
            Entries(row + kinds + g, at.z, cut.pod_usd[cg]),
        ]
        limits = np.where(np.isfinite(cut.kind_ceiling), 0.0, np.inf)
        upper = np.concatenate([upper, limits, cut.group_ceiling])
        row = len(upper)
    lower = np.full(len(upper), -np.inf)
    lower[:classes] = batch.pods
    most = np.concatenate([batch.kind_nodes, np.full(len(c), np.inf), batch.group_copies[cg, g], batch.pods])
    return Program(
        cost=np.concatenate([batch.kind_usd, np.zeros(len(c) + len(cg)), batch.left_out_usd]),
        upper=most.astype(np.float64),
        row_lower=lower,
        row_upper=upper,
        entries=joined(
            Entries(c, at.x, np.ones(len(c))),
            Entries(cg, at.z, np.ones(len(cg))),
            Entries(np.arange(classes), at.s, np.ones(classes)),
            Entries(at.kind_row.reshape(-1), np.repeat(np.arange(kinds), resources), -batch.kind_room.reshape(-1)),
            Entries(at.kind_row[k].reshape(-1), np.repeat(at.x, resources), batch.ask[c].reshape(-1)),
            Entries(at.link_row, at.x, np.ones(len(c))),
            Entries(at.link_row, k, -batch.kind_copies[c, k].astype(np.float64)),
            Entries(at.group_row[g].reshape(-1), np.repeat(at.z, resources), batch.ask[cg].reshape(-1)),
            *of_cuts,
        ),
        whole=whole,
    )


MOST_CUTS = 4
"""Proofs that are used, the best first. Chosen: more made the program larger and the bound no better."""
MOST_NODES = 50
"""Nodes of the tree search. Chosen: the root proves nearly all of it, on 1,000 pods and 100 nodes in 0.1 to 0.8 s."""
GAP = 1e-4
"""Distance at which the tree search stops, as a fraction of a plan's price of nodes."""
SLACK = 1e-5
"""Fraction that is subtracted from the bound: the solver keeps to rows and whole numbers within 1e-6."""


def whole_bound(batch: Batch, relaxation: Relaxed, proofs: Sequence[Proof], node_usd: float) -> float:
    """Lower bound on the price per hour of every plan in dollars, by whole nodes and pods; 0 where none was proven.

    In a pool of 100 nodes, the bound of fractions may be low by a node, and it is unknown whether the plan or the bound
    is to blame. The relaxation in whole numbers, cut by the proofs of pricing for single nodes, is small whatever the
    number of pods.

    proofs: for this problem or a similar one. node_usd: price of the nodes in the best known plan.
    """
    cuts = [cut_of(batch, relaxation, proof) for proof in proofs[:MOST_CUTS]]
    gap = GAP * min(1.0, node_usd / max(relaxation.bound_usd, 1e-9))
    program = _program(batch, _Layout(batch), cuts, TreeSearch(MOST_NODES, gap))
    program.solve()  # its bound counts whether the search ended or was interrupted
    return max(0.0, program.proven * (1 - SLACK)) if np.isfinite(program.proven) else 0.0
