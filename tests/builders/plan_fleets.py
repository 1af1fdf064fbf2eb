"""Generated fleets of servers as they are bought, and batches on them and on openb's fleet."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cluster.arrays import IntArray, Names, column
from cluster.nodes import NodeTable
from cluster.snapshot import PENDING, PodTable, Snapshot
from cluster.workloads import WHOLE_GPU_MILLI, Gang, GpuType, PodShape
from simulator.openb.trace_reader import OPENB_PRICES, read_trace

GIB = 2**30
RACK = "topology.tonnage.dev/rack"
RACK_NODES = 16


@dataclass(frozen=True, slots=True)
class Server:
    """Kind of server, with its fraction of the fleet."""

    gpu_type: str
    gpus: int
    cores: int
    gib: int
    usd_per_gpu: float
    share: float


SERVERS = (
    Server("H200", 8, 192, 2048, 4.20, 0.08),
    Server("H100", 8, 160, 1536, 3.30, 0.12),
    Server("A100-80G", 8, 128, 1024, 2.00, 0.14),
    Server("A100-40G", 8, 96, 1024, 1.50, 0.12),
    Server("L40S", 8, 128, 1024, 1.10, 0.12),
    Server("A10", 4, 64, 256, 0.70, 0.12),
    Server("L4", 8, 96, 384, 0.55, 0.10),
    Server("T4", 4, 48, 192, 0.35, 0.10),
    Server("", 0, 96, 384, 0.0, 0.10),
)
"""Eight GPU types and servers without GPUs; sizes and prices of the order of cloud list prices."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Class of pods, with its weight in the batch."""

    weight: float
    cores: float
    gib: int
    gpus: int = 0
    gpu_milli: int = 0
    types: tuple[str, ...] = ()


ANY: tuple[str, ...] = ()
ASKS = (
    *(
        Ask(5, cores, gib)
        for cores, gib in (
            (0.5, 1), (0.5, 2), (1, 2), (1, 4), (2, 4), (2, 8), (2, 16), (4, 8), (4, 16), (4, 32),
            (8, 32), (8, 64), (16, 64),
        )
    ),
    Ask(3.5, 2, 8, 1, 250),
    Ask(4, 4, 16, 1, 500),
    Ask(4, 4, 16, 1, 500, ("A10", "L4", "T4")),
    Ask(3, 3, 12, 1, 300, ("A100-40G", "A100-80G", "L40S")),
    Ask(6.5, 6, 32, 1, 1000),
    Ask(4, 8, 64, 1, 1000, ("A100-40G", "A100-80G", "L40S")),
    Ask(3.2, 8, 64, 2, 1000, ("A100-80G", "H100", "H200")),
    Ask(2.4, 12, 96, 2, 1000),
    Ask(2, 32, 192, 4, 1000, ("A100-80G", "H100")),
    Ask(1.1, 64, 512, 8, 1000, ("H100", "H200")),
    Ask(0.8, 32, 256, 4, 1000, ("A100-40G", "L40S")),
)  # fmt: skip
"""Twenty-four classes: two thirds are CPU pods, a seventh share a GPU, a fifth take whole GPUs, half of these only of
some types."""


def odd_asks(seed: int, servers: Sequence[Server] = SERVERS) -> tuple[Ask, ...]:
    """Twenty-four classes whose requests divide no server evenly, drawn by the seed; 82 % of the pods request no GPU.

    Every class fits on an empty server of each type that it may use.
    """
    chance = np.random.default_rng([seed, 24])
    asks = []
    for _ in range(14):
        cores = round(float(np.exp(chance.uniform(np.log(0.5), np.log(16)))), 1)
        asks.append(Ask(82 / 14, cores, int(np.ceil(cores * np.exp(chance.uniform(0, np.log(10)))))))
    for number in range(10):
        gpus = (1, 1, 1, 1, 1, 2, 2, 3, 4, 8)[number]
        milli = int(chance.integers(3, 18)) * 50 if number < 3 else WHOLE_GPU_MILLI
        cores, gib = round(float(gpus * chance.uniform(3, 12)), 1), int(gpus * chance.uniform(12, 100))
        able = [s.gpu_type for s in servers if s.gpus >= gpus and s.cores >= cores and s.gib >= gib]
        some = chance.permutation(able)[: int(chance.integers(2, 5))].tolist() if number % 2 else ()
        asks.append(Ask(18 / 10 / (1 + 0.25 * gpus), cores, gib, gpus, milli, tuple(some)))
    return tuple(asks)


GANG_SHARE = 0.5
"""Fraction of the pods with whole GPUs in gangs of 2 to 8; one gang in ten must be within one rack."""


