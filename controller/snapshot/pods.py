"""One pod as a row of the snapshot: its effective requests and shape, node, gang and service, by name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from operator import add

from cluster.errors import Mistake, meant
from cluster.workloads import MAX_GPUS_PER_NODE, WHOLE_GPU_MILLI, PodShape, Requirement, Terms
from controller.api import notation
from controller.api.labels import GPU_MILLI_ANNOTATION, GPU_TYPES_ANNOTATION, MOVABLE_ANNOTATION, SCHEDULER_NAME
from controller.api.structs import Amount, Pod
from controller.objects.read import Findings, Read
from controller.snapshot.nodes import (
    GPU_RESOURCES,
    Problem,
    TypeIndex,
    matches_node_names,
    pinned_where_it_runs,
    terms_of,
    tolerations_of,
)
from controller.snapshot.pod_groups import GroupRef, group_of

MOST_TYPES = 64
"""Maximum number of types in an annotation; as many as a ModelService may name."""
MOST_DEVICES = 1_000_000
"""Largest number of devices that a pod is taken to request, so that sums over pods fit into 64 bits in thousandths. No
node has as many."""
MOST_NAMED = 3
"""Maximum number of unknown types that errors name."""
LONGEST_SHOWN = 40
"""Maximum number of characters of an annotation that an error shows."""
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

Amounts = Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class PodRow:
    """Columns of one pod. The objects that it names need not exist."""

    shape: PodShape
    node: str
    """Node to which it is bound; empty while it is pending."""
    gang: str = ""
    """Gang, `namespace/name`, or "" for none. Of a group of another project: the name that refers to it."""
    owner: str = ""
    """Service of which it is an instance, `namespace/name`, or ""."""
    priority: int = 0
    movable: bool = False
    matches_node_names: bool = False
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
        return PodRow(_EVERY_DEVICE, read.object.spec.node_name, mistakes=(read.unreadable(error),))


def _row(read: Read[Pod], types: TypeIndex) -> PodRow:
    findings, ask, shape = Findings(), dict[str, Decimal](), _EVERY_DEVICE
    spec, meta, annotations = read.object.spec, read.object.metadata, read.object.metadata.annotations
    try:
        ask = requested(read.object)
    except ValueError as error:
        # The API server admits quantities that do not fit into 64 bits.
        findings.mistake(read.mistake(("spec", "containers"), str(error)))
    else:
        shape = shape_from(read, ask, types, findings)
    namespace = read.object.metadata.namespace
    owner = "" if meta.service is None else f"{namespace}/{meta.service}"
    group = group_of(read.object) if meta.gang is None else None
    if group is not None and len(group.name) > LONGEST_NAME:  # an annotation may hold a name that no object has
        problem = f"name a group with {len(group.name)} characters: {group.name[:LONGEST_SHOWN]!r}"
        findings.mistake(read.mistake(("metadata", "annotations"), problem, "write the name of an object"))
        group = None
    if annotations.movable not in (None, "true", "false"):
        problem = f"is {annotations.movable[:LONGEST_SHOWN]!r}"
        findings.mistake(
            read.mistake(("metadata", "annotations", MOVABLE_ANNOTATION), problem, 'write "true" or "false"')
        )
    # Admission writes the priority of a class into the pod.
    priority = SYSTEM_PRIORITY.get(spec.priority_class_name, 0) if spec.priority is None else spec.priority
    return PodRow(
        shape=shape,
        node=spec.node_name,
        gang=f"{namespace}/{meta.gang}" if meta.gang else group.text if group else "",
        owner=owner,
        priority=priority,
        # An instance may be moved because its service replaces it.
        movable=bool(owner) if annotations.movable is None else annotations.movable == "true",
        matches_node_names=matches_node_names(shape.node_terms),
        never_preempts=spec.preemption_policy == "Never",
        remarks=_remarks(read, ask, shape),
        mistakes=tuple(findings.mistakes),
        group=group,
    )


def _remarks(read: Read[Pod], ask: Amounts, shape: PodShape) -> tuple[tuple[str, str], ...]:
    """Notes on a pod; for a pending one also the constraints that kube-scheduler honours and this plan ignores."""
    remarks = []
    spec, annotations = read.object.spec, read.object.metadata.annotations
    if annotations.kai_fraction is not None or annotations.kai_memory is not None:
        remarks.append(("ShareNotHeeded", ""))
    if read.document is not None and spec.resource_claims:
        remarks.append(("ClaimNotHeeded", ""))
    if read.object.metadata.service is not None and len(shape.gpu_types) != 1:
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


def requested(pod: Pod) -> dict[str, Decimal]:
    """Effective requests of a pod, by resource.

    Containers and sidecars run together. An init container runs with the sidecars that started before it. The pod needs
    the maximum over all these phases, plus its overhead. Pod-level requests replace the sum over the containers, and
    pod-level limits stand for requests where no container has one.
    Source: Kubernetes documentation, "Init containers: resource sharing" and "Pod-level resource specification";
    KEP-2837, "Pod-level Defaulting". Raises ValueError for an invalid quantity.
    """
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in pod.spec.init_containers:
        # A limit without a request counts as a request of the same size.
        moment = _joined(add, sidecars, _amounts({**container.resources.limits, **container.resources.requests}))
        if container.is_sidecar:
            sidecars = moment
        most = _joined(max, most, moment)
    running = sidecars
    for container in pod.spec.containers:
        running = _joined(add, running, _amounts({**container.resources.limits, **container.resources.requests}))
    whole = pod.spec.resources
    asked = {**_amounts(whole.limits), **_joined(max, most, running), **_amounts(whole.requests)}
    return _joined(add, asked, _amounts(pod.spec.overhead))


def _amounts(written: Mapping[str, Amount]) -> Amounts:
    return {name: notation.quantity(amount) for name, amount in written.items()}


def _joined(how: Callable[[Decimal, Decimal], Decimal], a: Amounts, b: Amounts) -> dict[str, Decimal]:
    return {name: how(a.get(name, Decimal(0)), b.get(name, Decimal(0))) for name in {**a, **b}}


def shape_from(read: Read[Pod], ask: Amounts, types: TypeIndex, findings: Findings) -> PodShape:
    """Shape of a pod with these requests.

    Its GPU types follow from its annotation, its node selector and the extended resource that it requests.
    """
    spec, node = read.object.spec, read.object.spec.node_name

    def complain(field: str, problems: Iterable[Problem]) -> None:
        """Mistakes in a constraint. Those of a pod that runs decide about nothing any more."""
        for problem, remedy in () if node else problems:
            findings.mistake(read.mistake(("spec", field), problem, remedy))

    gpus, gpu_milli, resource = _gpus(read, ask, findings)
    terms, problems = terms_of(spec)
    complain("affinity", problems)
    if place := node or _released_to(read):
        terms = pinned_where_it_runs(terms, place)
    allowed = _allowed_types(read, resource, types, findings)
    if gpus and len(terms) == 1:
        terms, allowed = _lift_types(terms[0], allowed, types)
    tolerations, problems = tolerations_of(spec)
    complain("tolerations", problems)
    return PodShape(
        cpu_milli=notation.milli(ask.get("cpu", Decimal(0))),
        memory_bytes=notation.whole(ask.get("memory", Decimal(0))),
        gpus=gpus,
        gpu_milli=gpu_milli,
        gpu_types=tuple(sorted(types.names[n] for n in allowed)) if gpus and allowed else (),
        node_terms=terms,
        tolerations=tolerations,
    )


def _released_to(read: Read[Pod]) -> str:
    """Node to which Tonnage tied a pod of a live cluster that is not bound yet; empty for any other."""
    spec = read.object.spec
    is_tied = read.document is None and not spec.scheduling_gates and spec.scheduler_name != SCHEDULER_NAME
    return (read.object.metadata.annotations.node or "") if is_tied else ""


def _gpus(read: Read[Pod], ask: Amounts, findings: Findings) -> tuple[int, int, str]:
    """(number of devices, thousandths of each, extended resource of whole devices) that a pod requests."""
    spec = read.object.spec
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for number, container in enumerate(containers):
            for part, amounts in (("limits", container.resources.limits), ("requests", container.resources.requests)):
                for name in GPU_RESOURCES:
                    # The API server refuses fractions of extended resources.
                    if name in amounts and (amount := notation.quantity(amounts[name])) % 1:
                        path = ("spec", field, number, "resources", part, name)
                        remedy = f"whole devices only; for a fraction of one: the annotation {GPU_MILLI_ANNOTATION}"
                        findings.mistake(read.mistake(path, f"is {amount}", remedy))
    whole = {name: count for name in GPU_RESOURCES if (count := notation.whole(ask.get(name, Decimal(0))))}
    whole = {name: min(count, MOST_DEVICES) for name, count in whole.items()}
    share = read.object.metadata.annotations.gpu_milli
    here = ("metadata", "annotations", GPU_MILLI_ANNOTATION)
    if len(whole) > 1:
        problem = f"requests {' and '.join(whole)}"
        findings.mistake(read.mistake(("spec", "containers"), problem, "one pod uses GPUs of one vendor"))
    if share is None:
        resource, count = next(iter(whole.items()), ("", 0))
        return count, WHOLE_GPU_MILLI if count else 0, resource
    if whole:
        problem = f"requests a fraction while the containers request {' and '.join(whole)}"
        findings.mistake(read.mistake(here, problem, "request whole devices or a fraction of one"))
        # A running pod holds what its containers request, whatever an annotation says.
        resource, count = max(whole.items(), key=lambda each: each[1])
        return count, WHOLE_GPU_MILLI, resource
    # The length is checked first: int() fails on thousands of digits, and an annotation may hold any text.
    if not (share.isascii() and share.isdigit() and len(share) < 10 and 1 <= int(share) <= WHOLE_GPU_MILLI):
        remedy = f"write thousandths of one GPU, 1 to {WHOLE_GPU_MILLI}"
        findings.mistake(read.mistake(here, f"is {share[:LONGEST_SHOWN]!r}", remedy))
        return 1, WHOLE_GPU_MILLI, ""
    return 1, int(share), ""


def _allowed_types(read: Read[Pod], resource: str, types: TypeIndex, findings: Findings) -> set[int] | None:
    """Indices of the types that the pod may use by its annotation and the resource that it requests; None: any."""
    allowed: set[int] | None = None
    written = read.object.metadata.annotations.gpu_types
    if written is not None:
        here = ("metadata", "annotations", GPU_TYPES_ANNOTATION)
        names = [part.strip() for part in written.split(",", MOST_TYPES)]
        if len(names) > MOST_TYPES:
            problem, names = f"names more than {MOST_TYPES} types", []
            findings.mistake(read.mistake(here, problem, "name fewer, or leave it out for any"))
        unknown = [name for name in names if types.named(name) is None]
        for name in unknown[:MOST_NAMED]:
            problem = f"there is no GPUType {name[:LONGEST_SHOWN]!r}"
            findings.mistake(read.mistake(here, problem, meant(name[:LONGEST_SHOWN], types.names)))
        allowed = {number for name in names if (number := types.named(name)) is not None}
    if not resource or not types.types:
        return allowed
    # Whole devices are requested by their vendor's resource, which excludes types of other vendors.
    offered = {n for n, name in enumerate(types.resource) if name == resource}
    if allowed is None and len(offered) == len(types.types):
        return None
    found = offered if allowed is None else allowed & offered
    if not found:
        problem = f"request {resource}, but no GPUType that the pod may run on is offered as that"
        findings.mistake(read.mistake(("spec", "containers"), problem, "see spec.resourceName of the GPUTypes"))
    return found


def _lift_types(
    term: Iterable[Requirement], allowed: set[int] | None, types: TypeIndex
) -> tuple[Terms, set[int] | None]:
    """Replace node requirements that only choose GPU types by those types: the packer prices them, and they read
    better.

    A requirement is replaced only where the meaning is the same: every value belongs to a type, and all values of each
    of these types are listed.
    """
    kept = []
    for requirement in term:
        wanted = {types.by_label.get((requirement.key, value)) for value in requirement.values}
        labels = {label for label, n in types.by_label.items() if n in wanted}
        asked = set(product((requirement.key,), requirement.values))
        chosen = {n for n in wanted if n is not None}
        narrowed = chosen if allowed is None else allowed & chosen
        if requirement.operator == "In" and None not in wanted and labels == asked and narrowed:
            allowed = narrowed
        else:
            kept.append(requirement)
    return (tuple(kept),) if kept else (), allowed
