"""Rewriting of nodes and pods for planning: devices of slices become GPUs of nodes, claims become requests of pods.

The labels, the taint and the gate here exist only in the snapshot; they are never written to the cluster.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from controller.api.structs import (
    Container,
    Node,
    Pod,
    PodAnnotations,
    PodMeta,
    PodSpec,
    PodStatus,
    Resources,
    SchedulingGate,
    Taint,
    Toleration,
)
from controller.dra.requests import Inventory

WAITING_GATE = SchedulingGate("tonnage.dev/claims")
"""Gate of a pod that cannot be planned because of its claims."""
NODE_LABEL = "resource.tonnage.dev/node"
"""Label with the name of a node whose devices come from slices."""
FITS_LABEL = "resource.tonnage.dev/fits-"
"""Prefix of a label that ends with the digest of a claim's requests: all devices of the node satisfy them."""
DEVICE_TAINT = Taint("resource.tonnage.dev/devices", effect="NoSchedule")
"""Taint that keeps pods without claims off devices that only claims can allocate."""
HOLDER_PRIORITY = 2_000_001_000
"""Priority of placeholder pods, which must never be preempted; that of system-node-critical."""

_TOLERATES_IT = Toleration(key=DEVICE_TAINT.key, operator="Exists")


def translated_node(
    node: Node, inventory: Inventory, counted_as: Collection[str], labels: Mapping[str, str], *, is_unschedulable: bool
) -> Node:
    """The node with the devices of its slices as an extended resource.

    counted_as: all extended resources as which devices of slices are counted; other resources stay.
    """
    allocatable = {name: amount for name, amount in node.status.allocatable.items() if name not in counted_as}
    capacity = {name: amount for name, amount in node.status.capacity.items() if name not in counted_as}
    if inventory.devices:
        allocatable[inventory.resource] = str(len(inventory.devices))
    own = {**node.metadata.labels, NODE_LABEL: node.metadata.name, **labels}
    taints = (*node.spec.taints, DEVICE_TAINT)
    return replace(
        node,
        metadata=replace(node.metadata, labels=own),
        spec=replace(node.spec, unschedulable=node.spec.unschedulable or is_unschedulable, taints=taints),
        status=replace(node.status, allocatable=allocatable, capacity=capacity),
    )


def with_requests(pod: Pod, gpus: int, resource: str, devices: str | None, wants: Mapping[str, str]) -> Pod:
    """The pod with a request for `gpus` devices, beside those of its containers, on nodes with the labels `wants`.

    devices: numbers of the devices that it holds, joined by commas; None for a pod that holds none.
    """
    containers = pod.spec.containers
    if gpus:
        containers = (*containers, Container(Resources(requests={resource: str(gpus)})))
    spec = replace(
        pod.spec,
        containers=containers,
        node_selector={**pod.spec.node_selector, **wants},
        tolerations=(*pod.spec.tolerations, _TOLERATES_IT),
    )
    annotations = replace(pod.metadata.annotations, devices=devices, gpu_milli=None)
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations), spec=spec)


def gated(pod: Pod) -> Pod:
    """The pod with a gate that keeps it out of planning."""
    return replace(pod, spec=replace(pod.spec, scheduling_gates=(*pod.spec.scheduling_gates, WAITING_GATE)))


def holder_pod(name: str, node: str, inventory: Inventory, numbers: Sequence[int]) -> Pod | None:
    """Placeholder pod that occupies devices of a node in the snapshot; None when there are no devices.

    name: `namespace/name` with a colon in the name, so that no pod of the cluster can have it.
    """
    if not numbers:
        return None
    namespace, _, bare = name.partition("/")
    annotations = PodAnnotations(devices=",".join(map(str, numbers)), movable="false")
    container = Container(Resources(requests={inventory.resource: str(len(numbers))}))
    return Pod(
        PodMeta(bare, namespace, annotations=annotations),
        PodSpec(containers=(container,), node_name=node, priority=HOLDER_PRIORITY),
        PodStatus("Running"),
    )


def holder_of(claim: str) -> str:
    """Name of the placeholder for the devices of a claim without a bound pod."""
    namespace, _, name = claim.partition("/")
    return f"{namespace}/claim:{name}"


def withholder_of(node: str) -> str:
    """Name of the placeholder for the withheld devices of a node."""
    return f"resource.tonnage.dev/withheld:{node}"
