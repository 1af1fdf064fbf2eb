"""Price of starting idle nodes, for fleets that give theirs back: a node in use is paid for whatever else it runs.

A pod of shape s is charged on node n, above every cost of a policy:

    0                                        where n runs a pod that does not belong to it
    1 + usd_n / max(1, copies of s on n)     where n is idle, in units that no policy reaches

So nodes in use are filled first, and of idle ones that starts which costs least for each pod of the shape that it
would hold, also where fewer of them wait: the next pods find it in use. It is the rule of best fit by class, pod by
pod, so that gangs, racks, shares, power and preemption hold as for any other placement. Dividing by the pods that wait,
where they are fewer, cost 6 to 9 % more on openb: small nodes then start for the last pods of each shape.

A program over patterns of pods on whole nodes was tried beside it (column generation, Gilmore and Gomory 1961), as was
the linear relaxation of it with its targets dealt by best fit: on openb's fleet the first cost 0.99 to 1.01 of this
rule, the second 1.02 to 1.05; figures in docs/packing.md.
"""

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
    """Idle nodes of a fleet while a plan is made, and what starting one of them costs.

    The packer counts the pods that it places and removes, also on trial: a node whose last pod is removed is idle
    again.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """From the pods that run. Those pinned to their node, as a DaemonSet's, and system-critical ones belong to it,
        unless they hold a device."""
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
