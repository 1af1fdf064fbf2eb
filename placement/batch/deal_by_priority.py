"""Best fit by priority: all pods of one priority are dealt at once, then those of the next.

For the pods that packing, one by one, had no work left for. A pod takes no place that a more important one of these
could have had, and ten thousand pods cost milliseconds.
"""

from collections.abc import Iterator

import numpy as np

from cluster.arrays import BoolArray
from cluster.snapshot import Snapshot
from placement.batch.gang_topology import Seats
from placement.batch.headroom import within_headroom
from placement.batch.ladder import BatchSettings, plan_batch, seated
from placement.batch.lp.columns import Memory
from placement.packing.draft import effective_priority

MOST_PRIORITIES = 20
"""Priorities that one plan deals, the highest first; those below wait. Clusters have a handful of PriorityClasses."""


def dealt_by_priority(snapshot: Snapshot, among: BoolArray, settings: BatchSettings) -> Iterator[Seats]:
    """Placements of these pending pods, by priority, gangs whole. among: shape (pods,)."""
    priority = effective_priority(snapshot)
    for level in np.unique(priority[among])[::-1][:MOST_PRIORITIES].tolist():
        plan = plan_batch(snapshot, Memory(), settings, rung="best-fit", among=among & (priority == level))
        seats, _ = within_headroom(snapshot, plan.seats)
        yield seats
        snapshot = seated(snapshot, seats)
