"""Price of a batch plan in two parts: pods that it leaves out come first, then the nodes that it starts."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import IntArray
from cluster.snapshot import Snapshot
from placement.batch.gang_topology import Seats
from placement.batch.problem import Batch


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Dollars per hour of a plan. Gaps are fractions of the nodes' part, which alone is paid."""

    left_out_usd: float
    """Price of the pods without a placement (`Batch.left_out_usd`)."""
    node_usd: float
    """Price of the idle nodes that start to run."""

    @property
    def usd(self) -> float:
        """Objective of the programs, which bounds are about."""
        return self.left_out_usd + self.node_usd

    @property
    def rank(self) -> tuple[float, float]:
        """Order of plans, the best first: no pod is left out to save money. Rounded, since sums in another order
        differ in the last digits."""
        return round(self.left_out_usd, 6), round(self.node_usd, 6)

    def gap(self, bound_usd: float) -> float:
        """Fraction of the nodes' price above what any plan that leaves out no more must pay; 0 where none start."""
        if self.node_usd <= 0:
            return 0.0
        return min(1.0, max(0.0, self.usd - bound_usd) / self.node_usd)

    def node_bound_usd(self, bound_usd: float) -> float:
        """Lower bound on the nodes' price in every plan that leaves out no more than this one, in dollars.

        For each such plan: nodes ≥ bound - left out ≥ bound - left out by this plan.
        """
        return min(self.node_usd, max(0.0, bound_usd - self.left_out_usd))


def cost_of(snapshot: Snapshot, batch: Batch, seats: Seats, waiting: IntArray) -> PlanCost:
    """Cost of a plan. waiting: rows of the pods of the batch without a placement."""
    runs = np.zeros(len(snapshot.nodes), dtype=np.bool_)
    runs[seats.node] = True
    number = {shape: c for c, shape in enumerate(batch.shapes)}
    classes = np.array([number.get(shape, -1) for shape in snapshot.pods.shapes], dtype=np.int64)
    left_out = batch.left_out_usd[classes[snapshot.pods.shape[waiting]]]
    return PlanCost(float(left_out.sum()), float(batch.node_usd[runs & ~batch.in_use].sum()))
