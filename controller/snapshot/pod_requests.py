"""What a pod asks of a node, counted as Kubernetes counts it, and the nodes that it allows."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import product

from cluster.hardware import WHOLE_GPU_MILLI
from cluster.workloads import PodShape, Requirement
from controller.api import quantity
from controller.api.labels import GPU_MILLI_ANNOTATION, GPU_TYPES_ANNOTATION
from controller.api.suggestions import meant
from controller.kube.structs import Amount, Pod, Resources
from controller.objects.findings import Findings
from controller.objects.read import Read
from controller.snapshot.node_affinity import terms_of, tolerations_of
from controller.snapshot.nodes import GPU_RESOURCES, TypeIndex

Amounts = Mapping[str, Decimal]


def requested(pod: Pod) -> Amounts:
    """What a pod asks, by resource.

    Containers and sidecars run together; an init container runs alone beside the sidecars that started before it;
    the pod needs the most of all these moments, and its overhead on top. Requests written for the whole pod stand
    instead of the sum over its containers.
    Source: Kubernetes documentation, "Init containers: resource sharing" and "Pod-level resource specification".
    Raises ValueError for what is no quantity.
    """
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in pod.spec.init_containers:
        ask = _asked(container.resources)
        moment = _sum(sidecars, ask)
        if container.is_sidecar:
            sidecars = moment
        most = _most(most, moment)
    running = sidecars
    for container in pod.spec.containers:
        running = _sum(running, _asked(container.resources))
    return _sum({**_most(most, running), **_asked(pod.spec.resources)}, _amounts(pod.spec.overhead))


def _asked(resources: Resources) -> Amounts:
    """A limit without a request is a request of the same size."""
    return _amounts({**resources.limits, **resources.requests})


def _amounts(written: Mapping[str, Amount]) -> Amounts:
    return {name: quantity.quantity(amount) for name, amount in written.items()}


def _sum(a: Amounts, b: Amounts) -> Amounts:
    return {name: a.get(name, Decimal(0)) + b.get(name, Decimal(0)) for name in {**a, **b}}


def _most(a: Amounts, b: Amounts) -> Amounts:
    return {name: max(a.get(name, Decimal(0)), b.get(name, Decimal(0))) for name in {**a, **b}}


def shape_from(read: Read[Pod], ask: Amounts, types: TypeIndex, findings: Findings) -> PodShape:
    """The shape of a pod that asks for so much.

    Its GPU types come from its annotation, its node selector and the resource that it asks by.
    """
    gpus, gpu_milli, resource = _gpus(read, ask, findings)
    terms = terms_of(
        read.object.spec,
        lambda problem, remedy: findings.mistake(read.mistake(("spec", "affinity"), problem, remedy)),
    )
    allowed = _named_types(read, types, findings)
    if resource and types.types:
        # A whole device is asked by its maker's resource, so in a fleet of two makers the others are out.
        allowed = _of_maker(read, resource, allowed, types, findings)
    if gpus and len(terms) == 1:
        terms, allowed = _lift_types(terms[0], allowed, types)
    return PodShape(
        cpu_milli=quantity.milli(ask.get("cpu", Decimal(0))),
        memory_bytes=quantity.whole(ask.get("memory", Decimal(0))),
        gpus=gpus,
        gpu_milli=gpu_milli,
        gpu_types=tuple(sorted(types.names[n] for n in allowed)) if gpus and allowed else (),
        node_terms=terms,
        tolerations=tolerations_of(read.object.spec),
    )


def _gpus(read: Read[Pod], ask: Amounts, findings: Findings) -> tuple[int, int, str]:
    """How many devices, how many thousandths of each, and the resource by which whole ones are asked."""
    whole = {name: count for name in GPU_RESOURCES if (count := quantity.whole(ask.get(name, Decimal(0))))}
    share = read.object.metadata.annotations.gpu_milli
    here = ("metadata", "annotations", GPU_MILLI_ANNOTATION)
    if len(whole) > 1:
        problem = f"asks for {' and '.join(whole)}"
        findings.mistake(read.mistake(("spec", "containers"), problem, "one pod uses GPUs of one maker"))
    if share is None:
        resource, count = next(iter(whole.items()), ("", 0))
        return count, WHOLE_GPU_MILLI if count else 0, resource
    if whole:
        problem = f"asks for a share while the containers ask for {' and '.join(whole)}"
        findings.mistake(read.mistake(here, problem, "ask for whole devices or for a share of one"))
    # Its length first: Python refuses to read thousands of digits, and anybody may write an annotation.
    if not (share.isascii() and share.isdigit() and len(share) < 10 and 1 <= int(share) <= WHOLE_GPU_MILLI):
        remedy = f"write thousandths of one GPU, 1 to {WHOLE_GPU_MILLI}"
        findings.mistake(read.mistake(here, f"is {share[:40]!r}", remedy))
        return 1, WHOLE_GPU_MILLI, ""
    return 1, int(share), ""


def _named_types(read: Read[Pod], types: TypeIndex, findings: Findings) -> set[int] | None:
    """The types that the annotation names; None when it is not there, which means any."""
    written = read.object.metadata.annotations.gpu_types
    if written is None:
        return None
    found = set()
    for name in (part.strip() for part in written.split(",")):
        number = types.named(name)
        if number is None:
            path = ("metadata", "annotations", GPU_TYPES_ANNOTATION)
            findings.mistake(read.mistake(path, f"there is no GPUType {name!r}", meant(name, types.names)))
        else:
            found.add(number)
    return found


def _of_maker(
    read: Read[Pod], resource: str, allowed: set[int] | None, types: TypeIndex, findings: Findings
) -> set[int] | None:
    """The allowed types that are offered as this resource; None where all are and any is allowed."""
    offered = {n for n, name in enumerate(types.resource) if name == resource}
    if allowed is None and len(offered) == len(types.types):
        return None
    found = _narrowed(allowed, offered)
    if not found:
        problem = f"ask for {resource}, but no GPUType that the pod may run on is offered as that"
        findings.mistake(read.mistake(("spec", "containers"), problem, "see spec.resourceName of the GPUTypes"))
    return found


def _narrowed(allowed: set[int] | None, to: set[int]) -> set[int]:
    return to if allowed is None else allowed & to


def _lift_types(
    term: Iterable[Requirement], allowed: set[int] | None, types: TypeIndex
) -> tuple[tuple[tuple[Requirement, ...], ...], set[int] | None]:
    """Conditions that only choose GPU types become types: the packer prices those, and people read them.

    Lifted is what means exactly the same: every value is known, and each type is wanted with all its values.
    """
    kept = []
    for requirement in term:
        wanted = {types.by_label.get((requirement.key, value)) for value in requirement.values}
        labels = {label for label, n in types.by_label.items() if n in wanted}
        asked = set(product((requirement.key,), requirement.values))
        narrowed = _narrowed(allowed, {n for n in wanted if n is not None})
        if requirement.operator == "In" and None not in wanted and labels == asked and narrowed:
            allowed = narrowed
        else:
            kept.append(requirement)
    return (tuple(kept),) if kept else (), allowed