def fleet(nodes: int, asks: Sequence[Ask] = ASKS, servers: Sequence[Server] = SERVERS) -> Snapshot:
    """Fleet without pods, in racks of similar servers."""
    cut = np.round(np.cumsum([s.share for s in servers]) * nodes).astype(np.int64)
    kind = np.searchsorted(cut, np.arange(nodes), side="right")
    types = tuple(GpuType(s.gpu_type, 80 * GIB, s.usd_per_gpu) for s in servers if s.gpus)
    number = np.array([next((n for n, t in enumerate(types) if t.name == s.gpu_type), -1) for s in servers])
    shapes = tuple(_shape(ask) for ask in asks)
    return Snapshot(
        at_s=0.0,
        gpu_types=types,
        nodes=NodeTable(
            names=Names(f"node-{row:05d}" for row in range(nodes)),
            cpu_milli=column((servers[k].cores * 1000 for k in kind), np.int64),
            memory_bytes=column((servers[k].gib * GIB for k in kind), np.int64),
            gpus=column((servers[k].gpus for k in kind), np.int64),
            gpu_type=column(number[kind], np.int64),
            schedulable=column(np.ones(nodes, dtype=np.bool_), np.bool_),
            labels=tuple({RACK: f"rack-{row // RACK_NODES:03d}"} for row in range(nodes)),
            taints=((),) * nodes,
        ),
        pods=pending_pods(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), shapes, ()),
    )


def with_batch(empty: Snapshot, pods: int, seed: int, asks: Sequence[Ask] = ASKS) -> Snapshot:
    """The fleet with `pods` pending pods."""
    chance = np.random.default_rng([seed, pods, len(empty.nodes)])
    weight = np.array([ask.weight for ask in asks])
    shape = chance.choice(len(asks), size=pods, p=weight / weight.sum())
    gang, gangs = _gangs(shape, [ask.gpu_milli == WHOLE_GPU_MILLI for ask in asks], chance)
    names = Names(f"batch/pod-{row:06d}" for row in range(pods))
    return replace(empty, pods=pending_pods(shape, gang, tuple(_shape(ask) for ask in asks), names), gangs=gangs)


def _shape(ask: Ask) -> PodShape:
    return PodShape(int(ask.cores * 1000), ask.gib * GIB, ask.gpus, ask.gpu_milli, tuple(sorted(ask.types)))


def _gangs(shape: IntArray, whole: Sequence[bool], chance: np.random.Generator) -> tuple[IntArray, tuple[Gang, ...]]:
    """Gangs of 2 to 8 equal pods among those with whole GPUs."""
    gang = np.full(len(shape), -1, dtype=np.int64)
    gangs: list[Gang] = []
    for c in np.flatnonzero(whole):
        rows = np.flatnonzero(shape == c)
        rows = rows[: int(GANG_SHARE * len(rows))]
        at = 0
        while at + 2 <= len(rows):
            size = min(int(chance.integers(2, 9)), len(rows) - at)
            gang[rows[at : at + size]] = len(gangs)
            within = RACK if chance.random() < 0.1 else None
            gangs.append(Gang(f"batch/gang-{len(gangs):04d}", min_members=size, within=within))
            at += size
    return gang, tuple(gangs)


def pending_pods(shape: IntArray, gang: IntArray, shapes: tuple[PodShape, ...], names: Sequence[str]) -> PodTable:
    """Pending pods of one priority, by shape and gang (-1: none)."""
    count = len(shape)
    return PodTable(
        names=names if isinstance(names, Names) else Names(names),
        shape=shape.astype(np.int64),
        shapes=shapes,
        node=np.full(count, PENDING, dtype=np.int64),
        devices=np.zeros(count, dtype=np.int64),
        priority=np.zeros(count, dtype=np.int64),
        gang=gang.astype(np.int64) if len(gang) else np.full(count, -1, dtype=np.int64),
        owner=("",) * count,
        movable=np.ones(count, dtype=np.bool_),
    )


def openb_batch(folder: Path, pods: int, seed: int) -> Snapshot:
    """Pods of the openb trace, drawn with replacement, pending on its fleet of 1,213 GPU nodes."""
    seen = read_trace(folder / "openb_node_list_gpu_node.csv", folder / "openb_pod_list_default.csv", OPENB_PRICES)
    drawn = np.random.default_rng([seed, pods]).integers(0, len(seen.pods), pods)
    names = tuple(f"trace/pod-{row:06d}" for row in range(pods))
    return replace(seen, pods=pending_pods(seen.pods.shape[drawn], np.full(pods, -1), seen.pods.shapes, names))


PODS_PER_NODE = 10
