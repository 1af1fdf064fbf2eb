"""Lower bound on the price of every plan for a batch, from prices by arithmetic alone.

For any prices π_c ≥ 0 of pods with π_c ≤ u_c, from any source:

    cost of any plan ≥ Σ_c π_c d_c - Σ_k N_k max(0, U_k - usd_k) - Σ_g U_g

when U_k is at least what the pods on one node of kind k can be worth under π, and U_g what the pods on all nodes of
group g can. (Lagrangian relaxation of the demand rows of `problem.py`; Lasdon, Optimization Theory for Large Systems,
1970, chapter 3.) Such ceilings come from resource prices by `ceilings` below, from a complete search or from a solver's
proven bound (`pricing.py`); never from an interrupted search.
"""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import FloatArray, IntArray
from placement.batch.problem import Batch


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
