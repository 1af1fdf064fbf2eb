"""Which devices running pods hold, and a fixed guess for those that do not say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cluster.hardware import WHOLE_GPU_MILLI
from cluster.workloads import PodShape
from controller.api.metadata import DEVICES_ANNOTATION
from controller.api.pod import Pod
from controller.findings import Findings
from controller.manifests import Read


@dataclass(frozen=True, slots=True)
class Running:
    """A pod on a node that holds GPUs."""

    read: Read[Pod]
    shape: PodShape
    node: int
    gpus_of_node: int


def devices_held(running: Iterable[Running], findings: Findings) -> dict[str, tuple[int, ...]]:
    """The device numbers of each pod, by its name.

    Pods say theirs in an annotation. For the others, the largest ask chooses first, whole devices before shares, each
    the devices that it fills most; equal ones by name. The choice depends on nothing but the pods of that node.
    """
    by_node: dict[int, list[Running]] = {}
    for each in running:
        by_node.setdefault(each.node, []).append(each)
    held: dict[str, tuple[int, ...]] = {}
    guessed: list[str] = []
    for pods in by_node.values():
        left = [WHOLE_GPU_MILLI] * pods[0].gpus_of_node
        silent = []
        for each in pods:
            said = _said(each, findings)
            if said is None:
                silent.append(each)
            else:
                held[each.read.name] = _take(left, each, said)
        for each in sorted(silent, key=lambda e: (-e.shape.gpu_milli, -e.shape.gpus, e.read.name)):
            held[each.read.name] = _take(left, each, _fullest(left, each.shape))
            guessed.append(each.read.name)
    words = f"name no devices in {DEVICES_ANNOTATION}: which ones they hold is assumed, the fullest that fit"
    findings.note_many("Pod", "DevicesAssumed", guessed, words)
    return held


def _take(left: list[int], pod: Running, devices: tuple[int, ...]) -> tuple[int, ...]:
    for device in devices:
        left[device] -= pod.shape.gpu_milli
    return devices


def _fullest(left: Sequence[int], shape: PodShape) -> tuple[int, ...]:
    """Where the pod fits and leaves least; on an over-committed node, where it fits on too few, the freest."""
    fit = sorted((free, device) for device, free in enumerate(left) if free >= shape.gpu_milli)
    rest = sorted((-free, device) for device, free in enumerate(left) if free < shape.gpu_milli)
    return tuple(sorted(device for _, device in (fit + rest)[: shape.gpus]))


def _said(pod: Running, findings: Findings) -> tuple[int, ...] | None:
    """The devices that a pod names; None when it names none, or none that can be."""
    written = pod.read.object.metadata.annotations.get(DEVICES_ANNOTATION)
    if written is None:
        return None
    parts = [part.strip() for part in written.split(",")]
    numbers = sorted({int(part) for part in parts if part.isascii() and part.isdigit()})
    if len(numbers) < len(parts):
        problem = f"is {written!r}"
        remedy = 'write different device numbers, like "0,3"'
    elif numbers[-1] >= pod.gpus_of_node:
        problem = f"names device {numbers[-1]}"
        remedy = f"its node has the devices 0 to {pod.gpus_of_node - 1}" if pod.gpus_of_node else "its node has no GPU"
    elif len(numbers) != pod.shape.gpus:
        problem = f"names {len(numbers)} devices, the pod asks for {pod.shape.gpus}"
        remedy = "name as many as it asks for"
    else:
        return tuple(numbers)
    findings.mistake(pod.read.mistake(("metadata", "annotations", DEVICES_ANNOTATION), problem, remedy))
    return None
