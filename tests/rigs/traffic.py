"""A fleet below a tree of switches, and gangs that wait for it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cluster.arrays import Names
from cluster.nodes import NodeTable
from cluster.snapshot import PENDING, PodTable, Snapshot
from cluster.workloads import WHOLE_GPU_MILLI, Gang, GpuType, PodShape

SPINE, LEAF = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"
LEAVES, NODES_PER_LEAF, GPUS = 16, 16, 8
LEAVES_PER_SPINE = 4
GIB = 2**30
SIZES, WIDTHS = (8, 16, 24, 32, 64), (1, 2, 4, 8)
"""Members of a gang, and GPUs of a member."""


@dataclass(frozen=True, slots=True)
class Fleet:
    snapshot: Snapshot
    leaf: Mapping[str, str]
    """Leaf of each node."""
    gpus: Mapping[str, int]
    """GPUs of a member of each gang."""


def fleet_of(rng: np.random.Generator, gangs: int, near: float, held: float) -> Fleet:
    """Nodes below leaves below spines, some of which hold a pod of one to eight GPUs, and gangs that wait."""
    count = LEAVES * NODES_PER_LEAF
    leaves = rng.permutation(np.repeat(np.arange(LEAVES), NODES_PER_LEAF))
    names = [f"node-{n}" for n in range(count)]
    shapes = tuple(
        PodShape(cpu_milli=1000, memory_bytes=GIB, gpus=gpus, gpu_milli=WHOLE_GPU_MILLI) for gpus in range(1, GPUS + 1)
    )
    others = np.flatnonzero(rng.random(count) < held).tolist()
    # Name, GPUs, node and gang of each pod.
    rows = [(f"d/other-{node}", int(rng.integers(1, GPUS + 1)), node, -1) for node in others]
    made, widths = [], {}
    for number in range(gangs):
        size, gpus = int(rng.choice(SIZES)), int(rng.choice(WIDTHS))
        prefers = LEAF if rng.random() < near else None
        widths[f"d/gang-{number}"] = gpus
        made.append(Gang(f"d/gang-{number}", size, prefer_within=prefers))
        rows += [(f"d/gang-{number}-{rank}", gpus, PENDING, number) for rank in range(size)]
    nodes = NodeTable(
        names=Names(names),
        cpu_milli=np.full(count, 192_000),
        memory_bytes=np.full(count, 2048 * GIB),
        gpus=np.full(count, GPUS),
        gpu_type=np.zeros(count, dtype=np.int64),
        schedulable=np.ones(count, dtype=np.bool_),
        labels=tuple({LEAF: f"leaf-{n}", SPINE: f"spine-{n // LEAVES_PER_SPINE}"} for n in leaves.tolist()),
        taints=((),) * count,
    )
    pods = PodTable(
        names=Names(name for name, *_ in rows),
        shape=np.array([gpus - 1 for _, gpus, _, _ in rows]),
        shapes=shapes,
        node=np.array([node for _, _, node, _ in rows]),
        devices=np.array([2**gpus - 1 if node != PENDING else 0 for _, gpus, node, _ in rows]),
        priority=np.zeros(len(rows), dtype=np.int64),
        gang=np.array([gang for *_, gang in rows]),
        owner=("",) * len(rows),
        movable=np.zeros(len(rows), dtype=np.bool_),
    )
    types = (GpuType("h100", 80 * GIB, 1.0),)
    snapshot = Snapshot(at_s=0.0, gpu_types=types, nodes=nodes, pods=pods, gangs=tuple(made))
    return Fleet(snapshot, {name: f"leaf-{leaf}" for name, leaf in zip(names, leaves.tolist(), strict=True)}, widths)
