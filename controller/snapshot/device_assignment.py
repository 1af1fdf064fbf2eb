"""Devices of the running pods of a node: from their annotation, or assumed deterministically where it is missing."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.errors import Mistake
from cluster.hardware import WHOLE_GPU_MILLI
from cluster.workloads import PodShape
from controller.api.labels import DEVICES_ANNOTATION, is_device_number
from controller.api.structs import Pod
from controller.objects.read import Read


@dataclass(frozen=True, slots=True)
class RunningPod:
    """Pod with GPUs that is bound to a node."""

    read: Read[Pod]
    shape: PodShape


@dataclass(frozen=True, slots=True)
class DevicesOfNode:
    """Devices of the pods of one node."""

    devices: dict[str, tuple[int, ...]]
    """Device indices by pod name."""
    assumed: tuple[str, ...]
    """Pods without a valid annotation, whose devices are assumed."""
    mistakes: tuple[Mistake, ...]


def devices_held(running: Sequence[RunningPod], gpus_of_node: int) -> DevicesOfNode:
    """Device indices of each pod of one node, by pod name.

    An annotation gives them. The other pods choose in order of size, whole devices before fractions, then by name; each
    takes the devices that it fills most. The choice depends only on the pods of that node.
    """
    held: dict[str, tuple[int, ...]] = {}
    unnamed, mistakes = [], []
    left = [WHOLE_GPU_MILLI] * gpus_of_node
    for each in sorted(running, key=lambda e: e.read.name):
        named = _named_devices(each, gpus_of_node)
        if isinstance(named, tuple):
            held[each.read.name] = _take(left, each, named)
            continue
        unnamed.append(each)
        if named is not None:
            mistakes.append(named)
    for each in sorted(unnamed, key=lambda e: (-e.shape.gpu_milli, -e.shape.gpus, e.read.name)):
        held[each.read.name] = _take(left, each, _fullest(left, each.shape))
    return DevicesOfNode(held, tuple(each.read.name for each in unnamed), tuple(mistakes))


def _take(left: list[int], pod: RunningPod, devices: tuple[int, ...]) -> tuple[int, ...]:
    for device in devices:
        left[device] -= pod.shape.gpu_milli
    return devices


def _fullest(left: Sequence[int], shape: PodShape) -> tuple[int, ...]:
    """Devices on which the pod fits and leaves least; on an over-committed node with too few of these, the freest."""
    fit = sorted((free, device) for device, free in enumerate(left) if free >= shape.gpu_milli)
    rest = sorted((-free, device) for device, free in enumerate(left) if free < shape.gpu_milli)
    return tuple(sorted(device for _, device in (fit + rest)[: shape.gpus]))


def _named_devices(pod: RunningPod, gpus_of_node: int) -> tuple[int, ...] | Mistake | None:
    """Devices in a pod's annotation; None without one, an error when the annotation is invalid."""
    written = pod.read.object.metadata.annotations.devices
    if written is None:
        return None
    parts = [part.strip() for part in written.split(",")]
    numbers = sorted({int(part) for part in parts if is_device_number(part)})
    if len(numbers) < len(parts):
        problem = f"is {written[-80:]!r}"
        remedy = 'write different device numbers, like "0,3"'
    elif numbers[-1] >= gpus_of_node:
        problem = f"names device {numbers[-1]}"
        remedy = f"its node has the devices 0 to {gpus_of_node - 1}" if gpus_of_node else "its node has no GPU"
    elif len(numbers) != pod.shape.gpus:
        problem = f"names {len(numbers)} devices, the pod asks for {pod.shape.gpus}"
        remedy = "name as many as it asks for"
    else:
        return tuple(numbers)
    return pod.read.mistake(("metadata", "annotations", DEVICES_ANNOTATION), problem, remedy)
