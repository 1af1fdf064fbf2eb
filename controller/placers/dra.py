"""Placement mode `dra` (dynamic resource allocation): Tonnage allocates a pod's ResourceClaims, then places the pod.

The only mode in which Kubernetes itself knows which devices a pod has. A pod with `schedulerName: tonnage` is then
bound by Tonnage. A gated pod is released, and kube-scheduler, which finds its claims allocated, binds it. The API
server does not check that a device is in one claim only, so no other component may allocate devices of these nodes.
"""

from collections.abc import Mapping

from cluster.actions import Bind
from controller.kube.cluster_view import SeenPod
from controller.kube.sender import Stamp, Write
from controller.placers import bind, gate
from controller.placers.claims import Allocate


def waits_for_it(pod: SeenPod) -> bool:
    """Whether a pending pod has ResourceClaims and waits for a Binding, or for the removal of its gate."""
    """Whether a pending pod has ResourceClaims and waits for a Binding, or for the removal of its gate."""
    return pod.has_claims and (bind.waits_without_node(pod) or gate.waits_without_node(pod))


def writes(pod: SeenPod, action: Bind, labels: Mapping[str, str], stamp: Stamp, allocate: Allocate) -> list[Write]:
    """Writes of the claims, then of the pod: on a node before its claims are allocated, the pod would wait there."""
    placer = bind if bind.waits_without_node(pod) else gate
    return [*allocate(pod, action, stamp), *placer.writes(pod, action, labels, stamp, allocate)]
