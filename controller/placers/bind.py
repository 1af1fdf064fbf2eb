"""Tonnage binds the pod itself: one Binding that carries the devices, for pods with `schedulerName: tonnage`.

For nodes that Tonnage owns: the API server checks nothing on a Binding, so two schedulers on one node would over-commit
it. The annotations of a Binding reach the pod in the same write as its node, so no one sees it without its devices.
"""

from collections.abc import Mapping

from cluster.actions import Bind
from controller.api.labels import CHOSEN_NODE_ANNOTATION, DEVICES_ANNOTATION, SCHEDULER_NAME
from controller.kube.cluster_view import SeenPod
from controller.kube.stamp import Stamp
from controller.kube.write import Write
from controller.placers.claims import Allocate


def waits_for_it(pod: SeenPod) -> bool:
    """One with claims waits for `dra`: on a node without devices that are allocated to it, it would never start."""
    return waits_without_node(pod) and not pod.has_claims


def waits_without_node(pod: SeenPod) -> bool:
    """Whether a Binding of Tonnage's is what it waits for, whatever its devices come from."""
    return pod.scheduler_name == SCHEDULER_NAME and not pod.node and not pod.gates and not pod.is_ending


def writes(
    pod: SeenPod,
    action: Bind,
    labels: Mapping[str, str],  # noqa: ARG001 - the border's
    stamp: Stamp,
    allocate: Allocate,  # noqa: ARG001
) -> list[Write]:
    """Preconditions: the same pod (uid) as it was seen (resourceVersion); the server answers 409 otherwise."""
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
    """What stands on a placed pod: its node, which leader placed it and when, and its devices when it has any."""
    devices = ",".join(str(device) for device in sorted(action.devices))
    said = {CHOSEN_NODE_ANNOTATION: action.node, **stamp.annotations}
    return {**said, DEVICES_ANNOTATION: devices} if devices else said
