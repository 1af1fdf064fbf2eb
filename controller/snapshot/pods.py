"""One pod as a row of the snapshot: its effective requests and shape, node, gang and service, by name."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from operator import add

from cluster import workloads
from cluster.errors import Mistake, meant
from cluster.plans import Reason
from controller.api import labels as api_labels, notation
from controller.api.structs import Amount, Container, Pod, Volume
from controller.objects.read import Findings, Read
from controller.snapshot import nodes
from controller.snapshot.group_kinds import GroupRef, group_of
from controller.snapshot.nodes import joined, matches_node_names
from controller.snapshot.pod_rules import Marks, NotUnderstoodError, beside_of
from controller.snapshot.volumes import VolumeNeeds

MOST_TYPES = 64
"""Maximum number of types in an annotation; as many as a ModelService may name."""
MOST_DEVICES = 1_000_000
"""Largest number of devices that a pod is taken to request, so that sums over pods fit into 64 bits in thousandths. No
node has as many."""
MOST_OF_OTHERS = 1 << 56
"""Largest amount of any other resource that a pod is taken to request, for the same reason."""
OS_LABEL = "kubernetes.io/os"
OTHER_SYSTEM = {"linux": "windows", "windows": "linux"}
"""System whose nodes a pod of each system cannot use: their kubelets refuse it."""
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
    "PreferencesNotHeeded": "prefer some nodes or a spread, which is not weighed: only what is required counts",
    "ShareNotHeeded": "hold a share of a GPU as KAI writes it, which is ignored; "
    f"{api_labels.GPU_MILLI_ANNOTATION} is read",
    "PriorityUnresolved": "have a priorityClassName but no priority: taken as 0",
}
"""Notes on pods, by code; each is reported once for all pods to which it applies."""

LONGEST_NAME = 63 + 1 + 253
"""Maximum number of characters of a namespace and a name in it, in Kubernetes."""
_EVERY_DEVICE = workloads.PodShape(gpus=workloads.MAX_GPUS_PER_NODE, gpu_milli=workloads.WHOLE_GPU_MILLI)
"""Shape that a running pod with unreadable requests counts as, so that no device is allocated twice."""
NOT_UNDERSTOOD = "NotUnderstood"
GATED = "SchedulingGated"
Amounts = Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class PodRow:
    """Columns of one pod. The objects that it names need not exist."""

    shape: workloads.PodShape
    node: str
    """Node to which it is bound; empty while it is pending."""
    gang: str = ""
    """Name that refers to its gang, or "" for none."""
    owner: str = ""
    """Service of which it is an instance, `namespace/name`, or ""."""
    priority: int = 0
    movable: bool = False
    matches_node_names: bool = False
    never_preempts: bool = False
    """Whether no pod may be stopped for this one."""
    is_stranger: bool = False
    """Whether it runs by another scheduler's decision."""
    started_s: int = 0
    """Instant at which it started on its node, or was made where it waits, whole seconds since the epoch, if known."""
    saved_s: int = 0
    """Instant of its last checkpoint, likewise; 0 where it waits."""
    is_settled: bool = False
    """Whether it runs, and is not to be stopped: it asks for that, or its replacement would come back to its node."""
    remarks: tuple[tuple[str, str], ...] = ()
    """Notes as (code in REMARKS, text for the placeholder in its words)."""
    mistakes: tuple[Mistake, ...] = ()
    group: GroupRef | None = None
    """Gang or group of another project that it names."""
    marks: Marks = ("", (), "")
    volumes: tuple[Volume, ...] = ()
    """Volumes that may decide where it runs."""
    withheld: Reason | None = None
    """Why it is not placed while it waits."""


def pod_row(read: Read[Pod], types: nodes.TypeIndex) -> PodRow:
    """Columns of a pod. Of one that cannot be read, those of a pod that holds all devices of its node."""
    try:
        return _row(read, types)
    except Exception as error:  # noqa: BLE001 - one pod must not stop the others
        return PodRow(_EVERY_DEVICE, read.object.spec.node_name, mistakes=(read.unreadable(error),))


