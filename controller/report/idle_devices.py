"""Idle devices by the reason why nothing uses them, the same for metrics, alerts, `tonnage top` and advice."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from cluster.arrays import BoolArray, FloatArray
from cluster.nodes import NodeFilter
from cluster.snapshot import Snapshot
from cluster.workloads import PODS, WHOLE_GPU_MILLI, PodShape
from controller.objects.accelerators import VIEWS

TYPICAL_SHARE = 0.95
"""Fraction of the pods with GPUs that typical requests cover, as in FGD (placement/policies/fgd.py)."""
MOST_TYPICAL = 64
"""Requests that are looked at on every node, the most frequent first: 5,000 nodes take 0.1 s."""
WORDS = {PODS: "places for pods", "cpu": "CPU", "ephemeral-storage": "local disk"}


@dataclass(frozen=True, slots=True, eq=False)
class IdleDevices:
    """Idle devices of each node, all of shape (nodes,); parts of shared devices are fractions. The four add up."""

    free: FloatArray
    """Usable by pods like those that are there."""
    stranded: FloatArray
    """Expected number that such pods cannot use, because another resource of the node is short."""
    unwanted: FloatArray
    """Of a type that no pod may use."""
    closed: FloatArray
    """On nodes that are cordoned, not ready, or tainted so that no pod with GPUs may start there."""
    short: tuple[str, ...]
    """What strands them, in words; "" on nodes where nothing does."""

    @property
    def all(self) -> FloatArray:
        return self.free + self.stranded + self.unwanted + self.closed


def idle_devices(now: Snapshot) -> IdleDevices:
    """Idle devices of a fleet. Pods are those with GPUs, running or pending; without any, all open devices are free."""
    nodes, free = now.nodes, now.free()
    idle: FloatArray = np.maximum(free.gpu_milli, 0).sum(axis=1) / WHOLE_GPU_MILLI
    for name in VIEWS & nodes.others.keys():
        part = np.divide(free.others[name], nodes.others[name], out=np.ones(len(nodes)), where=nodes.others[name] > 0)
        idle = np.minimum(idle, nodes.gpus * np.maximum(part, 0.0))
    counts = Counter[PodShape]()
    for number, count in enumerate(np.bincount(now.pods.shape, minlength=len(now.pods.shapes)).tolist()):
        if count and now.pods.shapes[number].gpus:
            counts[now.pods.shapes[number]] += count
    known, tolerated = NodeFilter(nodes, now.gpu_type_names), np.full(len(nodes), not counts)
    for tolerations in {shape.tolerations for shape in counts}:
        tolerated |= known.tolerated(tolerations)
    is_closed = ~(tolerated & nodes.schedulable)
    wanted = np.array([not counts] * (len(now.gpu_types) + 1), dtype=np.bool_)  # the last: of unknown type
    for shape in counts:
        wanted |= _allowed(now, shape)
    is_unwanted = ~is_closed & ~wanted[nodes.gpu_type]
    lost, of_all = np.zeros(len(nodes)), np.zeros(len(nodes))
    lacks: dict[str, FloatArray] = {}
    for shape, count in _typical(counts):
        enough = (free.gpu_milli >= shape.gpu_milli).sum(axis=1) >= shape.gpus
        takes = enough & _allowed(now, shape)[nodes.gpu_type]
        for name, amount in shape.others:  # a node that never had as much is not for this pod
            takes &= nodes.others[name] >= amount if name in nodes.others else False
        if not (takes & (nodes.cpu_milli >= shape.cpu_milli) & (nodes.memory_bytes >= shape.memory_bytes)).any():
            continue  # for no node, even without other pods
        of_all += takes * count
        is_short = np.zeros(len(nodes), dtype=np.bool_)
        for name, amount, left in free.asked(shape):
            lack = takes & (left < amount)
            if lack.any():
                lacks[name] = lacks.get(name, np.zeros(len(nodes))) + lack * count
                is_short |= lack
        lost += is_short * count
    share = np.divide(lost, of_all, out=np.zeros(len(nodes)), where=of_all > 0)
    stranded = np.where(is_closed | is_unwanted, 0.0, idle * share)
    names, most = list(lacks), np.array([*lacks.values()]).reshape(len(lacks), len(nodes))
    which = most.argmax(axis=0).tolist() if names else [0] * len(nodes)
    return IdleDevices(
        free=np.where(is_closed | is_unwanted, 0.0, idle - stranded),
        stranded=stranded,
        unwanted=np.where(is_unwanted, idle, 0.0),
        closed=np.where(is_closed, idle, 0.0),
        short=tuple(
            WORDS.get(names[n], names[n]) if lost_here else "" for n, lost_here in zip(which, stranded, strict=True)
        ),
    )


def _allowed(now: Snapshot, shape: PodShape) -> BoolArray:
    """GPU types that a shape may use, the last for unknown ones. Shape (types + 1,)."""
    return np.array([not shape.gpu_types or name in shape.gpu_types for name in (*now.gpu_type_names, "")])


def _typical(counts: Counter[PodShape]) -> list[tuple[PodShape, int]]:
    """Most frequent requests, which cover `TYPICAL_SHARE` of the pods. Types count, labels and taints do not."""
    alike = Counter[PodShape]()
    for shape, count in counts.items():
        bare = PodShape(
            shape.cpu_milli, shape.memory_bytes, shape.gpus, shape.gpu_milli, shape.gpu_types, others=shape.others
        )
        alike[bare] += count
    taken: list[tuple[PodShape, int]] = []
    for shape, count in alike.most_common(MOST_TYPICAL):
        if sum(before for _, before in taken) >= TYPICAL_SHARE * alike.total():
            break
        taken.append((shape, count))
    return taken
