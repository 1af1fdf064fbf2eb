"""Random small clusters with a little of everything, seeded, for the comparison of two planners."""

from dataclasses import replace

import numpy as np

from cluster.arrays import Names
from cluster.demand import Demand, LengthGrid, Slo, ThroughputProfile
from cluster.nodes import NODE_NAME_FIELD, NodeTable, NodeTaint
from cluster.snapshot import PENDING, PodTable, Snapshot
from cluster.workloads import OWN_NODE, Gang, GpuType, ModelService, PodShape, Requirement, Toleration
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import decide

GIB = 2**30
TYPES = (GpuType("a100", 80 * GIB, 3.67), GpuType("h100", 80 * GIB, 7.5), GpuType("l4", 24 * GIB, 0.7))
POOLS = ("train", "serve", "batch")
RACK = "topology.tonnage.dev/rack"
GRID = LengthGrid((200, 2000), (100, 500))
BATCH = NodeTaint("tonnage.dev/batch")
DAEMON_PRIORITY = 2_000_001_000
"""Priority class system-node-critical."""


def random_cluster(seed: int) -> Snapshot:
    """Cluster of up to 24 nodes and 90 pods in pools: running and pending, gangs, priorities, taints, services.

    Running pods were placed by a plan for an earlier instant, so they fit.
    """
    rng = np.random.default_rng(seed)
    empty = _cluster(rng)
    earlier = decide(empty, Decisions(policy="bestfit"), deadline_s=60.0, clock=lambda: 0.0)
    placed = empty.after(earlier.actions)
    stays = (rng.random(len(placed.pods)) < 0.6) | (placed.pods.priority >= DAEMON_PRIORITY)
    node = np.where(stays, placed.pods.node, PENDING)
    pods = replace(placed.pods, node=node, devices=np.where(stays, placed.pods.devices, 0))
    return replace(placed, pods=pods, at_s=float(seed))


def _cluster(rng: np.random.Generator) -> Snapshot:
    nodes = _nodes(rng, int(rng.integers(2, 25)))
    gangs = tuple(
        Gang(f"d/gang-{n}", int(rng.integers(1, 5)), within=RACK if rng.random() < 0.3 else None, priority=5)
        for n in range(int(rng.integers(0, 4)))
    )
    return Snapshot(
        at_s=0.0,
        gpu_types=TYPES,
        nodes=nodes,
        pods=_pods(rng, int(rng.integers(0, 60)), len(gangs)).plus(_daemon_pods(nodes)),
        gangs=gangs,
        services=tuple(_service(rng, n) for n in range(int(rng.integers(0, 3)))),
        profiles=tuple(_profile(kind, speed) for kind, speed in (("a100", 10.0), ("h100", 19.0), ("l4", 2.0))),
    )


def _nodes(rng: np.random.Generator, count: int) -> NodeTable:
    pool = rng.integers(0, len(POOLS), count)
    gpus = rng.choice((0, 1, 4, 8), count)
    return NodeTable(
        names=Names(f"node-{n}" for n in range(count)),
        cpu_milli=rng.choice((16_000, 64_000), count),
        memory_bytes=rng.choice((64, 256), count) * GIB,
        gpus=gpus,
        gpu_type=np.where(gpus > 0, rng.integers(0, len(TYPES), count), -1),
        schedulable=rng.random(count) > 0.05,
        labels=tuple(
            {"pool": POOLS[p], RACK: f"rack-{r}"} for p, r in zip(pool, rng.integers(0, 4, count), strict=True)
        ),
        taints=tuple((BATCH,) if POOLS[p] == "batch" else () for p in pool),
    )


def _pods(rng: np.random.Generator, count: int, gangs: int) -> PodTable:
    shapes = tuple(dict.fromkeys(_shape(rng) for _ in range(12)))
    return PodTable(
        names=Names(f"d/pod-{n}" for n in range(count)),
        shape=rng.integers(0, len(shapes), count),
        shapes=shapes,
        node=np.full(count, PENDING),
        devices=np.zeros(count, dtype=np.int64),
        priority=rng.choice((0, 0, 10), count),
        gang=np.where(rng.random(count) < 0.3, rng.integers(0, gangs, count), -1) if gangs else np.full(count, -1),
        owner=("",) * count,
        movable=rng.random(count) < 0.5,
    )


def _daemon_pods(nodes: NodeTable) -> PodTable:
    """Pods of a DaemonSet, one on each node, as they are in an observed snapshot: pinned to where they run."""
    count = len(nodes)
    pinned = PodShape(100, GIB // 8, node_terms=((Requirement(NODE_NAME_FIELD, "In", (OWN_NODE,)),),))
    return PodTable(
        names=Names(f"d/daemon-{name}" for name in nodes.names),
        shape=np.zeros(count, dtype=np.int64),
        shapes=(pinned,),
        node=np.arange(count),
        devices=np.zeros(count, dtype=np.int64),
        priority=np.full(count, DAEMON_PRIORITY),
        gang=np.full(count, -1),
        owner=("",) * count,
        movable=np.zeros(count, dtype=np.bool_),
    )


def _shape(rng: np.random.Generator) -> PodShape:
    gpus, milli = ((0, 0), (1, 200), (1, 500), (1, 1000), (2, 1000), (4, 1000))[int(rng.integers(0, 6))]
    pool = POOLS[int(rng.integers(0, 3))] if rng.random() < 0.7 else ""
    return PodShape(
        cpu_milli=int(rng.choice((500, 4000))),
        memory_bytes=int(rng.choice((1, 8))) * GIB,
        gpus=gpus,
        gpu_milli=milli,
        gpu_types=("a100",) if gpus and rng.random() < 0.2 else (),
        node_terms=((Requirement("pool", "In", (pool,)),),) if pool else (),
        tolerations=(Toleration(BATCH.key, "Exists"),) if pool == "batch" else (),
    )


def _service(rng: np.random.Generator, number: int) -> ModelService:
    share = rng.random(GRID.shape) + 0.1
    return ModelService(
        name=f"d/service-{number}",
        model="m",
        demand=Demand(float(rng.uniform(0.5, 20.0)), GRID, share / share.sum()),
        slo=Slo(0.1),
        instance_cpu_milli=2000,
        instance_memory_bytes=GIB,
        priority=int(rng.choice((0, 10))),
    )


def _profile(gpu_type: str, speed: float) -> ThroughputProfile:
    """Profile whose requests per second fall with both lengths."""
    table = speed * np.array([[1.0, 0.4], [0.6, 0.2]])
    return ThroughputProfile("m", gpu_type, Slo(0.1), GRID, table)
