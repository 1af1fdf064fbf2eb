"""Pod of core/v1: the fields that placement reads."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from controller.api.fields import ListOf, Loose, ObjectMeta, Quantity
from controller.api.kind import Kind
from controller.api.rule import Flaw, Path


class Resources(Loose):
    requests: dict[str, Quantity] = Field(default_factory=dict)
    limits: dict[str, Quantity] = Field(default_factory=dict)


class Container(Loose):
    name: str = ""
    resources: Resources = Resources()
    restart_policy: str | None = None


class SelectorRequirement(Loose):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: ListOf[str] = ()


class SelectorTerm(Loose):
    match_expressions: ListOf[SelectorRequirement] = ()
    match_fields: ListOf[SelectorRequirement] = ()


class NodeSelector(Loose):
    node_selector_terms: ListOf[SelectorTerm] = Field(min_length=1)


class NodeAffinity(Loose):
    required: NodeSelector | None = Field(default=None, alias="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinity(Loose):
    """Read only to report that it is ignored."""

    required: ListOf[Any] = Field(default=(), alias="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Loose):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class Toleration(Loose):
    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class SpreadConstraint(Loose):
    """Read only to report that it is ignored."""

    when_unsatisfiable: str = "DoNotSchedule"


class SchedulingGate(Loose):
    name: str


class SchedulingGroup(Loose):
    pod_group_name: str | None = None


class WorkloadReference(Loose):
    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodClaim(Loose):
    """Read only to report that it is ignored in files."""

    name: str = ""


class PodSpec(Loose):
    containers: ListOf[Container] = Field(min_length=1)
    init_containers: ListOf[Container] = ()
    resources: Resources = Resources()
    overhead: dict[str, Quantity] = Field(default_factory=dict)
    node_selector: dict[str, str] = Field(default_factory=dict)
    affinity: Affinity = Affinity()
    tolerations: ListOf[Toleration] = ()
    topology_spread_constraints: ListOf[SpreadConstraint] = ()
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    priority_class_name: str = ""
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = "PreemptLowerPriority"
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    scheduling_gates: ListOf[SchedulingGate] = ()
    resource_claims: ListOf[PodClaim] = ()
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None


class OwnerReference(Loose):
    kind: str = ""
    controller: bool = False


class PodMeta(ObjectMeta):
    owner_references: ListOf[OwnerReference] = ()


class PodStatus(Loose):
    phase: str = "Pending"


class Pod(Loose):
    api_version: Literal["v1"]
    kind: Literal["Pod"]
    metadata: PodMeta
    spec: PodSpec
    status: PodStatus = PodStatus()


def flaws(pod: Pod) -> Iterator[Flaw]:
    """Inconsistencies of a pod whose fields are each valid: node affinity that cannot be evaluated."""
    required = pod.spec.affinity.node_affinity.required
    root = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    for n, term in enumerate(required.node_selector_terms if required else ()):
        if not term.match_expressions and not term.match_fields:
            yield Flaw((*root, n), "is empty, which matches no node at all", "write a condition or leave the term out")
        for m, requirement in enumerate(term.match_expressions):
            yield from _requirement_flaws(requirement, (*root, n, "matchExpressions", m))
        for m, requirement in enumerate(term.match_fields):
            path = (*root, n, "matchFields", m)
            if requirement.key != "metadata.name":
                yield Flaw((*path, "key"), f"is {requirement.key}", "metadata.name is the only field that nodes match")
            yield from _requirement_flaws(requirement, path)


def _requirement_flaws(requirement: SelectorRequirement, path: Path) -> Iterator[Flaw]:
    count, operator = len(requirement.values), requirement.operator
    if operator in ("In", "NotIn") and not count:
        yield Flaw((*path, "values"), f"is empty, {operator} needs one at least")
    if operator in ("Exists", "DoesNotExist") and count:
        yield Flaw((*path, "values"), f"has {count} entries, {operator} takes none")
    if operator in ("Gt", "Lt") and (count != 1 or not _is_integer(requirement.values[0])):
        yield Flaw((*path, "values"), f"should be one integer for {operator}")


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()


KIND = Kind(
    name="Pod",
    model=Pod,
    plural="pods",
    is_namespaced=True,
    api_version="v1",
    checks=(flaws,),
    has_status=False,
)