def _row(read: Read[Pod], types: nodes.TypeIndex) -> PodRow:
    findings, ask, shape = Findings(), dict[str, Decimal](), _EVERY_DEVICE
    spec, meta, annotations = read.object.spec, read.object.metadata, read.object.metadata.annotations
    try:
        ask = requested(read.object)
    except ValueError as error:
        # The API server admits quantities that do not fit into 64 bits.
        findings.mistake(read.mistake(("spec", "containers"), str(error)))
    else:
        shape = shape_from(read, ask, types, findings)
    withheld, beside = None, workloads.ALONE
    if foreign := sorted(gate.name for gate in spec.scheduling_gates if gate.name != api_labels.PLACEMENT_GATE):
        withheld = Reason(GATED, f"its scheduling gate {foreign[0]} is another controller's to remove")
    try:
        terms = nodes.terms_of(spec)[0]
        if place := spec.node_name or _released_to(read):
            terms = workloads.without_pin(
                nodes.pinned_where_it_runs(terms, place)
            )  # its spread is over the domains of its kind
        beside = beside_of(read.object, terms)
        if read.document is not None and spec.resource_claims:
            raise NotUnderstoodError("spec.resourceClaims", "is read on a cluster only; files name no devices")
        if _asks_kai(read.object) and _share_by_kai(read) is None:
            problem = f"asks for a share of a GPU as KAI writes it; {api_labels.GPU_MILLI_ANNOTATION} is read"
            raise NotUnderstoodError("metadata.annotations", problem)
    except NotUnderstoodError as error:
        withheld = withheld or Reason(NOT_UNDERSTOOD, f"not placed, since {error}")
    if beside != workloads.ALONE:
        shape = replace(shape, beside=beside)
    if meta.service is not None and (pool := meta.labels.get(api_labels.MODEL_LABEL)):
        shape = replace(shape, pool=pool)
    namespace = meta.namespace
    owner = "" if meta.service is None else f"{namespace}/{meta.service}"
    group = group_of(read.object)
    if group is not None and len(group.name) > LONGEST_NAME:  # an annotation may hold a name that no object has
        problem = f"name a group with {len(group.name)} characters: {group.name[:LONGEST_SHOWN]!r}"
        findings.mistake(read.mistake(("metadata", "annotations"), problem, "write the name of an object"))
        group = None
    if annotations.movable not in (None, "true", "false"):
        problem = f"is {annotations.movable[:LONGEST_SHOWN]!r}"
        findings.mistake(
            read.mistake(("metadata", "annotations", api_labels.MOVABLE_ANNOTATION), problem, 'write "true" or "false"')
        )
    # Admission writes the priority of a class into the pod.
    priority = SYSTEM_PRIORITY.get(spec.priority_class_name, 0) if spec.priority is None else spec.priority
    saved_s, nominated = notation.instant_or_none(annotations.checkpoint_at), _nominated(read.object)
    is_stranger = bool(spec.node_name or nominated) and not read.object.was_placed
    # An instance may be moved because its service replaces it. What nobody creates anew would be lost; the replacement
    # of another scheduler's pod goes where that one sees fit.
    movable = bool(owner) if annotations.movable is None else annotations.movable == "true"
    movable = movable and (read.document is not None or bool(read.object.metadata.controller))
    settled = bool(spec.node_name) and is_settled(read.object, shape)
    if movable and spec.node_name and not settled:
        shape = replace(shape, node_terms=workloads.without_pin(shape.node_terms))  # its replacement has no pin
    since = read.object.status.start_time if spec.node_name else None if nominated else meta.creation_timestamp
    return PodRow(
        shape=shape,
        node=spec.node_name or nominated,
        gang=group.text if group else "",
        owner=owner,
        priority=priority,
        movable=movable and (read.document is not None or not is_stranger),
        matches_node_names=matches_node_names(shape.node_terms),
        never_preempts=spec.preemption_policy == "Never",
        is_stranger=is_stranger,
        started_s=int(notation.instant_or_none(since) or 0),
        saved_s=int(saved_s or 0) if spec.node_name else 0,
        is_settled=settled,
        remarks=_remarks(read, shape),
        mistakes=tuple(findings.mistakes),
        group=group,
        marks=(namespace, tuple(sorted(meta.labels.items())), _state(read.object)),
        volumes=tuple(each for each in spec.volumes if each != Volume(each.name)),
        withheld=withheld,
    )


