"""ResourceQuotas: what the pods of a namespace may hold together, and what instances of services have left of it.

Admission refuses a pod past a quota. On a cluster it has refused those that wait, except for shares of GPUs, which only
Tonnage counts. In files nobody has, and instances are planned before their pods are made.
Source: Kubernetes documentation, "Resource Quotas"; its quota evaluator of pods.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal

import msgspec
import numpy as np

from cluster import changes, workloads
from cluster.quotas import NamespaceQuota, QuotaAsk, QuotaScope, QuotaShare
from cluster.snapshot import PENDING, Snapshot
from controller.api import notation
from controller.api.labels import GPU_MILLI_ANNOTATION
from controller.api.structs import Amount, Meta, Pod, PodMeta, PodSpec, Resources, Slim
from controller.objects.read import Read
from controller.snapshot.namespace_bounds import PodQuota, within_quotas
from controller.snapshot.pods import requested

MEBIBYTE = 2**20
_BYTES = ("memory", "storage")
"""Ends of the names of resources in bytes; huge pages are, too."""


class _Scope(Slim, frozen=True):
    scope_name: str = ""
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class _ScopeSelector(Slim, frozen=True):
    match_expressions: tuple[_Scope, ...] = ()


class _Spec(Slim, frozen=True):
    hard: dict[str, Amount] = msgspec.field(default_factory=dict)
    scopes: tuple[str, ...] = ()
    scope_selector: _ScopeSelector = _ScopeSelector()


class _Status(Slim, frozen=True):
    used: dict[str, Amount] = msgspec.field(default_factory=dict)


class ResourceQuota(Slim, frozen=True):
    """ResourceQuota (v1)."""

    metadata: Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


def quota_from(obj: ResourceQuota) -> NamespaceQuota:
    """Numbers of a quota; one that is larger than all numbers here is as good as none."""
    written = obj.spec.scope_selector.match_expressions
    selected = (QuotaScope(each.scope_name, each.operator, each.values) for each in written)
    scopes = (*map(QuotaScope, obj.spec.scopes), *selected)
    used = {name: _units(name, each) for name, each in obj.status.used.items()} if obj.status.used else None
    hard = {name: _units(name, each) for name, each in obj.spec.hard.items()}
    return NamespaceQuota(obj.metadata.namespace, obj.metadata.name, hard, used, scopes)


def _units(resource: str, written: Amount) -> int:
    try:
        value = notation.amount(written)
    except ValueError:
        value = notation.LARGEST
    return notation.milli(value) if resource.endswith("cpu") else math.floor(value)


def ask_of(pod: Pod) -> QuotaAsk:
    """What a pod counts. Raises ValueError for an unreadable quantity."""
    spec = pod.spec
    requests, limits = requested(pod), requested(_with_limits(pod))
    amounts = {"pods": 1, "count/pods": 1}
    for name, amount in requests.items():
        amounts[f"requests.{name}"] = amounts[name] = _ceiling(name, amount)
    for name, amount in limits.items():
        amounts[f"limits.{name}"] = _ceiling(name, amount)
    own = {"cpu", "memory"}
    terms = (*spec.affinity.pod_affinity.required, *spec.affinity.pod_anti_affinity.required)
    return QuotaAsk(
        amounts,
        spec.priority_class_name,
        is_terminating=spec.active_deadline_seconds is not None,
        is_best_effort=not any(amount for name, amount in {**requests, **limits}.items() if name in own),
        crosses_namespaces=any(term.namespaces or term.namespace_selector is not None for term in terms),
    )


def _ceiling(resource: str, amount: Decimal) -> int:
    return notation.milli(amount) if resource.endswith("cpu") else notation.whole(amount)


def _with_limits(pod: Pod) -> Pod:
    """The pod with its limits as its requests."""
    spec, alter = pod.spec, msgspec.structs.replace
    limits = {
        field: tuple(alter(each, resources=Resources(limits=each.resources.limits)) for each in getattr(spec, field))
        for field in ("containers", "init_containers")
    }
    return alter(pod, spec=alter(spec, overhead={}, resources=Resources(limits=spec.resources.limits), **limits))


def ask_of_instance(template: PodSpec, cpu_milli: int, memory_bytes: int) -> QuotaAsk:
    """What an instance of a service counts besides its devices.

    cpu_milli, memory_bytes: what its first container requests where the template has no request.
    """
    first, *others = template.containers
    own: dict[str, Amount] = {"cpu": f"{cpu_milli}m", "memory": memory_bytes}
    requests: dict[str, Amount] = {**{name: each for name, each in own.items() if each not in ("0m", 0)},
                                   **first.resources.requests}  # fmt: skip
    resources = Resources(requests, first.resources.limits)
    containers = (msgspec.structs.replace(first, resources=resources), *others)
    return ask_of(Pod(PodMeta("instance"), msgspec.structs.replace(template, containers=containers)))


@dataclass(frozen=True, slots=True)
class CountedDevices:
    """Extended resources with which instances request their devices."""

    resources: Mapping[str, str]
    """By GPU type."""
    of_claims: frozenset[tuple[str, str]] = frozenset()
    """Services and GPU types whose devices come from ResourceClaims, which no quota here counts."""

    def of(self, service: str, resource: str) -> dict[str, int]:
        """Units of a quota's resource that one device counts for instances of a service, by GPU type."""
        if resource == GPU_MILLI_ANNOTATION:
            return dict.fromkeys(self.resources, workloads.WHOLE_GPU_MILLI)
        return {
            gpu_type: 1
            for gpu_type, each in self.resources.items()
            if resource in (f"requests.{each}", f"limits.{each}") and (service, gpu_type) not in self.of_claims
        }


