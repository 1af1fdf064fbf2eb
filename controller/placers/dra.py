"""Exact devices by dynamic resource allocation: Tonnage allocates a pod's ResourceClaims, then places the pod.

The only way of the three in which Kubernetes itself knows which devices a pod has. The pod is placed as it asks: by
`schedulerName: tonnage` it is bound by Tonnage, by the gate it is released and kube-scheduler, which finds its claims
allocated, binds it. The API server does not check that a device is in one claim only, so nobody else may allocate
devices of these nodes.
"""

from collections.abc import Mapping

from cluster.actions import Bind
from controller.kube.cluster_view import SeenPod
from controller.kube.stamp import Stamp
from controller.kube.write import Write
from controller.placers import bind, gate
from controller.placers.claims import Allocate


def waits_for_it(pod: SeenPod) -> bool:
    return pod.has_claims and (bind.waits_without_node(pod) or gate.waits_without_node(pod))


def writes(pod: SeenPod, action: Bind, labels: Mapping[str, str], stamp: Stamp, allocate: Allocate) -> list[Write]:
    """Claims first: a pod that is on a node before its claims are allocated waits there for them."""
    way = bind if bind.waits_without_node(pod) else gate
    return [*allocate(pod, action, stamp), *way.writes(pod, action, labels, stamp, allocate)]
