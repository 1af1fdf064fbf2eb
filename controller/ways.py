"""Which way of placing each node and pod is for, told to the deciders, so that no plan brings two ways together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cluster.nodes import NodeTable
from cluster.snapshot import Snapshot
from cluster.workloads import WAY_LABEL, on_way
from controller.kube_placers import Pool, placer_name

WayOfPod = Callable[[str], str | None]
"""How a pending pod (`namespace/name`) asks to be placed; None where it does not ask (any more)."""
Standing = Callable[[str, str], int]
"""How many instances of a GPU type are asked for by Deployments that are made for a way."""


class Ways:
    """The pools of the settings as the deciders see them."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        """pools: at least one; a node belongs to the first that has it."""
        self._pools = tuple(pools)
        self._known: tuple[NodeTable, tuple[str | None, ...], NodeTable] | None = None
        """Nodes, the way of each, and the same nodes with their ways among the labels."""

    def told(self, snapshot: Snapshot, of_types: Mapping[str, str], way_of: WayOfPod) -> Snapshot:
        """The snapshot in which pods that wait, and instances that are yet to be asked for, may run on the nodes of
        their own way only.

        of_types: the way of instances on each GPU type.
        Unchanged where nothing else is possible: one way on all nodes, in which all that waits asks to be placed.
        """
        of_nodes, labelled = self._of_nodes(snapshot.nodes)
        pending = {int(row): way_of(snapshot.pods.names[int(row)]) for row in snapshot.pods.pending}
        if len({*of_nodes, *filter(None, pending.values())}) <= 1:
            return snapshot
        pods = snapshot.pods
        shape, shapes = pods.shape.copy(), list(pods.shapes)
        numbers: dict[tuple[int, str], int] = {}
        for row, way in pending.items():
            if way is None:
                continue
            asked = int(shape[row]), way
            if asked not in numbers:
                numbers[asked] = len(shapes)
                whole = shapes[asked[0]]
                shapes.append(replace(whole, node_terms=on_way(whole.node_terms, way)))
            shape[row] = numbers[asked]
        shape.setflags(write=False)
        services = tuple(replace(service, ways=of_types) for service in snapshot.services)
        told = replace(pods, shape=shape, shapes=tuple(shapes))
        return replace(snapshot, nodes=labelled, pods=told, services=services)

    def of_types(self, snapshot: Snapshot, standing: Standing) -> dict[str, str]:
        """The way in which instances get onto nodes of each GPU type: one for all of them, else it would take two
        Deployments for each service.

        Of the ways that there are nodes of the type for, the one for which most instances stand, then the one with
        most devices, then the first in the settings. What stands comes first because another way restarts it. Without
        a node of the type: what stands, or else the last pool's.
        """
        of_nodes = self._of_nodes(snapshot.nodes)[0]
        order = list(dict.fromkeys(pool.placer for pool in self._pools))
        found = {}
        for number, name in enumerate(snapshot.gpu_type_names):
            devices = dict.fromkeys(order, 0)
            for row in np.flatnonzero(snapshot.nodes.gpu_type == number):
                way = of_nodes[int(row)]
                if way is not None:
                    devices[way] += int(snapshot.nodes.gpus[row])
            open_ways = [way for way in order if devices[way]] or order[::-1]
            found[name] = open_ways[0]
            if len(open_ways) > 1:
                found[name] = max(open_ways, key=lambda way: (standing(name, way), devices[way]))
        return found

    def _of_nodes(self, nodes: NodeTable) -> tuple[tuple[str | None, ...], NodeTable]:
        if self._known is None or self._known[0] is not nodes:
            ways = tuple(placer_name(self._pools, labels) for labels in nodes.labels)
            labels = tuple(
                {**known, WAY_LABEL: way} if way else known for known, way in zip(nodes.labels, ways, strict=True)
            )
            self._known = nodes, ways, replace(nodes, labels=labels)
        return self._known[1:]