Instances = Mapping[str, Mapping[workloads.InstanceType, int]]
"""Pods that are instances, by service and type."""


def with_shares(snapshot: Snapshot, quotas: Iterable[NamespaceQuota], devices: CountedDevices) -> Snapshot:
    """The snapshot whose services know what their namespaces may still hold.

    That is what a quota leaves beside all other pods. Instances that exist count as what a new one would.
    """
    quotas = tuple(quotas)
    namespaces = {quota.namespace for quota in quotas}
    asks = {each.name: each.quota_ask for each in snapshot.services if namespace_of(each.name) in namespaces}
    if not any(asks.values()):
        return snapshot
    pods = snapshot.pods
    instances: defaultdict[str, Counter[workloads.InstanceType]] = defaultdict(Counter)
    others_milli = Counter[str]()
    for row, owner in enumerate(pods.owner):
        shape = pods.shapes[pods.shape[row]]
        if asks.get(owner):
            instances[owner][changes.instance_type_of(shape) or workloads.InstanceType("", shape.gpus)] += 1
        elif shape.gpus and pods.node[row] != PENDING:
            others_milli[namespace_of(pods.names[row])] += shape.total_gpu_milli
    shares: defaultdict[str, list[QuotaShare]] = defaultdict(list)
    for quota in quotas:
        own = {
            name: ask
            for name, ask in asks.items()
            if ask and namespace_of(name) == quota.namespace and quota.covers(ask)
        }
        for resource in quota.hard:
            found = {
                name: QuotaShare("", 0, ask.amounts.get(resource, 0), devices.of(name, resource))
                for name, ask in own.items()
            }
            if resource == GPU_MILLI_ANNOTATION:
                others = others_milli[quota.namespace]
            else:
                others = (quota.used or {}).get(resource, 0) - _held(found, instances)
            for name, share in _left(quota, resource, found, max(0, others)):
                shares[name].append(share)
    services = (replace(each, quotas=tuple(shares[each.name])) for each in snapshot.services)
    return replace(snapshot, services=tuple(services))


def namespace_of(name: str) -> str:
    return name.partition("/")[0]


def _held(shares: Mapping[str, QuotaShare], instances: Instances) -> int:
    """What the instances of these services hold of a resource."""
    return sum(
        share.units_of(each.gpu_type, each.gpus) * count
        for name, share in shares.items()
        for each, count in instances[name].items()
    )


