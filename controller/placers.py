"""Placement modes: how pods get onto nodes, by scheduling gate, Binding or ResourceClaim, and which pools use which.

`gate`: Tonnage chooses the node and kube-scheduler binds, for pods with the scheduling gate `tonnage.dev/placement`.
One patch removes the gate and restricts the pod to one node, by its name. kube-scheduler still checks all that it knows
of (ports, volumes, capacity). If it finds the node unfit, the pod stays pending and must be recreated, because its node
affinity cannot be changed once the gates are gone.

`bind`: Tonnage binds the pod itself, for pods with `schedulerName: tonnage`. The Binding carries the devices as
annotations. They reach the pod in the same write as its node, so no reader sees the pod without its devices. Only for
nodes that Tonnage owns: the API server checks nothing on a Binding, so two schedulers on one node would over-commit it.

`dra` (dynamic resource allocation): Tonnage allocates a pod's ResourceClaims, then places the pod in one of the two
other ways. The only mode in which Kubernetes itself knows which devices a pod has. The API server does not check that
a device is in one claim only, so no other component may allocate devices of these nodes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
import numpy as np

from cluster import workloads
from cluster.actions import Start
from cluster.errors import ActionError
from cluster.nodes import NODE_NAME_FIELD, NodeTable, meets_terms
from cluster.snapshot import Snapshot
from controller.api import labels as api_labels
from controller.api.labels import CHOSEN_NODE_ANNOTATION, DEVICES_ANNOTATION, PLACEMENT_GATE, SCHEDULER_NAME
from controller.kube import cluster_view, request, sender

MODES = ("bind", "dra", "gate")

DeployedInstances = Callable[[str, str, str], int]
"""Number of instances in the Deployment of (service, GPU type) that was made for this placement mode."""
ModesOfServices = Mapping[str, Mapping[str, str]]
"""Placement mode of instances, by service and GPU type."""


@dataclass(frozen=True, slots=True)
class NodePool:
    """Set of nodes with one placement mode."""

    placer: str
    """Placement mode, one of MODES."""
    selector: Mapping[str, str]
    """Labels that its nodes carry; empty: every node."""
    shares: bool = False
    """For mode gate: whether shares of a device may be placed there."""
    is_owned: bool = False
    """Whether Tonnage may stop every pod there, by whomever it was placed; in mode bind it always may."""

    def has(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.selector.items())


DEFAULT_POOLS = (NodePool("gate", {}),)
"""Mode `gate` on all nodes: on a shared cluster kube-scheduler decides about ports, volumes and all that Tonnage does
not see."""


class ClaimAllocator(Protocol):
    """Writes that allocate the devices of ResourceClaims, from the last observation."""

    def allocate(self, pod: cluster_view.SeenPod, action: Start, stamp: sender.Stamp) -> list[sender.Write]:
        """Stamped writes that allocate the devices of a bind to the pod's claims.

        Raises ActionError when that is impossible.
        """
        ...

    def deallocate(self, claim: str, epoch: int) -> list[sender.Write]:
        """Writes, with the Lease epoch, that deallocate a claim (`namespace/name`).

        Raises ActionError when a pod uses it, or Tonnage did not allocate it.
        """
        ...


class NoClaims:
    """The allocator of an installation in which no pool has the placement mode `dra`: it always raises ActionError."""

    def allocate(self, pod: cluster_view.SeenPod, action: Start, stamp: sender.Stamp) -> list[sender.Write]:  # noqa: ARG002 - ClaimAllocator's
        raise ActionError(f"allocating for {pod.name}: no pool has placer 'dra', so no claims are watched")

    def deallocate(self, claim: str, epoch: int) -> list[sender.Write]:  # noqa: ARG002 - ClaimAllocator's
        raise ActionError(f"releasing claim {claim}: no pool has placer 'dra', so no claims are watched")


NO_CLAIMS = NoClaims()


def pool_mode(pools: Sequence[NodePool], labels: Mapping[str, str]) -> str | None:
    """Placement mode of a node with these labels, from the first pool that matches; None when the node is in no
    pool."""
    return next((pool.placer for pool in pools if pool.has(labels)), None)


def requested_mode(pod: cluster_view.SeenPod) -> str | None:
    """Placement mode that a pod requests; None when Tonnage is not to place it, or not now.

    With other gates, another controller still holds the pod back; it must not hold devices meanwhile. A pod with
    ResourceClaims would never start on its node without devices allocated to it.
    """
    is_bound_here = pod.scheduler_name == SCHEDULER_NAME
    if pod.node or pod.is_ending or pod.gates != (() if is_bound_here else (PLACEMENT_GATE,)):
        return None
    if pod.has_claims:
        return "dra"
    return "bind" if is_bound_here else "gate"


def placing_writes(
    pod: cluster_view.SeenPod,
    action: Start,
    labels: Mapping[str, str],
    pools: Sequence[NodePool],
    stamp: sender.Stamp,
    claims: ClaimAllocator = NO_CLAIMS,
) -> list[sender.Write]:
    """The writes that place a pod, in order: those of its claims first, since on a node it would wait for them.

    labels: of the node. Preconditions of the last write: the same pod (uid) in the version observed (resourceVersion);
    the server answers 409 otherwise. Raises ActionError when the placement modes of pod and pool differ.
    """
    requested, offered = requested_mode(pod), pool_mode(pools, labels)
    what = f"placing {pod.name} on {action.node}"
    if requested is None:
        raise ActionError(f"{what}: it is not for Tonnage to place (other gates, another scheduler, or terminating)")
    if offered is None:
        raise ActionError(f"{what}: the node is in no pool; add one to `pools` in the settings")
    if requested != offered:
        raise ActionError(f"{what}: it waits for {requested!r} and the node's pool has placer {offered!r}")
    writes = claims.allocate(pod, action, stamp) if requested == "dra" else []
    devices = ",".join(str(device) for device in sorted(action.devices))
    annotations = {CHOSEN_NODE_ANNOTATION: action.node, **stamp.annotations}
    if devices:
        annotations[DEVICES_ANNOTATION] = devices
    if pod.controller.startswith("RayCluster/"):
        of_others = {key: value for key, value in labels.items() if not key.startswith("ray.io/")}  # Ray keeps these
        annotations[api_labels.NODE_LABELS_ANNOTATION] = msgspec.json.encode(of_others).decode()
    namespace, _, name = pod.name.partition("/")
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    seen = {"uid": pod.uid, "resourceVersion": pod.version, "annotations": annotations}
    if pod.scheduler_name == SCHEDULER_NAME:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, **seen},
            "target": {"apiVersion": "v1", "kind": "Node", "name": action.node},
        }
        return [*writes, sender.Write("POST", f"{path}/binding", binding)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": pinned(pod, action.node)}}
    released = {"metadata": seen, "spec": {"schedulingGates": [], "affinity": {"nodeAffinity": required}}}
    return [*writes, sender.Write("PATCH", path, released, request.MERGE_PATCH)]


def pinned(pod: cluster_view.SeenPod, node: str) -> list[dict[str, Any]]:
    """The pod's required node affinity, restricted to one node.

    By the node's name, which is unique: two nodes may have one hostname label, and a node may have none. Of a gated pod
    the API server lets every term be tightened, in its order, except one without requirements, which no node meets.
    """
    pin = {"key": NODE_NAME_FIELD, "operator": "In", "values": [node]}
    terms: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(pod.required_terms))
    return [
        {**term, "matchFields": [*term.get("matchFields", ()), pin]} if term else term
        for term in terms or [{"matchFields": []}]
    ]


class PlacementModes:
    """Placement modes of the settings' pools as node constraints in snapshots.

    No plan then puts a pod on a node of another mode.
    """

    def __init__(self, pools: Sequence[NodePool]) -> None:
        """pools: at least one; a node belongs to the first pool whose selector matches it."""
        self._pools = tuple(pools)
        self._cached: tuple[NodeTable, tuple[str | None, ...], NodeTable, list[bool]] | None = None
        """Nodes, the placement mode of each, the same nodes with the mode as a label, and which of them are owned."""
        self._shapes: dict[tuple[int, str, bool], tuple[workloads.PodShape, workloads.PodShape]] = {}
        """Shapes of the last snapshot's pending pods with their restricted ones, by id of the shape and restriction.

        Thousands of pods that wait may each have constraints of their own, which take longer to hash than to restrict.
        """

    def restricted(
        self,
        snapshot: Snapshot,
        of_services: ModesOfServices,
        requested: Mapping[str, str | None],
        shares: frozenset[str],
    ) -> Snapshot:
        """The snapshot in which pending pods and future instances may run only on nodes of their own placement mode.

        of_services: result of the method `of_services`. requested: mode that a pending pod (`namespace/name`) requests;
        none, or none any more, for those that are missing. shares: pending pods that ask for a share of a device, which
        is placed only where it is safe. Unchanged where all nodes have one mode, all pending pods request it, and none
        asks for a share.
        """
        of_nodes, labelled = self._of_nodes(snapshot.nodes)
        pods = snapshot.pods
        pending = {int(row): requested.get(pods.names[int(row)]) for row in pods.pending}
        sharing = {row for row, mode in pending.items() if mode == "gate" and pods.names[row] in shares}
        if not sharing and len({*of_nodes, *filter(None, pending.values())}) <= 1:
            return snapshot
        known, self._shapes = self._shapes, {}
        restricted: dict[int, workloads.PodShape] = {}
        for row, mode in pending.items():
            if mode is None:
                continue
            whole = pods.shapes[int(pods.shape[row])]
            restriction = id(whole), mode, row in sharing
            if restriction not in self._shapes:
                if restriction not in known:
                    terms = workloads.in_placement_mode(whole.node_terms, mode)
                    if row in sharing:
                        terms = tuple(
                            (*term, workloads.Requirement(workloads.SHARES_LABEL, "Exists")) for term in terms
                        )
                    known[restriction] = whole, replace(whole, node_terms=terms)
                self._shapes[restriction] = known[restriction]
            restricted[row] = self._shapes[restriction][1]
        services = tuple(replace(service, placement_modes=of_services[service.name]) for service in snapshot.services)
        return replace(snapshot, nodes=labelled, pods=pods.reshaped(restricted), services=services)

    def with_strangers(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot in which no pod on a node that Tonnage owns is a stranger.

        Where Tonnage allocates devices (`dra`), kube-scheduler cannot tell which pods are in the way: strangers stay.
        """
        pods = snapshot.pods
        if pods.strangers is None:
            return snapshot
        self._of_nodes(snapshot.nodes)
        assert self._cached is not None  # noqa: S101 - set by the line before
        strangers = pods.strangers & ~np.append(self._cached[3], False)[pods.node]
        stay = strangers & np.append([mode == "dra" for mode in self._cached[1]], False)[pods.node]
        settled = stay if pods.settled is None else stay | pods.settled
        for column in (strangers, settled):
            column.setflags(write=False)
        left = strangers if strangers.any() else None
        return replace(snapshot, pods=replace(pods, strangers=left, settled=settled if settled.any() else None))

    def of_services(self, snapshot: Snapshot, deployed: DeployedInstances) -> dict[str, Mapping[str, str]]:
        """One placement mode per service and GPU type; two modes would take two Deployments.

        Services that may run on any node of a type share a mode. It is chosen among the modes that have nodes of the
        type: the one of most of their deployed instances, then the one with most devices, then the first in the
        settings. A service restricted to some nodes chooses among the modes of these nodes: the one of its deployed
        instances, then the shared one, then the one with most devices. Deployed instances come first because another
        mode restarts them. Without a node: the mode of the deployed instances, or else the last pool's.
        """
        free = [service.name for service in snapshot.services if not service.node_terms]
        own = {service.name: dict[str, str]() for service in snapshot.services if service.node_terms}
        shared: dict[str, str] = {}
        for number, name in enumerate(snapshot.gpu_type_names):
            rows = np.flatnonzero(snapshot.nodes.gpu_type == number).tolist()
            shared[name] = self._mode_of_most(snapshot.nodes, rows, name, free, deployed)
            for service in snapshot.services:
                if service.node_terms:
                    shape = workloads.PodShape(node_terms=service.node_terms)
                    usable = [row for row in rows if meets_terms(snapshot.nodes.labels[row], shape)]
                    own[service.name][name] = self._mode_of_most(
                        snapshot.nodes, usable, name, [service.name], deployed, shared[name]
                    )
        return {**dict.fromkeys(free, shared), **own}

    def _mode_of_most(
        self,
        nodes: NodeTable,
        rows: Iterable[int],
        gpu_type: str,
        services: Iterable[str],
        deployed: DeployedInstances,
        shared: str = "",
    ) -> str:
        """The mode, among those with devices on these nodes, of most deployed instances; then `shared`, then the one
        with most devices.

        Nodes that are unschedulable now count: a reboot must not change the mode.
        """
        of_nodes = self._of_nodes(nodes)[0]
        devices = dict.fromkeys((pool.placer for pool in self._pools), 0)
        for row in rows:
            mode = of_nodes[row]
            if mode is not None:
                devices[mode] += int(nodes.gpus[row])
        usable = [mode for mode in devices if devices[mode]] or [*devices][::-1]
        if len(usable) == 1:
            return usable[0]
        instances = {mode: sum(deployed(each, gpu_type, mode) for each in services) for mode in usable}
        return max(usable, key=lambda mode: (instances[mode], mode == shared, devices[mode]))

    def _of_nodes(self, nodes: NodeTable) -> tuple[tuple[str | None, ...], NodeTable]:
        """Placement mode of each node, and the nodes with it as a label."""
        if self._cached is None or self._cached[0] is not nodes:
            modes, labelled, owned = [], [], list[bool]()
            for own in nodes.labels:
                pool = next((pool for pool in self._pools if pool.has(own)), None)
                modes.append(pool.placer if pool else None)
                owned.append(pool is not None and (pool.is_owned or pool.placer == "bind"))
                if pool is None:
                    labelled.append(own)
                    continue
                # kube-scheduler does not see shares, so where it binds they are placed only if the pool allows them.
                shares = {workloads.SHARES_LABEL: "true"} if pool.shares or pool.placer != "gate" else {}
                labelled.append({**own, **shares, workloads.PLACEMENT_MODE_LABEL: pool.placer})
            self._cached = nodes, tuple(modes), replace(nodes, labels=tuple(labelled)), owned
        return self._cached[1:3]
