"""Which power domain a workload should go to, so that peaks of workloads with different hours do not stack.

Each workload has a course of expected watts over the hours of a day or a week. A domain's peak is that of the sum of
its courses, which is less than the sum of peaks when hours differ. A workload goes where the highest share of a budget
that any domain is expected to reach stays lowest.
"""

from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class PowerRoom:
    """What domains are expected to draw, and may."""

    of_node: IntArray
    """Shape (nodes,): the power domain of each node; -1 where it is in none, and then any watts are fine."""
    budget_w: FloatArray
    """Shape (domains,)."""
    expected_w: FloatArray
    """Shape (domains, hours): by what runs there and by servers at rest."""

    def peak_share_with(self, course_w: FloatArray) -> FloatArray:
        """Shape (domains,): the highest expected share of each budget, with this workload added.

        course_w: shape (hours,), watts above rest of the workload.
        """
        peak_w = (self.expected_w + course_w).max(axis=1)
        return np.asarray(peak_w / self.budget_w, dtype=np.float64)

    def preferred(self, course_w: FloatArray, feasible: BoolArray) -> BoolArray | None:
        """Nodes of the domain that the workload should go to; None where no feasible node has a domain.

        feasible: shape (nodes,), where it could run at all. Of domains that come out even, the one whose own peak
        rises least is taken, then the first.
        """
        domains = np.unique(self.of_node[feasible & (self.of_node >= 0)])
        if not len(domains):
            return None
        after = self.peak_share_with(course_w)[domains]
        rise = after - (self.expected_w[domains].max(axis=1) / self.budget_w[domains])
        best = domains[np.lexsort((domains, rise.round(9), after.round(9)))[0]]
        chosen: BoolArray = feasible & (self.of_node == best)
        return chosen

    def after(self, course_w: FloatArray, node: int) -> "PowerRoom":
        """With the workload on that node."""
        domain = int(self.of_node[node])
        if domain < 0:
            return self
        expected_w = self.expected_w.copy()
        expected_w[domain] += course_w
        return replace(self, expected_w=expected_w)
