"""Placement mode `gate`: Tonnage chooses the node and kube-scheduler binds, for pods with our scheduling gate.

One patch removes the gate `tonnage.dev/placement` and restricts the pod to one node. kube-scheduler still checks all
that it knows of (ports, volumes, capacity). If it finds the node unfit, the pod stays pending and must be recreated,
because a node selector cannot be changed once the gates are gone.
"""

from collections.abc import Mapping

from cluster.actions import Bind
from cluster.errors import ActionError
from cluster.nodes import HOSTNAME_LABEL
from controller.api.labels import PLACEMENT_GATE, SCHEDULER_NAME
from controller.kube.cluster_view import SeenPod
from controller.kube.request import MERGE_PATCH
from controller.kube.sender import Stamp, Write
from controller.placers.bind import placed_annotations
from controller.placers.claims import Allocate


def waits_for_it(pod: SeenPod) -> bool:
    """Whether a pending pod is to be placed by `gate`; one with ResourceClaims waits for `dra`."""
    return waits_without_node(pod) and not pod.has_claims


def waits_without_node(pod: SeenPod) -> bool:
    """Whether our gate is the only one left on a pod without a node.

    With other gates beside ours, another controller still holds the pod back; it must not hold devices meanwhile.
    """
    mine = pod.scheduler_name != SCHEDULER_NAME
    return mine and pod.gates == (PLACEMENT_GATE,) and not pod.node and not pod.is_ending


def writes(
    pod: SeenPod,
    action: Bind,
    labels: Mapping[str, str],
    stamp: Stamp,
    allocate: Allocate,  # noqa: ARG001 - part of the Placer protocol
) -> list[Write]:
    """The patch that removes the gate and selects the node, as the only write.

    Preconditions: the same pod (uid) in the version observed (resourceVersion); the server answers 409 otherwise.
    Raises ActionError when the node has no hostname label.
    """
    hostname = labels.get(HOSTNAME_LABEL)
    if hostname is None:
        raise ActionError(f"releasing {pod.name} to {action.node}: the node has no label {HOSTNAME_LABEL}")
    namespace, _, name = pod.name.partition("/")
    body = {
        "metadata": {
            "uid": pod.uid,
            "resourceVersion": pod.version,
            "annotations": placed_annotations(action, stamp),
        },
        "spec": {"schedulingGates": [], "nodeSelector": {HOSTNAME_LABEL: hostname}},
    }
    return [Write("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", body, MERGE_PATCH)]
