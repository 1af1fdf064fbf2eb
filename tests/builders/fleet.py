"""Builders for small worlds: a test states only what matters to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster.arrays import Names, column
from cluster.demand import ThroughputProfile
from cluster.disruption import DisruptionBudget
from cluster.nodes import NODE_NAME_FIELD, NodeTable, NodeTaint
from cluster.snapshot import PENDING, SPARSE, PodTable, Snapshot, device_mask
from cluster.workloads import OWN_NODE, WHOLE_GPU_MILLI, Gang, GpuType, ModelService, PodShape, Requirement, Toleration

GIB = 2**30


@dataclass(frozen=True)
class Node:
    name: str
    gpus: int = 0
    gpu_type: str = "A100"
    cpu_milli: int = 96_000
    memory_bytes: int = 512 * GIB
    schedulable: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[NodeTaint, ...] = ()


@dataclass(frozen=True)
class Pod:
    name: str
    shape: PodShape
    node: str | None = None
    devices: tuple[int, ...] = ()
    priority: int = 0
    gang: str = ""
    owner: str = ""
    movable: bool = False
    never_preempts: bool = False
    ending: bool = False
    strangers: bool = False
    settled: bool = False
    started_s: int = 0
    saved_s: int = 0


def node(name: str, gpus: int = 0, gpu_type: str = "A100", **rest: object) -> Node:
    return Node(name, gpus, gpu_type, **rest)  # type: ignore[arg-type]


def shape(
    gpus: int = 0,
    gpu_milli: int | None = None,
    cpu_milli: int = 1000,
    memory_bytes: int = GIB,
    gpu_types: Sequence[str] = (),
    selector: Mapping[str, str] | None = None,
    tolerations: tuple[Toleration, ...] = (),
) -> PodShape:
    terms = tuple(Requirement(key, "In", (value,)) for key, value in (selector or {}).items())
    return PodShape(
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        gpus=gpus,
        gpu_milli=(WHOLE_GPU_MILLI if gpus else 0) if gpu_milli is None else gpu_milli,
        gpu_types=tuple(sorted(gpu_types)),
        node_terms=(terms,) if terms else (),
        tolerations=tolerations,
    )


def pod(name: str, gpus: int = 0, *, on: str | None = None, devices: tuple[int, ...] = (), **rest: object) -> Pod:
    """A pod by what it asks; `on` a node with `devices` when it runs already."""
    about = {key: rest.pop(key) for key in ("priority", "gang", "owner", "movable", *SPARSE) if key in rest}
    return Pod(name, shape(gpus, **rest), node=on, devices=devices, **about)  # type: ignore[arg-type]


def daemon_pods(names: Sequence[str], which: str = "daemon") -> list[Pod]:
    """Running pods of a DaemonSet, one on each of these nodes, as a snapshot has them: pinned to where they run."""
    own = PodShape(100, GIB // 8, node_terms=((Requirement(NODE_NAME_FIELD, "In", (OWN_NODE,)),),))
    return [Pod(f"{which}-{name}", own, node=name, priority=2_000_001_000) for name in names]


def world(
    nodes: Sequence[Node],
    pods: Sequence[Pod] = (),
    gangs: Sequence[Gang] = (),
    services: Sequence[ModelService] = (),
    profiles: Sequence[ThroughputProfile] = (),
    prices: Mapping[str, float] | None = None,
    at_s: float = 0.0,
    budgets: Sequence[DisruptionBudget] = (),
) -> Snapshot:
    """A snapshot of these nodes and pods; every GPU type that occurs costs 1 $/h unless `prices` says otherwise."""
    types = sorted({n.gpu_type for n in nodes if n.gpus} | set(prices or {}))
    names = Names(n.name for n in nodes)
    shapes = tuple(dict.fromkeys(p.shape for p in pods))
    gang_names = [g.name for g in gangs]
    return Snapshot(
        at_s=at_s,
        gpu_types=tuple(GpuType(name, 80 * GIB, (prices or {}).get(name, 1.0)) for name in types),
        nodes=NodeTable(
            names=names,
            cpu_milli=column((n.cpu_milli for n in nodes), np.int64),
            memory_bytes=column((n.memory_bytes for n in nodes), np.int64),
            gpus=column((n.gpus for n in nodes), np.int64),
            gpu_type=column((types.index(n.gpu_type) if n.gpus else -1 for n in nodes), np.int64),
            schedulable=column((n.schedulable for n in nodes), np.bool_),
            labels=tuple(n.labels for n in nodes),
            taints=tuple(n.taints for n in nodes),
        ),
        pods=PodTable(
            names=Names(p.name for p in pods),
            shape=column((shapes.index(p.shape) for p in pods), np.int64),
            shapes=shapes,
            node=column((PENDING if p.node is None else list(names).index(p.node) for p in pods), np.int64),
            devices=column((device_mask(p.devices) for p in pods), np.int64),
            priority=column((p.priority for p in pods), np.int64),
            gang=column((gang_names.index(p.gang) if p.gang else -1 for p in pods), np.int64),
            owner=tuple(p.owner for p in pods),
            movable=column((p.movable for p in pods), np.bool_),
            **{name: np.array(marks) if any(marks := [getattr(p, name) for p in pods]) else None for name in SPARSE},
        ),
        gangs=tuple(gangs),
        services=tuple(services),
        profiles=tuple(profiles),
        budgets=tuple(budgets),
    )
