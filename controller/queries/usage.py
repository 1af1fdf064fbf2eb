"""Usage of a fleet: used, stranded and idle devices with their cost, by node, GPU type and pool. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.arrays import Array
from cluster.snapshot import PENDING, Snapshot
from controller.placers import NodePool
from controller.report.idle_devices import idle_devices

NO_TYPE = "-"
"""GPU type of nodes without GPUs, or with GPUs that match no GPUType."""

ADDED = ("used", "stranded", "unwanted", "closed", "cost_per_hour", "idle_cost_per_hour")
"""Fractions of a usage that add up over nodes."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of one node or of a group of nodes. Numbers of devices; parts of shared devices are fractions."""

    name: str
    nodes: int
    gpus: int
    used: float
    stranded: float
    """Idle devices that typical pods cannot use, because too little of another resource is left on their node."""
    unwanted: float
    """Idle devices of a type that no pod may use."""
    closed: float
    """Idle devices on nodes where no pod may start."""
    pods: int
    cpu_share: float
    """Requested fraction of allocatable CPU, 0..1."""
    memory_share: float
    cost_per_hour: float
    """Cost of all devices, US dollars per hour."""
    idle_cost_per_hour: float
    """Cost of idle devices (free, stranded and closed), US dollars per hour."""
    gpu_type: str = NO_TYPE
    schedulable: bool = True

    @property
    def free(self) -> float:
        """Idle devices that typical pods can use."""
        return max(0.0, self.gpus - self.used - self.stranded - self.unwanted - self.closed)

    @property
    def used_share(self) -> float:
        return self.used / self.gpus if self.gpus else 0.0


def of_nodes(now: Snapshot) -> tuple[Usage, ...]:
    """Usage by node, sorted by name."""
    columns = _columns(now)
    found = (_sum(now, columns, name, [row]) for row, name in enumerate(now.nodes.names))
    return tuple(sorted(found, key=lambda usage: usage.name))


def of_types(now: Snapshot) -> tuple[Usage, ...]:
    """Usage by GPU type; GPUs of unknown type, if any, are a group of their own."""
    groups: dict[str, list[int]] = {name: [] for name in now.gpu_type_names}
    for row, number in enumerate(now.nodes.gpu_type.tolist()):
        if now.nodes.gpus[row]:
            groups.setdefault(now.gpu_type_names[number] if number >= 0 else NO_TYPE, []).append(row)
    columns = _columns(now)
    return tuple(_sum(now, columns, name, rows) for name, rows in groups.items())


def of_pools(now: Snapshot, pools: Sequence[NodePool]) -> tuple[Usage, ...]:
    """Usage by pool; a node counts in the first pool that matches. Nodes in no pool are a group of their own."""
    groups: dict[str, list[int]] = {pool_name(pool): [] for pool in pools}
    for row, labels in enumerate(now.nodes.labels):
        found = next((pool_name(pool) for pool in pools if pool.has(labels)), "(in no pool)")
        groups.setdefault(found, []).append(row)
    columns = _columns(now)
    return tuple(_sum(now, columns, name, rows) for name, rows in groups.items())


def pool_name(pool: NodePool) -> str:
    """Name of a pool from its placer and selector: `gate: every node`, `bind: pool=train`."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(pool.selector.items()))
    return f"{pool.placer}: {labels or 'every node'}"


def total(usages: Iterable[Usage]) -> Usage:
    """Sum of several usages; the fractions of CPU and memory are averages over the nodes."""
    each = tuple(usages)
    nodes = sum(usage.nodes for usage in each)
    added = {figure: sum(getattr(usage, figure) for usage in each) for figure in ("gpus", *ADDED, "pods")}
    shares = {
        figure: sum(getattr(usage, figure) * usage.nodes for usage in each) / max(nodes, 1)
        for figure in ("cpu_share", "memory_share")
    }
    return Usage(name="total", nodes=nodes, **added, **shares)


def _columns(now: Snapshot) -> dict[str, Array]:
    """Figures that add up over nodes, shape (nodes,) each."""
    nodes, free = now.nodes, now.free()
    idle, prices = idle_devices(now), now.device_prices()
    return {
        "gpus": nodes.gpus,
        "used": nodes.gpus - idle.all,
        "stranded": idle.stranded,
        "unwanted": idle.unwanted,
        "closed": idle.closed,
        "pods": np.bincount(now.pods.node[now.pods.node != PENDING], minlength=len(nodes)),
        "cost_per_hour": nodes.gpus * prices,
        "idle_cost_per_hour": idle.all * prices,
        "cpu": nodes.cpu_milli,
        "cpu_asked": nodes.cpu_milli - free.cpu_milli,
        "memory": nodes.memory_bytes,
        "memory_asked": nodes.memory_bytes - free.memory_bytes,
    }


def _sum(now: Snapshot, columns: dict[str, Array], name: str, rows: Sequence[int]) -> Usage:
    at, nodes = np.array(rows, dtype=np.int64), now.nodes
    sums = {figure: float(values[at].sum()) for figure, values in columns.items()}
    kinds = {int(kind) for kind in nodes.gpu_type[at] if kind >= 0}
    return Usage(
        name=name,
        nodes=len(rows),
        gpus=int(sums["gpus"]),
        pods=int(sums["pods"]),
        **{figure: sums[figure] for figure in ADDED},
        cpu_share=sums["cpu_asked"] / sums["cpu"] if sums["cpu"] else 0.0,
        memory_share=sums["memory_asked"] / sums["memory"] if sums["memory"] else 0.0,
        gpu_type=now.gpu_type_names[kinds.pop()] if len(kinds) == 1 else NO_TYPE,
        schedulable=bool(nodes.schedulable[at].all()),
    )
