"""Placement modes as node constraints in the snapshot, so that no plan puts a pod on a node of another mode."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cluster.nodes import NodeTable, meets_terms
from cluster.snapshot import Snapshot
from cluster.workloads import (
    PLACEMENT_MODE_LABEL,
    SHARES_LABEL,
    ModelService,
    PodShape,
    Requirement,
    in_placement_mode,
)
from controller.placers.pools import Pool, pool_mode, takes_shares

ModeOfPod = Callable[[str], str | None]
"""Placement mode that a pending pod (`namespace/name`) requests; None where it requests none, or none any more."""
DeployedInstances = Callable[[str, str, str], int]
"""Number of instances in the Deployment of (service, GPU type) that was made for this placement mode."""
ModesOfServices = Mapping[str, Mapping[str, str]]
"""Placement mode of instances, by service and GPU type."""


class PlacementModes:
    """Placement modes of the settings' pools, applied to snapshots."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        """pools: at least one; a node belongs to the first pool whose selector matches it."""
        self._pools = tuple(pools)
        self._cached: tuple[NodeTable, tuple[str | None, ...], NodeTable] | None = None
        """Nodes, the placement mode of each, and the same nodes with the mode as a label."""
        self._shapes: dict[tuple[int, str, bool], tuple[PodShape, PodShape]] = {}
        """Shapes of the last snapshot's pending pods with their restricted ones, by id of the shape and restriction.

        Thousands of pods that wait may each have constraints of their own, which take longer to hash than to restrict.
        """

    def restricted(
        self,
        snapshot: Snapshot,
        of_services: ModesOfServices,
        mode_of: ModeOfPod,
        has_share: Callable[[str], bool] = lambda _: False,
    ) -> Snapshot:
        """The snapshot in which pending pods and future instances may run only on nodes of their own placement mode.

        of_services: result of the method `of_services`. has_share: whether a pending pod asks for a share of a device,
        which is placed only where it is safe. Unchanged where all nodes have one mode, all pending pods request it, and
        none asks for a share.
        """
        of_nodes, labelled = self._of_nodes(snapshot.nodes)
        pending = {int(row): mode_of(snapshot.pods.names[int(row)]) for row in snapshot.pods.pending}
        shares = {row for row, mode in pending.items() if mode == "gate" and has_share(snapshot.pods.names[row])}
        if not shares and len({*of_nodes, *filter(None, pending.values())}) <= 1:
            return snapshot
        pods = snapshot.pods
        shape, shapes = pods.shape.copy(), list(pods.shapes)
        numbers: dict[tuple[int, str, bool], int] = {}
        known, self._shapes = self._shapes, {}
        for row, mode in pending.items():
            if mode is None:
                continue
            whole = pods.shapes[int(pods.shape[row])]
            restriction = id(whole), mode, row in shares
            if restriction not in numbers:
                numbers[restriction] = len(shapes)
                self._shapes[restriction] = known.get(restriction) or (whole, _restricted(whole, *restriction[1:]))
                shapes.append(self._shapes[restriction][1])
            shape[row] = numbers[restriction]
        shape.setflags(write=False)
        services = tuple(replace(service, placement_modes=of_services[service.name]) for service in snapshot.services)
        restricted = replace(pods, shape=shape, shapes=tuple(shapes))
        return replace(snapshot, nodes=labelled, pods=restricted, services=services)

    def of_services(self, snapshot: Snapshot, deployed: DeployedInstances) -> dict[str, Mapping[str, str]]:
        """One placement mode per service and GPU type; two modes would take two Deployments.

        Services that may run on any node of a type share a mode. It is chosen among the modes that have nodes of the
        type: the one of most of their deployed instances, then the one with most devices, then the first in the
        settings. A service restricted to some nodes chooses among the modes of these nodes: the one of its deployed
        instances, then the shared one, then the one with most devices. Deployed instances come first because another
        mode restarts them. Without a node: the mode of the deployed instances, or else the last pool's.
        """
        free = [service.name for service in snapshot.services if not service.node_terms]
        shared: dict[str, str] = {}
        for number, name in enumerate(snapshot.gpu_type_names):
            rows = np.flatnonzero(snapshot.nodes.gpu_type == number)
            shared[name] = self._chosen(
                self._devices(snapshot.nodes, rows), partial(_all_deployed, deployed, free, name)
            )
        found: dict[str, Mapping[str, str]] = dict.fromkeys(free, shared)
        for service in snapshot.services:
            if service.node_terms:
                found[service.name] = {
                    name: self._own_mode(snapshot, service, name, shared[name], deployed)
                    for name in snapshot.gpu_type_names
                }
        return found

    def _own_mode(
        self, snapshot: Snapshot, service: ModelService, gpu_type: str, shared: str, deployed: DeployedInstances
    ) -> str:
        """Placement mode, on this GPU type, of a service that is restricted to some nodes."""
        nodes, shape = snapshot.nodes, PodShape(node_terms=service.node_terms)
        of_type = np.flatnonzero(nodes.gpu_type == snapshot.gpu_type_names.index(gpu_type))
        rows = [row for row in of_type.tolist() if meets_terms(nodes.labels[row], shape)]
        return self._chosen(
            self._devices(nodes, rows), lambda mode: (deployed(service.name, gpu_type, mode), mode == shared)
        )

    def _chosen(self, devices: Mapping[str, int], worth: Callable[[str], tuple[int, bool]]) -> str:
        """The mode with devices that is worth most, then the one with most devices."""
        usable = [mode for mode in devices if devices[mode]] or [*devices][::-1]
        if len(usable) == 1:
            return usable[0]
        return max(usable, key=lambda mode: (*worth(mode), devices[mode]))

    def _devices(self, nodes: NodeTable, rows: Iterable[int]) -> dict[str, int]:
        """Number of devices on these nodes by placement mode, in the order of the settings.

        Nodes that are unschedulable now count: a reboot must not change the mode.
        """
        of_nodes = self._of_nodes(nodes)[0]
        devices = dict.fromkeys((pool.placer for pool in self._pools), 0)
        for row in rows:
            mode = of_nodes[int(row)]
            if mode is not None:
                devices[mode] += int(nodes.gpus[row])
        return devices

    def _of_nodes(self, nodes: NodeTable) -> tuple[tuple[str | None, ...], NodeTable]:
        if self._cached is None or self._cached[0] is not nodes:
            modes = tuple(pool_mode(self._pools, labels) for labels in nodes.labels)
            labels = tuple(
                {**own, **self._shares(own), PLACEMENT_MODE_LABEL: mode} if mode else own
                for own, mode in zip(nodes.labels, modes, strict=True)
            )
            self._cached = nodes, modes, replace(nodes, labels=labels)
        return self._cached[1:]

    def _shares(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {SHARES_LABEL: "true"} if takes_shares(self._pools, labels) else {}


def _restricted(shape: PodShape, mode: str, is_share: bool) -> PodShape:
    terms = in_placement_mode(shape.node_terms, mode)
    if is_share:
        terms = tuple((*term, Requirement(SHARES_LABEL, "Exists")) for term in terms)
    return replace(shape, node_terms=terms)


def _all_deployed(deployed: DeployedInstances, services: Iterable[str], gpu_type: str, mode: str) -> tuple[int, bool]:
    return sum(deployed(service, gpu_type, mode) for service in services), False
