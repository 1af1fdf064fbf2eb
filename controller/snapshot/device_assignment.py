"""Which devices the running pods of a node hold, and a fixed guess for those that do not say."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.errors import Mistake
from cluster.hardware import WHOLE_GPU_MILLI
from cluster.workloads import PodShape
from controller.api.labels import DEVICES_ANNOTATION, is_device_number
from controller.kube.structs import Pod
from controller.objects.read import Read


@dataclass(frozen=True, slots=True)
class Running:
    """A pod on a node that asks for GPUs."""

    read: Read[Pod]
    shape: PodShape


@dataclass(frozen=True, slots=True)
class Held:
    """The devices of one node's pods."""

    devices: dict[str, tuple[int, ...]]
    """By the name of the pod."""
    assumed: tuple[str, ...]
    """The pods that do not say which devices they hold."""
    mistakes: tuple[Mistake, ...]


def devices_held(running: Sequence[Running], gpus_of_node: int) -> Held:
    """The device numbers of each pod of one node, by its name.

    Pods say theirs in an annotation. For the others, the largest ask chooses first, whole devices before shares, each
    the devices that it fills most; equal ones by name. The choice depends on nothing but the pods of that node.
    """
    held: dict[str, tuple[int, ...]] = {}
    silent, mistakes = [], []
    left = [WHOLE_GPU_MILLI] * gpus_of_node
    for each in sorted(running, key=lambda e: e.read.name):
        said = _said(each, gpus_of_node)
        if isinstance(said, tuple):
            held[each.read.name] = _take(left, each, said)
            continue
        silent.append(each)
        if said is not None:
            mistakes.append(said)
    for each in sorted(silent, key=lambda e: (-e.shape.gpu_milli, -e.shape.gpus, e.read.name)):
        held[each.read.name] = _take(left, each, _fullest(left, each.shape))
    return Held(held, tuple(each.read.name for each in silent), tuple(mistakes))


def _take(left: list[int], pod: Running, devices: tuple[int, ...]) -> tuple[int, ...]:
    for device in devices:
        left[device] -= pod.shape.gpu_milli
    return devices


def _fullest(left: Sequence[int], shape: PodShape) -> tuple[int, ...]:
    """Where the pod fits and leaves least; on an over-committed node, where it fits on too few, the freest."""
    fit = sorted((free, device) for device, free in enumerate(left) if free >= shape.gpu_milli)
    rest = sorted((-free, device) for device, free in enumerate(left) if free < shape.gpu_milli)
    return tuple(sorted(device for _, device in (fit + rest)[: shape.gpus]))


def _said(pod: Running, gpus_of_node: int) -> tuple[int, ...] | Mistake | None:
    """The devices that a pod names; None when it names none, the mistake when they cannot be."""
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
