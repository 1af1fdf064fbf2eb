"""How devices of slices and claims look to planning: as GPUs of a node, and as what a pod asks for and holds.

The labels, the taint and the gate here stand in the picture alone; nothing of them is ever written to the cluster.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from controller.dra.inventory import Inventory
from controller.kube.structs import (
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

WAITING_GATE = SchedulingGate("tonnage.dev/claims")
"""On a pod that cannot be planned for as its claims are."""
NODE_LABEL = "resource.tonnage.dev/node"
"""The name of a node whose devices come from slices."""
FITS_LABEL = "resource.tonnage.dev/fits-"
"""With the digest of an ask: all devices of the node are what it asks for."""
DEVICE_TAINT = Taint("resource.tonnage.dev/devices", effect="NoSchedule")
"""Keeps pods without claims from devices that only claims can give."""
HOLDER_PRIORITY = 2_000_001_000
"""Of what holds devices without being a pod: nothing is stopped to have them. As high as system-node-critical."""

_BEARS_IT = Toleration(key=DEVICE_TAINT.key, operator="Exists")


def pictured_node(
    node: Node, inventory: Inventory, counted_as: Collection[str], labels: Mapping[str, str], *, is_shut: bool
) -> Node:
    """A node that offers the devices of its slices.

    counted_as: all resources as which devices of slices are counted; what else it offers stays.
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
        spec=replace(node.spec, unschedulable=node.spec.unschedulable or is_shut, taints=taints),
        status=replace(node.status, allocatable=allocatable, capacity=capacity),
    )


def asking(pod: Pod, gpus: int, resource: str, devices: str | None, wants: Mapping[str, str]) -> Pod:
    """A pod that asks for so many GPUs beside what its containers say, and that keeps to nodes with these labels.

    devices: the numbers of those that it holds; None for a pod that holds none.
    """
    containers = pod.spec.containers
    if gpus:
        containers = (*containers, Container(Resources(requests={resource: str(gpus)})))
    spec = replace(
        pod.spec,
        containers=containers,
        node_selector={**pod.spec.node_selector, **wants},
        tolerations=(*pod.spec.tolerations, _BEARS_IT),
    )
    annotations = replace(pod.metadata.annotations, devices=devices, gpu_milli=None)
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations), spec=spec)


def waiting(pod: Pod) -> Pod:
    """A pod that is not planned for."""
    return replace(pod, spec=replace(pod.spec, scheduling_gates=(*pod.spec.scheduling_gates, WAITING_GATE)))


def holding(name: str, node: str, inventory: Inventory, numbers: Sequence[int]) -> Pod | None:
    """What holds devices of a node and is no pod of the cluster; None where it would hold none.

    name: `namespace/name`, with a colon in the name, so that no pod of the cluster can be called so.
    """
    if not numbers:
        return None
    namespace, _, bare = name.partition("/")
    annotations = PodAnnotations(devices=",".join(map(str, numbers)), movable="false")
    ask = Container(Resources(requests={inventory.resource: str(len(numbers))}))
    return Pod(
        PodMeta(bare, namespace, annotations=annotations),
        PodSpec(containers=(ask,), node_name=node, priority=HOLDER_PRIORITY),
        PodStatus("Running"),
    )


def holder_of(claim: str) -> str:
    """The name of what holds the devices of a claim for which no bound pod answers."""
    namespace, _, name = claim.partition("/")
    return f"{namespace}/claim:{name}"


def withholder_of(node: str) -> str:
    """The name of what holds the devices of a node that are given to nobody."""
    return f"resource.tonnage.dev/withheld:{node}"