def is_settled(pod: Pod, shape: workloads.PodShape) -> bool:
    """Whether nothing is gained by a stop of a running pod, or it asks for none.

    A pod that Tonnage released is pinned by Tonnage, so whether it is by its owner, too, is not seen.
    """
    is_bound_here = pod.spec.scheduler_name == api_labels.SCHEDULER_NAME
    comes_back = pod.belongs_to_its_node or (is_bound_here and workloads.is_pinned(shape.node_terms))
    return comes_back or pod.metadata.annotations.asks_to_stay


def with_needs(row: PodRow, needs: VolumeNeeds) -> PodRow:
    """The row of a pod with what its volumes ask; of a running pod, what it holds of them."""
    shape, withheld = row.shape, row.withheld or needs.problem
    terms = joined(shape.node_terms, needs.terms)
    if terms is None:
        withheld = withheld or Reason(NOT_UNDERSTOOD, "not placed, since its volumes and affinity have too many terms")
        terms = shape.node_terms
    elif row.node:
        terms = nodes.pinned_where_it_runs(terms, row.node)
    beside = replace(shape.beside, claims=needs.claims, volumes=needs.volumes)
    shape = replace(shape, node_terms=terms, beside=beside)
    return replace(row, shape=shape, withheld=withheld, matches_node_names=matches_node_names(terms))


def _asks_kai(pod: Pod) -> bool:
    """Whether a pod asks for a share of a GPU, or of its memory, by annotations of KAI."""
    return pod.metadata.annotations.kai_fraction is not None or pod.metadata.annotations.kai_memory is not None


def _share_by_kai(read: Read[Pod]) -> str | None:
    """Thousandths of a GPU that a pod in files asks for by KAI's fraction; None where it does not, or not readably.

    On a cluster a pod of KAI's own holds the device for all that share it.
    """
    meta = read.object.metadata
    if read.document is None or meta.uid or meta.annotations.kai_memory is not None or read.object.spec.node_name:
        return None
    written = meta.annotations.kai_fraction or ""
    matched = re.fullmatch(r"0?\.(\d{1,3})0*", written)
    return str(int(matched[1].ljust(3, "0"))) if matched and int(matched[1]) else None


def _nominated(pod: Pod) -> str:
    """Node that kube-scheduler frees for a pod of its own, which has that node's resources from then on; or ""."""
    spec, is_chosen_here = pod.spec, pod.metadata.annotations.node is not None
    is_ours = spec.scheduling_gates or spec.scheduler_name == api_labels.SCHEDULER_NAME or is_chosen_here
    return "" if is_ours else pod.status.nominated_node_name


def _state(pod: Pod) -> workloads.PodState:
    if pod.metadata.deletion_timestamp is not None:
        return "ending"
    return "nominated" if not pod.spec.node_name and _nominated(pod) else ""


def _remarks(read: Read[Pod], shape: workloads.PodShape) -> tuple[tuple[str, str], ...]:
    """Notes on a pod; for a pending one also that it has wishes which no plan weighs."""
    remarks = []
    spec = read.object.spec
    if _asks_kai(read.object) and _share_by_kai(read) is None:
        remarks.append(("ShareNotHeeded", ""))
    if read.object.metadata.service is not None and len(shape.gpu_types) != 1:
        remarks.append(("InstanceTypeUnknown", ""))
    affinity = spec.affinity
    preferred = (affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity)
    soft = any(c.when_unsatisfiable == "ScheduleAnyway" for c in spec.topology_spread_constraints)
    if not spec.node_name and (soft or any(each.preferred for each in preferred)):
        remarks.append(("PreferencesNotHeeded", ""))
    if spec.priority is None and spec.priority_class_name and spec.priority_class_name not in SYSTEM_PRIORITY:
        remarks.append(("PriorityUnresolved", ""))
    return tuple(remarks)


