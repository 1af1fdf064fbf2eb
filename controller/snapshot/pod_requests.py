"""Effective resource requests of a pod, as Kubernetes computes them, and its shape for placement."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import product

from cluster.hardware import WHOLE_GPU_MILLI
from cluster.suggestions import meant
from cluster.workloads import PodShape, Requirement
from controller.api import notation
from controller.api.labels import GPU_MILLI_ANNOTATION, GPU_TYPES_ANNOTATION
from controller.api.structs import Amount, Pod, Resources
from controller.objects.read import Findings, Read
from controller.snapshot.node_affinity import Complain, pinned_where_it_runs, terms_of, tolerations_of
from controller.snapshot.nodes import GPU_RESOURCES, TypeIndex

MOST_TYPES = 64
"""Maximum number of types in an annotation; as many as a ModelService may name."""
MOST_DEVICES = 1_000_000
"""Largest number of devices that a pod is taken to request, so that sums over pods fit into 64 bits in thousandths. No
node has as many."""
MOST_NAMED = 3
"""Maximum number of unknown types that errors name."""
LONGEST_SHOWN = 40
"""Maximum number of characters of an annotation that an error shows."""

Amounts = Mapping[str, Decimal]


def requested(pod: Pod) -> Amounts:
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
        moment = _sum(sidecars, _requests(container.resources))
        if container.is_sidecar:
            sidecars = moment
        most = _most(most, moment)
    running = sidecars
    for container in pod.spec.containers:
        running = _sum(running, _requests(container.resources))
    whole = pod.spec.resources
    asked = {**_amounts(whole.limits), **_most(most, running), **_amounts(whole.requests)}
    return _sum(asked, _amounts(pod.spec.overhead))


def _requests(resources: Resources) -> Amounts:
    """Requests; a limit without a request counts as a request of the same size."""
    return _amounts({**resources.limits, **resources.requests})


def _amounts(written: Mapping[str, Amount]) -> Amounts:
    return {name: notation.quantity(amount) for name, amount in written.items()}


def _sum(a: Amounts, b: Amounts) -> Amounts:
    return {name: a.get(name, Decimal(0)) + b.get(name, Decimal(0)) for name in {**a, **b}}


def _most(a: Amounts, b: Amounts) -> Amounts:
    return {name: max(a.get(name, Decimal(0)), b.get(name, Decimal(0))) for name in {**a, **b}}


def shape_from(read: Read[Pod], ask: Amounts, types: TypeIndex, findings: Findings) -> PodShape:
    """Shape of a pod with these requests.

    Its GPU types follow from its annotation, its node selector and the extended resource that it requests.
    """
    gpus, gpu_milli, resource = _gpus(read, ask, findings)
    node = read.object.spec.node_name

    def complain(field: str) -> Complain:
        """Mistakes in a constraint. Those of a pod that runs decide about nothing any more."""
        at = read.mistake
        return lambda problem, remedy: None if node else findings.mistake(at(("spec", field), problem, remedy))

    terms = terms_of(read.object.spec, complain("affinity"))
    if node:
        terms = pinned_where_it_runs(terms, node)
    allowed = _named_types(read, types, findings)
    if resource and types.types:
        # Whole devices are requested by their vendor's resource, which excludes types of other vendors.
        allowed = _of_vendor(read, resource, allowed, types, findings)
    if gpus and len(terms) == 1:
        terms, allowed = _lift_types(terms[0], allowed, types)
    return PodShape(
        cpu_milli=notation.milli(ask.get("cpu", Decimal(0))),
        memory_bytes=notation.whole(ask.get("memory", Decimal(0))),
        gpus=gpus,
        gpu_milli=gpu_milli,
        gpu_types=tuple(sorted(types.names[n] for n in allowed)) if gpus and allowed else (),
        node_terms=terms,
        tolerations=tolerations_of(read.object.spec, complain("tolerations")),
    )


def _gpus(read: Read[Pod], ask: Amounts, findings: Findings) -> tuple[int, int, str]:
    """(number of devices, thousandths of each, extended resource of whole devices) that a pod requests."""
    _refuse_fractions(read, findings)
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


def _refuse_fractions(read: Read[Pod], findings: Findings) -> None:
    """Mistakes for devices that are requested in fractions, which the API server refuses for extended resources."""
    spec = read.object.spec
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for number, container in enumerate(containers):
            for part, amounts in (("limits", container.resources.limits), ("requests", container.resources.requests)):
                for name in GPU_RESOURCES:
                    count = notation.quantity(amounts.get(name, 0))
                    if count % 1:
                        here = ("spec", field, number, "resources", part, name)
                        remedy = f"whole devices only; for a fraction of one: the annotation {GPU_MILLI_ANNOTATION}"
                        findings.mistake(read.mistake(here, f"is {count}", remedy))


def _named_types(read: Read[Pod], types: TypeIndex, findings: Findings) -> set[int] | None:
    """Indices of the types in the annotation; None without one, which means any."""
    written = read.object.metadata.annotations.gpu_types
    if written is None:
        return None
    here = ("metadata", "annotations", GPU_TYPES_ANNOTATION)
    names = [part.strip() for part in written.split(",", MOST_TYPES)]
    if len(names) > MOST_TYPES:
        findings.mistake(
            read.mistake(here, f"names more than {MOST_TYPES} types", "name fewer, or leave it out for any")
        )
        return set()
    unknown = [name for name in names if types.named(name) is None]
    for name in unknown[:MOST_NAMED]:
        problem = f"there is no GPUType {name[:LONGEST_SHOWN]!r}"
        findings.mistake(read.mistake(here, problem, meant(name[:LONGEST_SHOWN], types.names)))
    return {number for name in names if (number := types.named(name)) is not None}


def _of_vendor(
    read: Read[Pod], resource: str, allowed: set[int] | None, types: TypeIndex, findings: Findings
) -> set[int] | None:
    """Allowed types that are offered as this resource; None where any type is allowed and all are offered as it."""
    offered = {n for n, name in enumerate(types.resource) if name == resource}
    if allowed is None and len(offered) == len(types.types):
        return None
    found = _narrowed(allowed, offered)
    if not found:
        problem = f"request {resource}, but no GPUType that the pod may run on is offered as that"
        findings.mistake(read.mistake(("spec", "containers"), problem, "see spec.resourceName of the GPUTypes"))
    return found


def _narrowed(allowed: set[int] | None, to: set[int]) -> set[int]:
    return to if allowed is None else allowed & to


def _lift_types(
    term: Iterable[Requirement], allowed: set[int] | None, types: TypeIndex
) -> tuple[tuple[tuple[Requirement, ...], ...], set[int] | None]:
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
        narrowed = _narrowed(allowed, {n for n in wanted if n is not None})
        if requirement.operator == "In" and None not in wanted and labels == asked and narrowed:
            allowed = narrowed
        else:
            kept.append(requirement)
    return (tuple(kept),) if kept else (), allowed
