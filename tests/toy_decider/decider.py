"""Toy decider: states of each reserve whether enough GPUs stay free once the plan before it is carried out."""

from collections.abc import Iterator

import numpy as np

from cluster.plans import Finding, Plan, Reason
from cluster.snapshot import Snapshot
from cluster.workloads import WHOLE_GPU_MILLI
from controller.deciders.decider import Turn


def decide(snapshot: Snapshot, turn: Turn) -> Plan:
    """One finding for each reserve that is short; none for a reserve that is met."""
    return Plan(findings=tuple(_short(snapshot)))


def _short(snapshot: Snapshot) -> Iterator[Finding]:
    free = int(np.count_nonzero(snapshot.free().gpu_milli == WHOLE_GPU_MILLI))
    for name, wanted in snapshot.facts.get("reserve", {}).items():
        if free < wanted:
            words = f"{free} GPUs are free, {wanted:.0f} should be"
            yield Finding(f"GPUReserve/{name}", Reason("ReserveShort", words, {"free": free, "wanted": wanted}))
