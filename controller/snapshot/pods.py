"""One pod as a row of the snapshot: requests, node, gang and service, before references are resolved."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from cluster.errors import Mistake
from cluster.hardware import MAX_GPUS_PER_NODE, WHOLE_GPU_MILLI
from cluster.workloads import PodShape
from controller.api.labels import GPU_MILLI_ANNOTATION, MOVABLE_ANNOTATION
from controller.api.structs import Pod
from controller.objects.read import Findings, Read
from controller.snapshot.node_affinity import matches_node_names
from controller.snapshot.nodes import GPU_RESOURCES, TypeIndex
from controller.snapshot.pod_groups import GroupRef, group_of
from controller.snapshot.pod_requests import LONGEST_SHOWN, requested, shape_from

SYSTEM_PRIORITY = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The two priority classes that every cluster has. Source: Kubernetes documentation, "Guaranteed scheduling"."""

REMARKS = {
    "InstanceTypeUnknown": (
        "are instances of a service but name no single GPU type: their service does not count them"
    ),
    "PodAffinityNotHeeded": "require pod affinity or anti-affinity, which is ignored",
    "SpreadNotHeeded": "have topology spread constraints, which are ignored",
    "ResourceNotHeeded": "request {}, which is ignored",
    "ShareNotHeeded": f"ask for a share of a GPU as KAI writes it, which is ignored; {GPU_MILLI_ANNOTATION} is read",
    "ClaimNotHeeded": "have ResourceClaims, which are ignored in files: planned without the devices of their claims",
    "PriorityUnresolved": "have a priorityClassName but no priority: taken as 0",
}
"""Notes on pods, by code; each is reported once for all pods to which it applies."""

LONGEST_NAME = 63 + 1 + 253
"""Maximum number of characters of a namespace and a name in it, in Kubernetes."""
_EVERY_DEVICE = PodShape(gpus=MAX_GPUS_PER_NODE, gpu_milli=WHOLE_GPU_MILLI)
"""Shape that a running pod with unreadable requests counts as, so that no device is allocated twice."""
HEEDED = frozenset({"cpu", "memory", "ephemeral-storage", *GPU_RESOURCES})
"""Resources that plans count, or that nodes have enough of."""


@dataclass(frozen=True, slots=True)
class PodRow:
    """Columns of one pod. The objects that it names need not exist."""

    shape: PodShape
    node: str
    """Node to which it is bound; empty while it is pending."""
    gang: str
    """Gang, `namespace/name`, or "" for none. Of a group of another project: the name that refers to it."""
    owner: str
    """Service of which it is an instance, `namespace/name`, or ""."""
    priority: int
    movable: bool
    matches_node_names: bool
    never_preempts: bool = False
    """Whether no pod may be stopped for this one."""
    remarks: tuple[tuple[str, str], ...] = ()
    """Notes as (code in REMARKS, text for the placeholder in its words)."""
    mistakes: tuple[Mistake, ...] = ()
    group: GroupRef | None = None
    """Group of another project, for a pod that does not say in its label of which gang it is."""


def pod_row(read: Read[Pod], types: TypeIndex) -> PodRow:
    """Columns of a pod. Of one that cannot be read, those of a pod that holds all devices of its node."""
    try:
        return _row(read, types)
    except Exception as error:  # noqa: BLE001 - one pod must not stop the others
        return PodRow(
            shape=_EVERY_DEVICE,
            node=read.object.spec.node_name,
            gang="",
            owner="",
            priority=0,
            movable=False,
            matches_node_names=False,
            mistakes=(read.unreadable(error),),
        )


def _row(read: Read[Pod], types: TypeIndex) -> PodRow:
    pod, findings = read.object, Findings()
    ask, shape = _ask_and_shape(read, types, findings)
    namespace, labels = pod.metadata.namespace, pod.metadata.labels
    owner = "" if labels.service is None else f"{namespace}/{labels.service}"
    group = _group(read, findings) if labels.gang is None else None
    return PodRow(
        shape=shape,
        node=pod.spec.node_name,
        gang=f"{namespace}/{labels.gang}" if labels.gang else group.text if group else "",
        owner=owner,
        priority=_priority(pod),
        movable=_movable(read, owner, findings),
        matches_node_names=matches_node_names(shape.node_terms),
        never_preempts=pod.spec.preemption_policy == "Never",
        remarks=_remarks(read, ask, shape),
        mistakes=tuple(findings.mistakes),
        group=group,
    )


def _group(read: Read[Pod], findings: Findings) -> GroupRef | None:
    """Group of another project that the pod names; none by a name that no object has, as an annotation may hold."""
    group = group_of(read.object)
    if group is None or len(group.name) <= LONGEST_NAME:
        return group
    problem = f"name a group with {len(group.name)} characters: {group.name[:LONGEST_SHOWN]!r}"
    findings.mistake(read.mistake(("metadata", "annotations"), problem, "write the name of an object"))
    return None


def _ask_and_shape(read: Read[Pod], types: TypeIndex, findings: Findings) -> tuple[Mapping[str, Decimal], PodShape]:
    try:
        ask = requested(read.object)
    except ValueError as error:
        # The API server admits quantities that do not fit into 64 bits.
        findings.mistake(read.mistake(("spec", "containers"), str(error)))
        return {}, _EVERY_DEVICE
    return ask, shape_from(read, ask, types, findings)


def _movable(read: Read[Pod], owner: str, findings: Findings) -> bool:
    """Whether a pod may be moved: an instance of a service, which its service replaces, or by its annotation."""
    written = read.object.metadata.annotations.movable
    if written not in (None, "true", "false"):
        path = ("metadata", "annotations", MOVABLE_ANNOTATION)
        findings.mistake(read.mistake(path, f"is {written[:LONGEST_SHOWN]!r}", 'write "true" or "false"'))
    return bool(owner) if written is None else written == "true"


def _priority(pod: Pod) -> int:
    """Priority that admission wrote into the pod; 0 for a priority class that was not resolved."""
    if pod.spec.priority is not None:
        return pod.spec.priority
    return SYSTEM_PRIORITY.get(pod.spec.priority_class_name, 0)


def _remarks(read: Read[Pod], ask: Mapping[str, Decimal], shape: PodShape) -> tuple[tuple[str, str], ...]:
    """Notes on a pod; for a pending one also the constraints that kube-scheduler honours and this plan ignores."""
    remarks = []
    pod = read.object
    spec, annotations = pod.spec, pod.metadata.annotations
    if annotations.kai_fraction is not None or annotations.kai_memory is not None:
        remarks.append(("ShareNotHeeded", ""))
    if read.document is not None and spec.resource_claims:
        remarks.append(("ClaimNotHeeded", ""))
    if pod.metadata.labels.service is not None and len(shape.gpu_types) != 1:
        remarks.append(("InstanceTypeUnknown", ""))
    if not spec.node_name:
        if spec.affinity.pod_affinity.required or spec.affinity.pod_anti_affinity.required:
            remarks.append(("PodAffinityNotHeeded", ""))
        if any(c.when_unsatisfiable == "DoNotSchedule" for c in spec.topology_spread_constraints):
            remarks.append(("SpreadNotHeeded", ""))
        remarks += [
            ("ResourceNotHeeded", name) for name, amount in sorted(ask.items()) if amount and name not in HEEDED
        ]
    if spec.priority is None and spec.priority_class_name and spec.priority_class_name not in SYSTEM_PRIORITY:
        remarks.append(("PriorityUnresolved", ""))
    return tuple(remarks)
