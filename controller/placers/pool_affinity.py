"""Which way of placing each node and pod is for, told to the deciders, so that no plan brings two ways together."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cluster.nodes import NodeTable, meets_terms
from cluster.snapshot import Snapshot
from cluster.workloads import WAY_LABEL, ModelService, PodShape, on_way
from controller.placers.pools import Pool, placer_name

WayOfPod = Callable[[str], str | None]
"""How a pending pod (`namespace/name`) asks to be placed; None where it does not ask (any more)."""
Standing = Callable[[str, str, str], int]
"""How many instances of a service on a GPU type are asked for by a Deployment that is made for a way."""
WaysOfServices = Mapping[str, Mapping[str, str]]
"""Per service and GPU type, the way in which instances get onto nodes."""


class Ways:
    """The pools of the settings as the deciders see them."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        """pools: at least one; a node belongs to the first that has it."""
        self._pools = tuple(pools)
        self._known: tuple[NodeTable, tuple[str | None, ...], NodeTable] | None = None
        """Nodes, the way of each, and the same nodes with their ways among the labels."""

    def told(self, snapshot: Snapshot, of_services: WaysOfServices, way_of: WayOfPod) -> Snapshot:
        """The snapshot in which pods that wait, and instances that are yet to be asked for, may run on the nodes of
        their own way only.

        of_services: as `of_services` found them.
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
        services = tuple(replace(service, ways=of_services[service.name]) for service in snapshot.services)
        told = replace(pods, shape=shape, shapes=tuple(shapes))
        return replace(snapshot, nodes=labelled, pods=told, services=services)

    def of_services(self, snapshot: Snapshot, standing: Standing) -> dict[str, Mapping[str, str]]:
        """The way in which instances of each service get onto nodes of each GPU type: one, else it would take two
        Deployments.

        Services that may run on any node of a type share its way: of those that there are nodes of the type for, the
        one for which most of their instances stand, then the one with most devices, then the first in the settings.
        One that is kept to some nodes has a choice among the ways of these: the one it stands for, then the shared
        one, then the one with most devices. What stands comes first because another way restarts it. Without a node:
        what stands, or else the last pool's.
        """
        free = [service.name for service in snapshot.services if not service.node_terms]
        shared: dict[str, str] = {}
        for number, name in enumerate(snapshot.gpu_type_names):
            rows = np.flatnonzero(snapshot.nodes.gpu_type == number)
            shared[name] = self._chosen(
                self._devices(snapshot.nodes, rows), partial(_all_standing, standing, free, name)
            )
        found: dict[str, Mapping[str, str]] = dict.fromkeys(free, shared)
        for service in snapshot.services:
            if service.node_terms:
                found[service.name] = {
                    name: self._own_way(snapshot, service, name, shared[name], standing)
                    for name in snapshot.gpu_type_names
                }
        return found

    def _own_way(
        self, snapshot: Snapshot, service: ModelService, gpu_type: str, shared: str, standing: Standing
    ) -> str:
        nodes, shape = snapshot.nodes, PodShape(node_terms=service.node_terms)
        of_type = np.flatnonzero(nodes.gpu_type == snapshot.gpu_type_names.index(gpu_type))
        rows = [row for row in of_type.tolist() if meets_terms(nodes.labels[row], shape)]
        return self._chosen(
            self._devices(nodes, rows), lambda way: (standing(service.name, gpu_type, way), way == shared)
        )

    def _chosen(self, devices: Mapping[str, int], worth: Callable[[str], tuple[int, bool]]) -> str:
        """Of the ways that there are devices for, the one that is worth most, then the one with most devices."""
        open_ways = [way for way in devices if devices[way]] or [*devices][::-1]
        if len(open_ways) == 1:
            return open_ways[0]
        return max(open_ways, key=lambda way: (*worth(way), devices[way]))

    def _devices(self, nodes: NodeTable, rows: Iterable[int]) -> dict[str, int]:
        """Devices on these nodes by their way, in the order of the settings; a node that cannot be used now counts."""
        of_nodes = self._of_nodes(nodes)[0]
        devices = dict.fromkeys((pool.placer for pool in self._pools), 0)
        for row in rows:
            way = of_nodes[int(row)]
            if way is not None:
                devices[way] += int(nodes.gpus[row])
        return devices

    def _of_nodes(self, nodes: NodeTable) -> tuple[tuple[str | None, ...], NodeTable]:
        if self._known is None or self._known[0] is not nodes:
            ways = tuple(placer_name(self._pools, labels) for labels in nodes.labels)
            labels = tuple(
                {**known, WAY_LABEL: way} if way else known for known, way in zip(nodes.labels, ways, strict=True)
            )
            self._known = nodes, ways, replace(nodes, labels=labels)
        return self._known[1:]


def _all_standing(standing: Standing, services: Iterable[str], gpu_type: str, way: str) -> tuple[int, bool]:
    return sum(standing(service, gpu_type, way) for service in services), False
