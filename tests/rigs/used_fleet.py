"""A partly used fleet: filled by a policy up to a load, and repeated up to a size."""

from dataclasses import replace

import numpy as np

from cluster.arrays import IntArray, Names
from cluster.nodes import NodeTable
from cluster.snapshot import PodTable, Snapshot
from placement.engine.packer import Packer, content_rank
from placement.engine.policy import Knowledge
from placement.policies import policy_named
from simulator.packing.replay import gpu_milli_of, published_stream


def filled(trace: Snapshot, policy_name: str, load_pct: float, seed: int) -> Snapshot:
    """The trace's fleet with running pods up to this load of the GPUs, percent."""
    packer = packer_of(trace, trace, policy_name, seed)
    _, gpu_milli = gpu_milli_of(trace.pods)
    most = load_pct * 10.0 * float(trace.nodes.gpus.sum())
    held: list[tuple[int, int, int]] = []
    in_use = 0
    for index in published_stream(trace, seed):
        shape = trace.pods.shapes[index]
        packer.policy.arrived(shape)
        packer.policy.upkeep(packer.ledger)
        choice = packer.choose(shape)
        if choice is None:
            continue
        packer.place(shape, choice)
        held.append((int(index), choice.node, choice.devices))
        in_use += int(gpu_milli[index])
        if in_use >= most:
            break
    columns = np.array(held, dtype=np.int64).reshape(-1, 3).T
    return replace(trace, pods=_running(trace.pods, columns[0], columns[1], columns[2]))


def _running(pods: PodTable, shape: IntArray, node: IntArray, devices: IntArray) -> PodTable:
    count = len(shape)
    return PodTable(
        names=Names(f"running/{number}" for number in range(count)),
        shape=shape,
        shapes=pods.shapes,
        node=node,
        devices=devices,
        priority=np.zeros(count, dtype=np.int64),
        gang=np.full(count, -1, dtype=np.int64),
        owner=("",) * count,
        movable=np.ones(count, dtype=bool),
    )


def repeated(used: Snapshot, size: int) -> Snapshot:
    """The fleet repeated up to `size` nodes, each with its running pods."""
    nodes, pods = used.nodes, used.pods
    row = np.arange(size) % len(nodes)
    copies = [np.flatnonzero(pods.node + start < size) for start in range(0, size, len(nodes))]
    held = np.concatenate(copies)
    at = np.concatenate([pods.node[copy] + turn * len(nodes) for turn, copy in enumerate(copies)])
    return replace(
        used,
        nodes=NodeTable(
            names=Names(f"node-{number:06d}" for number in range(size)),
            cpu_milli=nodes.cpu_milli[row],
            memory_bytes=nodes.memory_bytes[row],
            gpus=nodes.gpus[row],
            gpu_type=nodes.gpu_type[row],
            schedulable=nodes.schedulable[row],
            labels=tuple(nodes.labels[int(n)] for n in row),
            taints=tuple(nodes.taints[int(n)] for n in row),
        ),
        pods=_running(pods, pods.shape[held], at, pods.devices[held]),
    )


def packer_of(fleet: Snapshot, trace: Snapshot, policy_name: str, seed: int) -> Packer:
    expected = tuple(trace.pods.shapes[index] for index in trace.pods.shape)
    return Packer(fleet, policy_named(policy_name, Knowledge(fleet, expected, seed)), content_rank(fleet, seed))
