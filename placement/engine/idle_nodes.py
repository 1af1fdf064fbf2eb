"""Price of starting idle nodes, for fleets that give theirs back: a node in use is paid for whatever else it runs."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from cluster.arrays import FloatArray
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import PodShape, is_pinned

CORE_USD_PER_HOUR, GIB_USD_PER_HOUR = 0.03, 0.004
"""Price of a node by its CPU, per core, and memory: it costs this or its GPUs, whichever is more. Chosen: about what
clouds charge for a general server."""
GIB = 2.0**30
SYSTEM_PRIORITY = 2_000_000_000
"""Lowest priority of pods that belong to the node, as those of DaemonSets do: one that runs nothing else is idle.
Source: Kubernetes documentation, system-cluster-critical and system-node-critical."""
PER_DOLLAR = 1e6
"""Cost of a dollar, above what any policy charges: it decides between nodes that cost alike. A start costs one more."""


class IdleNodes:
    """Idle nodes of a fleet while a plan is made, and what starting one of them costs."""

    def __init__(self, snapshot: Snapshot) -> None:
        nodes, pods = snapshot.nodes, snapshot.pods
        self.pods = np.zeros(len(nodes), dtype=np.int64)
        """Pods on each node, without those that belong to it."""
        own = np.array([is_pinned(shape.node_terms) for shape in pods.shapes], dtype=np.bool_)[pods.shape]
        own |= pods.priority >= SYSTEM_PRIORITY
        guests = (pods.node != PENDING) & (~own | (pods.devices != 0))
        np.add.at(self.pods, pods.node[guests], 1)
        empty = replace(snapshot, pods=replace(pods, node=np.where(guests, PENDING, pods.node))).free()
        host_usd = nodes.cpu_milli / 1000 * CORE_USD_PER_HOUR + nodes.memory_bytes / GIB * GIB_USD_PER_HOUR
        usd = np.maximum(snapshot.device_prices() * nodes.gpus, host_usd)
        self._per_pod = lru_cache(maxsize=512)(
            lambda shape: PER_DOLLAR * (1.0 + usd / np.maximum(1, empty.copies(shape)))
        )

    def costs(self, shape: PodShape) -> FloatArray:
        """What a pod of this shape is charged on each node: on an idle one its price, divided by the pods of the shape
        that it would hold. Shape (nodes,)."""
        costs: FloatArray = np.where(self.pods <= 0, self._per_pod(shape), 0.0)
        return costs
