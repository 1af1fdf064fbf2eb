"""Preemption: the node where stopping the least important pods frees the resources for a more important one."""

from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, IntArray
from cluster.hardware import WHOLE_GPU_MILLI
from cluster.pods import PENDING, device_numbers
from cluster.workloads import PodShape
from placement.packing.draft import Draft, members_running

CANDIDATES = 64
"""Nodes that are examined in detail, those with least to stop first. Chosen: the tenth best is rarely better."""


@dataclass(frozen=True, slots=True)
class Clearing:
    """Price of preempting some pods on a node."""

    highest_priority: int
    gpu_milli: int
    count: int
    node: int
    victims: tuple[int, ...]

    @property
    def price(self) -> tuple[int, int, int, int]:
        """Sort key: importance of the victims, then GPU lost, then number of pods; the node's row decides ties."""
        return (self.highest_priority, self.gpu_milli, self.count, self.node)


def seat_by_preemption(draft: Draft, row: int, priority: int, within: BoolArray | None) -> bool:
    """Places a pod by preempting pods of strictly lower priority where that costs least. Changes nothing on failure."""
    clearing = cheapest_clearing(draft, row, priority, within)
    if clearing is None:
        return False
    mark = draft.mark
    for victim in clearing.victims:
        draft.unseat(victim)
    only_there = np.zeros(len(draft.snapshot.nodes), dtype=bool)
    only_there[clearing.node] = True
    if draft.seat(row, only_there):
        return True
    draft.roll_back(mark)
    return False


def cheapest_clearing(draft: Draft, row: int, priority: int, within: BoolArray | None) -> Clearing | None:
    """Cheapest preemption that frees a node for this pod; None when no victims suffice anywhere."""
    shape = draft.shape(row)
    lower = np.flatnonzero((draft.node != PENDING) & (draft.priority < priority))
    if not len(lower):
        return None
    clearings = (_clearing_on(draft, shape, int(node), lower) for node in _candidates(draft, shape, lower, within))
    return min((one for one in clearings if one is not None), key=lambda one: one.price, default=None)


def _candidates(draft: Draft, shape: PodShape, lower: IntArray, within: BoolArray | None) -> IntArray:
    """Nodes where the pod's sums would fit without all pods of lower priority; those with least to stop first."""
    pods, ledger = draft.snapshot.pods, draft.packer.ledger
    where = draft.node[lower]
    ask = np.array([(s.cpu_milli, s.memory_bytes, s.total_gpu_milli) for s in pods.shapes], dtype=np.int64)
    freed = np.zeros((len(ledger.cpu_milli), 3), dtype=np.int64)
    np.add.at(freed, where, ask[pods.shape[lower]])
    fits = draft.packer.eligible(shape) & (np.bincount(where, minlength=len(freed)) > 0)
    fits &= ledger.cpu_milli + freed[:, 0] >= shape.cpu_milli
    fits &= ledger.memory_bytes + freed[:, 1] >= shape.memory_bytes
    fits &= ledger.gpu_milli.sum(axis=1) + freed[:, 2] >= shape.total_gpu_milli
    if within is not None:
        fits &= within
    nodes = np.flatnonzero(fits)
    return nodes[np.argsort(freed[nodes, 2], kind="stable")][:CANDIDATES]


def _clearing_on(draft: Draft, shape: PodShape, node: int, lower: IntArray) -> Clearing | None:
    """Cheapest victims on a node: all lower pods at first, then the most important are spared while the pod fits."""
    ledger, floors = draft.packer.ledger, draft.packer.floors
    cpu, memory, gpu = int(ledger.cpu_milli[node]), int(ledger.memory_bytes[node]), ledger.gpu_milli[node].copy()
    there = [int(row) for row in lower[draft.node[lower] == node]]

    def charge(row: int, sign: int) -> None:
        nonlocal cpu, memory
        own = draft.shape(row)
        cpu -= sign * own.cpu_milli
        memory -= sign * own.memory_bytes
        gpu[list(device_numbers(int(draft.devices[row])))] -= sign * own.gpu_milli

    def fits() -> bool:
        if cpu < shape.cpu_milli or memory < shape.memory_bytes:
            return False
        if not shape.gpus:
            return True
        enough_gpu = int((gpu >= shape.gpu_milli).sum()) >= shape.gpus
        return enough_gpu and (floors is None or floors.bears(node, _held_with(shape, gpu[: int(ledger.gpus[node])])))

    for row in there:
        charge(row, -1)
    if not fits():
        return None
    victims = []
    for row in sorted(there, key=lambda r: (-draft.priority[r], -draft.shape(r).total_gpu_milli, r)):
        charge(row, 1)
        if not fits():
            charge(row, -1)
            victims.append(row)
    if not victims:  # it would have been placed without preemption, had its policy taken the devices counted here
        return None
    victims = _with_gang_mates(draft, victims)
    lost = sum(draft.shape(row).total_gpu_milli for row in victims)
    highest = max(int(draft.priority[row]) for row in victims)
    return Clearing(highest, lost, len(victims), node, tuple(victims))


def _held_with(shape: PodShape, gpu: IntArray) -> int:
    """Allocated devices of a node with the pod there; it shares allocated devices as far as it can.

    gpu: shape (node's GPUs,), thousandths left of each.
    """
    in_use = gpu < WHOLE_GPU_MILLI
    shared = int((in_use & (gpu >= shape.gpu_milli)).sum())
    return int(in_use.sum()) + max(0, shape.gpus - shared)


def _with_gang_mates(draft: Draft, victims: list[int]) -> list[int]:
    """Victims with the rest of every gang that would fall below its minimum, since the rest would only wait."""
    pods, gone = draft.snapshot.pods, set(victims)
    for gang in sorted({int(pods.gang[row]) for row in victims} - {-1}):
        running = members_running(draft, gang)
        if len([row for row in running if row not in gone]) < draft.snapshot.gangs[gang].min_members:
            gone.update(running)
    return sorted(gone)