def _left(
    quota: NamespaceQuota, resource: str, shares: Mapping[str, QuotaShare], others: int
) -> Iterator[tuple[str, QuotaShare]]:
    """Shares of the services that use the resource, in units of which a model has few: bytes become mebibytes."""
    unit = MEBIBYTE if resource.endswith(_BYTES) or "hugepages-" in resource else 1
    name = f"{resource} of ResourceQuota {quota.namespace}/{quota.name}{' in MiB' if unit > 1 else ''}"
    most = max(0, quota.hard[resource] - others) // unit
    for service, share in shares.items():
        if share.per_instance or share.per_device:
            yield service, replace(share, name=name, most=most, per_instance=-(-share.per_instance // unit))


def milli_quotas(snapshot: Snapshot, quotas: Iterable[NamespaceQuota]) -> Iterator[PodQuota]:
    """Quotas of thousandths of GPUs, which only Tonnage counts: of whole GPUs (1000 each) and shares of all pods."""
    pods = snapshot.pods
    bounding = {(each.namespace, each.name): each.hard[GPU_MILLI_ANNOTATION] for each in quotas
                if GPU_MILLI_ANNOTATION in each.hard}  # fmt: skip
    if not bounding:
        return
    of_shapes = np.array([shape.total_gpu_milli for shape in pods.shapes], dtype=np.int64)[pods.shape]
    held, asked = Counter[str](), defaultdict[str, dict[int, int]](dict)
    for row in np.flatnonzero(of_shapes).tolist():
        namespace = namespace_of(pods.names[row])
        if pods.node[row] == PENDING:
            asked[namespace][row] = int(of_shapes[row])
        else:
            held[namespace] += int(of_shapes[row])
    for (namespace, name), most in bounding.items():
        yield PodQuota(f"{namespace}/{name}", GPU_MILLI_ANNOTATION, most, held[namespace], asked[namespace])


def admitted(
    snapshot: Snapshot, quotas: Iterable[NamespaceQuota], pods: Mapping[str, Read[Pod]]
) -> tuple[Snapshot, tuple[NamespaceQuota, ...]]:
    """The snapshot without pods of files that admission would refuse, and the quotas with what the others use.

    Pods that run, or come from a cluster, have been admitted; a quota from a cluster says what they use.
    """
    quotas, table = tuple(quotas), snapshot.pods
    namespaces = {quota.namespace for quota in quotas}
    asks: dict[int, QuotaAsk] = {}
    for row, name in enumerate(table.names):
        if namespace_of(name) in namespaces:
            with suppress(ValueError):  # of a pod that runs: its requests are said to be unreadable
                asks[row] = ask_of(pods[name].object)
    is_new = {row: table.node[row] == PENDING and not pods[table.names[row]].is_from_cluster for row in asks}
    bounds = list(milli_quotas(snapshot, quotas))
    covered: list[tuple[NamespaceQuota, Counter[str], dict[int, Mapping[str, int]]]] = []
    for quota in quotas:
        mine = {row: ask.amounts for row, ask in asks.items()
                if namespace_of(table.names[row]) == quota.namespace and quota.covers(ask)}  # fmt: skip
        used = Counter(quota.used or {})
        for row, amounts in mine.items() if quota.used is None else ():
            used.update({} if is_new[row] else amounts)
        for resource, most in quota.hard.items():
            asked = {row: amounts[resource] for row, amounts in mine.items() if is_new[row] and amounts.get(resource)}
            if asked and resource != GPU_MILLI_ANNOTATION:
                bounds.append(PodQuota(f"{quota.namespace}/{quota.name}", resource, most, used[resource], asked))
        covered.append((quota, used, mine))
    left = within_quotas(snapshot, bounds)
    for _, used, mine in covered:
        for row, amounts in mine.items():
            used.update(amounts if is_new[row] and left.pods.names.row(table.names[row]) is not None else {})
    return left, tuple(replace(quota, used=used) for quota, used, _ in covered)