def requested(pod: Pod) -> dict[str, Decimal]:
    """Effective requests of a pod, by resource.

    Containers and sidecars run together. An init container runs with the sidecars that started before it. The pod needs
    the maximum over all these phases, plus its overhead. Pod-level requests replace the sum over the containers, and
    pod-level limits stand for requests where no container has one.
    Source: Kubernetes documentation, "Init containers: resource sharing" and "Pod-level resource specification";
    KEP-2837, "Pod-level Defaulting". Of a container that is resized in place, the largest of what is asked, allocated
    and in force counts. Source: KEP-1287. Raises ValueError for an invalid quantity.
    """
    sidecars: Amounts = {}
    most: Amounts = {}
    held = _held_by_containers(pod)
    for container in pod.spec.init_containers:
        moment = _joined(add, sidecars, held(container))
        if container.is_sidecar:
            sidecars = moment
        most = _joined(max, most, moment)
    running = sidecars
    for container in pod.spec.containers:
        running = _joined(add, running, held(container))
    whole = pod.spec.resources
    asked = {**_amounts(whole.limits), **_joined(max, most, running), **_amounts(whole.requests)}
    return _joined(add, asked, _amounts(pod.spec.overhead))


def _held_by_containers(pod: Pod) -> Callable[[Container], Amounts]:
    """Function from a container to what it holds."""
    status = {each.name: each for each in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    is_infeasible = any(
        each.type == "PodResizePending" and each.status == "True" and each.reason == "Infeasible"
        for each in pod.status.conditions
    )

    def held(container: Container) -> Amounts:
        # A limit without a request counts as a request of the same size.
        asked = _amounts({**container.resources.limits, **container.resources.requests})
        known = status.get(container.name) if pod.spec.node_name else None
        if known is None or not (known.allocated_resources or known.resources.requests):
            return asked
        actual = _joined(max, _amounts(known.allocated_resources), _amounts(known.resources.requests))
        return {**asked, **actual} if is_infeasible else _joined(max, asked, actual)

    return held


def _amounts(written: Mapping[str, Amount]) -> Amounts:
    return {name: notation.amount(each) for name, each in written.items()}


def _joined(how: Callable[[Decimal, Decimal], Decimal], a: Amounts, b: Amounts) -> dict[str, Decimal]:
    return {name: how(a.get(name, Decimal(0)), b.get(name, Decimal(0))) for name in {**a, **b}}


def shape_from(read: Read[Pod], ask: Amounts, types: nodes.TypeIndex, findings: Findings) -> workloads.PodShape:
    """Shape of a pod with these requests.

    Its GPU types follow from its annotation, its node selector and the extended resource that it requests.
    """
    spec, node = read.object.spec, read.object.spec.node_name

    def complain(field: str, problems: Iterable[nodes.Problem]) -> None:
        """Mistakes in a constraint. Those of a pod that runs decide about nothing any more."""
        for problem, remedy in () if node else problems:
            findings.mistake(read.mistake(("spec", field), problem, remedy))

    gpus, gpu_milli, resources = _gpus(read, ask, types, findings)
    terms, problems = nodes.terms_of(spec)
    complain("affinity", problems)
    if spec.os is not None and spec.os.name in OTHER_SYSTEM:
        other = workloads.Requirement(OS_LABEL, "NotIn", (OTHER_SYSTEM[spec.os.name],))
        terms = tuple((*term, other) for term in terms or ((),))
    if place := node or _released_to(read):
        terms = nodes.pinned_where_it_runs(terms, place)
    allowed = _allowed_types(read, resources, types, findings)
    if gpus:
        allowed = _served(read, allowed, (gpus, gpu_milli), types, findings)
    if read.object.metadata.annotations.gpu_memory is not None:
        allowed = _with_memory(read, allowed, gpu_milli, types, findings)
    of_type = gpus or read.object.metadata.labels.get(api_labels.PHASE_LABEL) == workloads.CACHE
    if of_type and len(terms) == 1:
        terms, allowed = _lift_types(terms[0], allowed, types)
    tolerations, problems = nodes.tolerations_of(spec)
    complain("tolerations", problems)
    return workloads.PodShape(
        cpu_milli=notation.milli(ask.get("cpu", Decimal(0))),
        memory_bytes=notation.whole(ask.get("memory", Decimal(0))),
        gpus=gpus,
        gpu_milli=gpu_milli,
        gpu_types=tuple(sorted(types.names[n] for n in allowed)) if of_type and allowed else (),
        node_terms=terms,
        tolerations=tolerations,
        others=tuple(
            (name, min(notation.whole(amount), MOST_OF_OTHERS))
            for name, amount in sorted(ask.items())
            if amount > 0 and name not in nodes.COLUMNS and (not types.is_device(name) or types.is_counted(name))
        ),
    )


def _released_to(read: Read[Pod]) -> str:
    """Node to which Tonnage tied a pod of a live cluster that is not bound yet; empty for any other."""
    spec = read.object.spec
    is_tied = read.document is None and not spec.scheduling_gates and spec.scheduler_name != api_labels.SCHEDULER_NAME
    return (read.object.metadata.annotations.node or "") if is_tied else ""


def _gpus(read: Read[Pod], ask: Amounts, types: nodes.TypeIndex, findings: Findings) -> tuple[int, int, list[str]]:
    """(number of devices, thousandths of each, extended resources of whole devices) that a pod requests."""
    spec = read.object.spec
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for number, container in enumerate(containers):
            for part, amounts in (("limits", container.resources.limits), ("requests", container.resources.requests)):
                for name in filter(types.is_device, amounts):
                    # The API server refuses fractions of extended resources.
                    if (amount := notation.quantity(amounts[name])) % 1:
                        path = ("spec", field, number, "resources", part, name)
                        one = api_labels.GPU_MILLI_ANNOTATION
                        remedy = f"whole devices only; for a fraction of one: the annotation {one}"
                        findings.mistake(read.mistake(path, f"is {amount}", remedy))
    whole = {name: count for name in sorted(filter(types.is_device, ask)) if (count := notation.whole(ask[name]))}
    whole = {name: min(count, MOST_DEVICES) for name, count in whole.items()}
    share = read.object.metadata.annotations.gpu_milli or _share_by_kai(read)
    here = ("metadata", "annotations", api_labels.GPU_MILLI_ANNOTATION)
    if len(whole) > 1 and not all(map(types.is_counted, whole)):
        problem = f"requests {' and '.join(whole)}"
        findings.mistake(read.mistake(("spec", "containers"), problem, "one pod uses GPUs of one vendor"))
        whole = dict([max(whole.items(), key=lambda each: each[1])])
    if share is None:
        count = sum(whole.values())
        return count, workloads.WHOLE_GPU_MILLI if count else 0, list(whole)
    if whole:
        problem = f"requests a fraction while the containers request {' and '.join(whole)}"
        findings.mistake(read.mistake(here, problem, "request whole devices or a fraction of one"))
        # A running pod holds what its containers request, whatever an annotation says.
        return sum(whole.values()), workloads.WHOLE_GPU_MILLI, list(whole)
    # The length is checked first: int() fails on thousands of digits, and an annotation may hold any text.
    if not (share.isascii() and share.isdigit() and len(share) < 10 and 1 <= int(share) <= workloads.WHOLE_GPU_MILLI):
        remedy = f"write thousandths of one GPU, 1 to {workloads.WHOLE_GPU_MILLI}"
        findings.mistake(read.mistake(here, f"is {share[:LONGEST_SHOWN]!r}", remedy))
        return 1, workloads.WHOLE_GPU_MILLI, []
    return 1, int(share), []


def _allowed_types(
    read: Read[Pod], resources: Sequence[str], types: nodes.TypeIndex, findings: Findings
) -> set[int] | None:
    """Indices of the types that the pod may use by its annotation and the resources that it requests; None: any."""
    allowed: set[int] | None = None
    written = read.object.metadata.annotations.gpu_types
    if written is not None:
        here = ("metadata", "annotations", api_labels.GPU_TYPES_ANNOTATION)
        names = [part.strip() for part in written.split(",", MOST_TYPES)]
        if len(names) > MOST_TYPES:
            problem, names = f"names more than {MOST_TYPES} types", []
            findings.mistake(read.mistake(here, problem, "name fewer, or leave it out for any"))
        unknown = [name for name in names if types.named(name) is None]
        for name in unknown[:MOST_NAMED]:
            problem = f"there is no GPUType {name[:LONGEST_SHOWN]!r}"
            findings.mistake(read.mistake(here, problem, meant(name[:LONGEST_SHOWN], types.names)))
        allowed = {number for name in names if (number := types.named(name)) is not None}
        if read.object.metadata.service is None:  # an instance is of one type
            allowed |= {types.group[n] for n in allowed if n in types.group}
    of_types = [resource for resource in resources if resource in types.resource or not types.is_counted(resource)]
    if not of_types or not types.types:
        return allowed
    # Whole devices are requested by their vendor's resource, which excludes types of other vendors.
    offered = set[int].intersection(*map(types.offered_as, of_types))
    if allowed is None and len(offered) == len(types.types):
        return None
    found = offered if allowed is None else allowed & offered
    if not found:
        words = " and ".join(of_types)
        problem = f"request {words}, but no GPUType that the pod may run on is offered as that"
        findings.mistake(read.mistake(("spec", "containers"), problem, "see spec.resourceName of the GPUTypes"))
    return found


def _served(
    read: Read[Pod], allowed: set[int] | None, asked: tuple[int, int], types: nodes.TypeIndex, findings: Findings
) -> set[int] | None:
    """Those of the types of which a pod may ask for so many devices, or for a fraction of one; None: any.

    asked: number of devices, thousandths of each.
    """
    gpus, milli = asked
    each = range(len(types.types)) if allowed is None else allowed
    found = {
        n
        for n in each
        if (not types.types[n].per_pod or gpus in types.types[n].per_pod)
        and (milli == workloads.WHOLE_GPU_MILLI or (types.types[n].share == 1 and types.resource[n]))
    }
    if len(found) == len(each):
        return allowed
    if not found and not read.object.spec.node_name:
        problem = f"request {gpus if milli == workloads.WHOLE_GPU_MILLI else f'{milli} thousandths'} of devices"
        remedy = "see spec.devicesPerPod and spec.share of the GPUTypes that they may run on"
        findings.mistake(read.mistake(("spec", "containers"), problem, remedy))
    return found


def _with_memory(
    read: Read[Pod], allowed: set[int] | None, milli: int, types: nodes.TypeIndex, findings: Findings
) -> set[int] | None:
    """Those of the types of which so many thousandths of a device have the memory that the pod's annotation states."""
    written = read.object.metadata.annotations.gpu_memory or ""
    here = ("metadata", "annotations", api_labels.GPU_MEMORY_ANNOTATION)
    try:
        least = notation.quantity(written[:LONGEST_SHOWN])
    except ValueError as error:
        findings.mistake(read.mistake(here, str(error)))
        return allowed
    each = set(range(len(types.types))) if allowed is None else allowed
    found = {n for n in each if types.types[n].memory_bytes * milli >= least * workloads.WHOLE_GPU_MILLI}
    # A group of slices has the memory of those that the pod requests.
    found -= {group for n, group in types.group.items() if n in each - found}
    if not found and not read.object.spec.node_name:
        of = "a device" if milli == workloads.WHOLE_GPU_MILLI else f"{milli} thousandths of a device"
        problem = f"no GPUType that it may run on has so much memory in {of}" if milli else "it requests no device"
        remedy = "see spec.memory of the GPUTypes"
        findings.mistake(read.mistake(here, f"is {written[:LONGEST_SHOWN]}, but {problem}", remedy))
    return found or allowed


def _lift_types(
    term: Iterable[workloads.Requirement], allowed: set[int] | None, types: nodes.TypeIndex
) -> tuple[workloads.Terms, set[int] | None]:
    """Replace node requirements that only choose GPU types by those types: the packer prices them, and they read
    better.

    A requirement is replaced only where the meaning is the same: every value belongs to a type, and all values of each
    of these types are listed.
    """
    kept = []
    for requirement in term:
        wanted = [types.by_label.get((requirement.key, value), ()) for value in requirement.values]
        chosen = set[int]().union(*wanted)
        labels = {label for label, those in types.by_label.items() if not chosen.isdisjoint(those)}
        asked = set(product((requirement.key,), requirement.values))
        chosen |= {types.group[n] for n in chosen if n in types.group}
        narrowed = chosen if allowed is None else allowed & chosen
        is_of_type = requirement.operator == "In" and not requirement.key.endswith(nodes.INSTANCE_TYPE)
        if is_of_type and all(wanted) and labels == asked and narrowed:
            allowed = narrowed
        else:
            kept.append(requirement)
    return (tuple(kept),) if kept else (), allowed
