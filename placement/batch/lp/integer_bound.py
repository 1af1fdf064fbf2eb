"""Lower bound in whole nodes: where one node is percents of the cost, fractions of nodes prove too little.

In a pool of 100 nodes, the bound of fractions may be low by a node, and it is unknown whether the plan or the bound is
to blame. The relaxation in whole numbers (`relaxation.py`), cut by the proofs of pricing for single nodes, is small
whatever the number of pods, and HiGHS bounds it in tenths of a second.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from placement.batch.lp.bound import group_ceilings, kind_ceilings
from placement.batch.lp.columns import Proof, aligned_proof
from placement.batch.lp.relaxation import Cut, Relaxed, in_whole_numbers
from placement.batch.problem import Batch

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

    proofs: for this problem or a similar one. node_usd: price of the nodes in the best known plan.
    """
    cuts = [_cut(batch, relaxation, proof) for proof in proofs[:MOST_CUTS]]
    gap = GAP * min(1.0, node_usd / max(relaxation.bound_usd, 1e-9))
    proven = in_whole_numbers(batch, cuts, most_nodes=MOST_NODES, gap=gap)
    return max(0.0, proven * (1 - SLACK)) if np.isfinite(proven) else 0.0


def _cut(batch: Batch, relaxation: Relaxed, proof: Proof) -> Cut:
    pod_usd, ceiling = aligned_proof(proof, batch)
    prices = replace(relaxation.prices, pod_usd=pod_usd)
    return Cut(pod_usd, np.minimum(ceiling, kind_ceilings(batch, prices)), group_ceilings(batch, prices))
