"""Tonnage chooses the node, kube-scheduler binds: for pods with the scheduling gate `tonnage.dev/placement`.

One patch removes the gate and narrows the pod to one node. kube-scheduler still checks everything that it knows of
(ports, volumes, capacity); if it finds the node unfit, the pod stays pending and must be made anew, because a node
selector cannot be changed once the gates are gone.
"""

from collections.abc import Mapping

from cluster.actions import Bind
from cluster.errors import ActionError
from controller.api.labels import PLACEMENT_GATE, SCHEDULER_NAME
from controller.kube.cluster_view import SeenPod
from controller.kube.request import MERGE_PATCH
from controller.kube.stamp import Stamp
from controller.kube.write import Write
from controller.placers.bind import placed_annotations
from controller.placers.claims import Allocate

HOSTNAME_LABEL = "kubernetes.io/hostname"


def waits_for_it(pod: SeenPod) -> bool:
    return waits_without_node(pod) and not pod.has_claims


def waits_without_node(pod: SeenPod) -> bool:
    """With other gates beside ours somebody else still holds it back: it must not hold devices meanwhile."""
    mine = pod.scheduler_name != SCHEDULER_NAME
    return mine and pod.gates == (PLACEMENT_GATE,) and not pod.node and not pod.is_ending


def writes(
    pod: SeenPod,
    action: Bind,
    labels: Mapping[str, str],
    stamp: Stamp,
    allocate: Allocate,  # noqa: ARG001 - the border's
) -> list[Write]:
    """Preconditions: the same pod (uid) as it was seen (resourceVersion); the server answers 409 otherwise."""
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
