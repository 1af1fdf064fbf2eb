"""Placement mode `bind`: Tonnage binds the pod itself, for pods with `schedulerName: tonnage`.

The Binding carries the devices as annotations. They reach the pod in the same write as its node, so no reader sees the
pod without its devices. Only for nodes that Tonnage owns: the API server checks nothing on a Binding, so two schedulers
on one node would over-commit it.
"""

from collections.abc import Mapping

from cluster.actions import Bind
from controller.api.labels import CHOSEN_NODE_ANNOTATION, DEVICES_ANNOTATION, SCHEDULER_NAME
from controller.kube.cluster_view import SeenPod
from controller.kube.sender import Stamp, Write
from controller.placers.claims import Allocate


def waits_for_it(pod: SeenPod) -> bool:
    """Whether a pending pod is to be placed by `bind`.

    A pod with ResourceClaims waits for `dra` instead: without devices allocated to it, it would never start on its
    node.
    """
    return waits_without_node(pod) and not pod.has_claims


def waits_without_node(pod: SeenPod) -> bool:
    """Whether a pod waits for a Binding by Tonnage, wherever its devices come from."""
    return pod.scheduler_name == SCHEDULER_NAME and not pod.node and not pod.gates and not pod.is_ending


def writes(
    pod: SeenPod,
    action: Bind,
    labels: Mapping[str, str],  # noqa: ARG001 - part of the Placer protocol
    stamp: Stamp,
    allocate: Allocate,  # noqa: ARG001
) -> list[Write]:
    """The Binding, as the only write.

    Preconditions: the same pod (uid) in the version observed (resourceVersion); the server answers 409 otherwise.
    """
    namespace, _, name = pod.name.partition("/")
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": pod.uid,
        "resourceVersion": pod.version,
        "annotations": placed_annotations(action, stamp),
    }
    target = {"apiVersion": "v1", "kind": "Node", "name": action.node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    return [Write("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body)]


def placed_annotations(action: Bind, stamp: Stamp) -> dict[str, str]:
    """Annotations of a placed pod: its node, the stamp of the leader that placed it, and its devices if it has any."""
    devices = ",".join(str(device) for device in sorted(action.devices))
    annotations = {CHOSEN_NODE_ANNOTATION: action.node, **stamp.annotations}
    return {**annotations, DEVICES_ANNOTATION: devices} if devices else annotations
