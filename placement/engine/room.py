"""Room for more pods of one shape: how many further ones the free, trusted and powered hardware holds."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.nodes import eligible_nodes
from cluster.power_floors import PowerFloors, held_devices
from cluster.snapshot import Snapshot
from cluster.workloads import PodShape
from placement.engine.ledger import Ledger

Scarce = Literal["stock", "health", "power"]


@dataclass(frozen=True, slots=True)
class Room:
    """Number of further pods that fit now."""

    pods: int
    scarce: Scarce
    """What there is too little of for more. health: nodes that accept no pods would hold more. power: headroom."""


def room_for(snapshot: Snapshot, shape: PodShape, most: int) -> Room:
    """Room for at most so many further pods of a shape, as packing would find it with nothing else waiting.

    Pods that wait for a node are not counted: which of them comes first is for packing to decide.
    """
    ledger = Ledger.of(snapshot)
    open_nodes = eligible_nodes(shape, snapshot.nodes, snapshot.gpu_type_names)
    free = int(_fitting(ledger, shape, open_nodes).sum())
    powered = min(most, free)
    # A full fleet, where every cycle asks again, needs no floors: they take 0.2 s for 20,000 nodes.
    floors = PowerFloors.of(snapshot) if shape.gpus and powered else None
    if floors is not None:
        powered = _powered(ledger, shape, open_nodes, floors, powered)
    if powered >= most:
        return Room(most, "stock")
    if powered < free:
        return Room(powered, "power")
    trusted = replace(snapshot.nodes, schedulable=np.ones(len(snapshot.nodes), dtype=np.bool_))
    closed = eligible_nodes(shape, trusted, snapshot.gpu_type_names) & ~open_nodes
    return Room(free, "health" if _fitting(ledger, shape, closed).any() else "stock")


def _fitting(ledger: Ledger, shape: PodShape, nodes: BoolArray) -> IntArray:
    """Further pods that the free resources of each node hold; shape (nodes,)."""
    counts = np.full(len(nodes), np.iinfo(np.int32).max, dtype=np.int64)
    for free, wanted in ((ledger.cpu_milli, shape.cpu_milli), (ledger.memory_bytes, shape.memory_bytes)):
        if wanted:
            counts = np.minimum(counts, np.maximum(free, 0) // wanted)
    if shape.gpus:
        # Of pods on several devices each needs as many distinct ones; counted so, rarely one too many fits.
        parts = np.maximum(ledger.gpu_milli, 0) // shape.gpu_milli
        enough = (parts > 0).sum(axis=1) >= shape.gpus
        counts = np.minimum(counts, np.where(enough, parts.sum(axis=1) // shape.gpus, 0))
    return np.where(nodes, counts, 0)


def _powered(ledger: Ledger, shape: PodShape, nodes: BoolArray, floors: PowerFloors, most: int) -> int:
    """Further pods, at most so many, whose devices' floors the headroom covers."""
    for placed in range(most):
        able = np.flatnonzero(nodes & ledger.fits(shape) & floors.allows(shape.gpus))
        if not len(able):
            return placed
        node = int(able[0])
        devices = np.flatnonzero(ledger.gpu_milli[node] >= shape.gpu_milli)[: shape.gpus].tolist()
        ledger.take(shape, node, devices)
        floors.follow((node,), held_devices(ledger.gpu_milli[[node]], ledger.gpus[[node]]))
    return most
