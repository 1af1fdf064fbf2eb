"""Best fit by the targets of the relaxation: its pods of each class per kind, on as few of the kind's nodes."""

import numpy as np

from cluster.snapshot import Free
from placement.batch.assignment_table import Table
from placement.batch.lp.relaxation import Relaxed
from placement.batch.problem import Batch


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
    for c in table.order.tolist():
        for among, target in zip(allowed, targets, strict=True):
            if (most := round(float(target[c]))) and table.left[c]:
                table.fit(c, most, among)
    table.fit_all()
    return table
