"""What one pod says by itself: what it asks, where it runs, what it belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from cluster.errors import Mistake
from cluster.workloads import PodShape
from controller.api.labels import MOVABLE_ANNOTATION
from controller.kube.structs import Pod
from controller.objects.findings import Findings
from controller.objects.read import Read
from controller.snapshot.node_affinity import matches_node_names
from controller.snapshot.nodes import GPU_RESOURCES, TypeIndex
from controller.snapshot.pod_requests import requested, shape_from

SYSTEM_PRIORITY = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The two priority classes that every cluster has. Source: Kubernetes documentation, "Guaranteed scheduling"."""

REMARKS = {
    "InstanceTypeUnknown": (
        "are instances of a service but name no single GPU type: their service does not count them"
    ),
    "PodAffinityNotHeeded": "require pod affinity or anti-affinity, which is not heeded",
    "SpreadNotHeeded": "have topology spread constraints, which are not heeded",
    "ResourceNotHeeded": "ask for {}, which is not heeded",
    "PriorityUnresolved": "have a priorityClassName but no priority: taken as 0",
}
"""What is worth knowing of pods, by code; said once for all pods that it is true of."""

_HEEDED = {"cpu", "memory", "ephemeral-storage", *GPU_RESOURCES}


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod by itself. What its names refer to need not exist."""

    shape: PodShape
    node: str
    """Empty: it runs nowhere yet."""
    gang: str
    """`namespace/name`, or "" for none."""
    owner: str
    """The service that it is an instance of, `namespace/name`, or ""."""
    priority: int
    movable: bool
    matches_node_names: bool
    remarks: tuple[tuple[str, str], ...] = ()
    """(code in REMARKS, what stands in the gap of its words)."""
    mistakes: tuple[Mistake, ...] = ()


def pod_row(read: Read[Pod], types: TypeIndex) -> PodRow:
    pod, findings = read.object, Findings()
    ask, shape = _ask_and_shape(read, types, findings)
    namespace, labels = pod.metadata.namespace, pod.metadata.labels
    owner = "" if labels.service is None else f"{namespace}/{labels.service}"
    return PodRow(
        shape=shape,
        node=pod.spec.node_name,
        gang="" if labels.gang is None else f"{namespace}/{labels.gang}",
        owner=owner,
        priority=_priority(pod),
        movable=_movable(read, owner, findings),
        matches_node_names=matches_node_names(pod.spec),
        remarks=_remarks(pod, ask, shape),
        mistakes=tuple(findings.mistakes),
    )


def _ask_and_shape(read: Read[Pod], types: TypeIndex, findings: Findings) -> tuple[Mapping[str, Decimal], PodShape]:
    try:
        ask = requested(read.object)
    except ValueError as error:
        # The API server lets quantities through that no 64 bits hold.
        findings.mistake(read.mistake(("spec", "containers"), str(error)))
        return {}, PodShape()
    return ask, shape_from(read, ask, types, findings)


def _movable(read: Read[Pod], owner: str, findings: Findings) -> bool:
    """An instance of a service is, because its service starts another; any other pod only when it says so."""
    written = read.object.metadata.annotations.movable
    if written not in (None, "true", "false"):
        path = ("metadata", "annotations", MOVABLE_ANNOTATION)
        findings.mistake(read.mistake(path, f"is {written!r}", 'write "true" or "false"'))
    return bool(owner) if written is None else written == "true"


def _priority(pod: Pod) -> int:
    """As admission wrote it there; a class that was not resolved counts as 0."""
    if pod.spec.priority is not None:
        return pod.spec.priority
    return SYSTEM_PRIORITY.get(pod.spec.priority_class_name, 0)


def _remarks(pod: Pod, ask: Mapping[str, Decimal], shape: PodShape) -> tuple[tuple[str, str], ...]:
    """What its reader should know; of a pending pod also the conditions that kube-scheduler would heed and this plan
    does not, because it must not look as if it did."""
    said = []
    spec = pod.spec
    if pod.metadata.labels.service is not None and len(shape.gpu_types) != 1:
        said.append(("InstanceTypeUnknown", ""))
    if not spec.node_name:
        if spec.affinity.pod_affinity.required or spec.affinity.pod_anti_affinity.required:
            said.append(("PodAffinityNotHeeded", ""))
        if any(c.when_unsatisfiable == "DoNotSchedule" for c in spec.topology_spread_constraints):
            said.append(("SpreadNotHeeded", ""))
        said += [("ResourceNotHeeded", name) for name, amount in sorted(ask.items()) if amount and name not in _HEEDED]
    if spec.priority is None and spec.priority_class_name and spec.priority_class_name not in SYSTEM_PRIORITY:
        said.append(("PriorityUnresolved", ""))
    return tuple(said)
