"""View of a cluster from the caches of its watches."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import structlog

from cluster import plans, workloads
from cluster.clock import Clock
from cluster.quotas import NamespaceQuota
from cluster.snapshot import Snapshot
from controller.api.core_v1 import POD
from controller.api.foreign_kinds import FOREIGN_KINDS, ForeignKind
from controller.api.gang import KIND as GANG
from controller.api.gpu_type import KIND as GPU_TYPE, NodeLabel
from controller.api.labels import (
    CAPACITY_LABEL,
    CONTENT_ANNOTATION,
    GPU_TYPE_LABEL,
    GPUS_LABEL,
    MANAGED_LABEL,
    MODEL_LABEL,
    PHASE_LABEL,
    SCHEDULER_NAME,
    SERVICE_LABEL,
    is_device_number,
)
from controller.api.model_service import KIND as SERVICE
from controller.api.notation import instant_or_none
from controller.api.structs import Meta, OwnObject, Pod, PodCondition, Slim, plain
from controller.api.validation import without_nulls
from controller.dra.translation import ClaimTranslation
from controller.kube import cluster_view
from controller.kube.cache import Cache, Resource
from controller.kube_world.observer import Caches, Observer
from controller.kube_world.refusals import FailedPod, refusal_of
from controller.kube_world.reservations import Reservations
from controller.placers import NodePool, pool_mode, requested_mode
from controller.settings import OperatorSettings
from controller.snapshot.builder import FACTS
from controller.snapshot.quotas import ResourceQuota, quota_from
from controller.snapshot.scalers import Facts

log = structlog.get_logger(__name__)

QUOTAS = Resource("quotas", "/api/v1/resourcequotas", ResourceQuota, is_optional=True)
"""Read where that is granted, so that an operator of a newer version works with the rights of an older chart."""


class InstanceLabels(Slim, frozen=True, rename=None):
    """Labels of an instance's pods and of its Deployment."""

    service: str = msgspec.field(default="", name=SERVICE_LABEL)
    gpu_type: str = msgspec.field(default="", name=GPU_TYPE_LABEL)
    gpus: str = msgspec.field(default="1", name=GPUS_LABEL)
    capacity: str = msgspec.field(default="", name=CAPACITY_LABEL)
    phase: str = msgspec.field(default="", name=PHASE_LABEL)
    model: str = msgspec.field(default="", name=MODEL_LABEL)

    @property
    def instance_type(self) -> workloads.InstanceType:
        """Instance type in the labels; one device where the number is unreadable, as anyone may write labels."""
        gpus = int(self.gpus) if is_device_number(self.gpus) else 1
        return workloads.InstanceType(self.gpu_type, gpus, self.capacity == "spot", self.model)


class _DeploymentAnnotations(Slim, frozen=True, rename=None):
    content: str = msgspec.field(default="", name=CONTENT_ANNOTATION)


class _DeploymentMeta(Meta, frozen=True):
    labels: InstanceLabels = InstanceLabels()
    annotations: _DeploymentAnnotations = _DeploymentAnnotations()


class _DeploymentSpec(Slim, frozen=True):
    replicas: int = 1


class _DeploymentStatus(Slim, frozen=True):
    conditions: tuple[PodCondition, ...] = ()
    ready_replicas: int = 0


class Deployment(Slim, frozen=True):
    """Deployment (apps/v1) of a ModelService."""

    metadata: _DeploymentMeta
    spec: _DeploymentSpec = _DeploymentSpec()
    status: _DeploymentStatus = _DeploymentStatus()

    @property
    def no_pods(self) -> str:
        """Why its ReplicaSet creates no pods, such as Pod Security; empty where it does."""
        failed = (each for each in self.status.conditions if (each.type, each.status) == ("ReplicaFailure", "True"))
        return next((each.message or each.reason for each in failed), "")


RECREATORS = frozenset({"DaemonSet", "Job", "LeaderWorkerSet", "RayCluster", "ReplicaSet", "ReplicationController",
                        "StatefulSet"})  # fmt: skip
"""Kinds of controllers that create a new pod for one that was deleted. Of others it is not known."""

UNSCHEDULABLE = ("PodScheduled", "False", "Unschedulable")
"""Type, status and reason of the condition with which kube-scheduler says that no node takes a pod now."""

DEPLOYMENTS = Resource(
    "deployments",
    "/apis/apps/v1/deployments",
    Deployment,
    selectors={"labelSelector": f"{SERVICE_LABEL},{GPU_TYPE_LABEL}"},
)


class CachedView:
    """Cached objects of the watches."""

    def __init__(
        self,
        observer: Observer,
        deployments: Cache[Deployment],
        *,
        completed: Callable[[Snapshot], Snapshot] | None = None,
        failed: Cache[FailedPod] | None = None,
        quotas: Cache[ResourceQuota] | None = None,
        reservations: Reservations | None = None,
        labelled_only: bool = False,
    ) -> None:
        """completed: adds data from other sources than objects, such as power. failed: failed pods, among them
        those that kubelets refused. quotas: ResourceQuotas, which bound instances and shares of GPUs.

        reservations: which pods Tonnage placed: where anybody can write its annotations, anybody could close nodes with
        pods that say so. labelled_only: whether Tonnage works in labelled namespaces alone.
        """
        self._labelled_only = labelled_only
        self._observer, self._caches = observer, observer.caches
        self._deployments, self._failed, self._quotas = deployments, failed, quotas
        self._completed = completed
        self._reservations = reservations or Reservations()
        self._services, self._gangs = self._caches.own[SERVICE], self._caches.own[GANG]
        self._gpu_types = self._caches.own[GPU_TYPE]
        self._seen_services: dict[str, tuple[OwnObject, cluster_view.SeenService]] = {}
        """Services with the objects that they were read from, which may have 1 MB each."""
        self._seen_quotas: dict[str, tuple[ResourceQuota, NamespaceQuota]] = {}
        self._by_kind: Mapping[str, Cache[Any]] = {
            **{each.resource.part: each for each in self._caches.groups},
            POD.name: self._caches.pods,
            **{kind.name: each for kind, each in self._caches.own.items()},
        }

    def snapshot(self, *, anew: bool = True) -> Snapshot:
        """The cluster as last observed. Raises ObservationError while any part is not synced.

        anew: False: the objects of the last one, while none has changed since.
        """
        seen = self._observer.observe(anew=anew)
        return self._completed(seen) if self._completed else seen

    def half_made_claims(self) -> Iterable[cluster_view.SeenClaim]:
        """Claims that Tonnage allocated and that only pods without a node use."""
        return self._observer.claims.half_made() if self._observer.claims is not None else ()

    def unallocated(self) -> Mapping[str, plans.Reason]:
        """Reasons why pods are not in the snapshot: their ResourceClaims cannot be allocated yet."""
        return self._observer.claims.reasons if self._observer.claims is not None else {}

    def refused_by_kubelets(self) -> Iterable[cluster_view.SeenRefusal]:
        """Refusals that were seen since the last call."""
        for pod in (self._failed.drain() if self._failed is not None else {}).values():
            if pod is not None and self._reservations.is_placed_here(pod.metadata.uid):
                refusal = refusal_of(pod, self._observer.shape_of)
                if refusal is not None:
                    yield refusal

    def quotas(self) -> Iterable[NamespaceQuota]:
        there = self._quotas.all() if self._quotas is not None else {}
        before, self._seen_quotas = self._seen_quotas, {}
        for name, each in there.items():
            known = before.get(name)
            made = known[1] if known and known[0] is each else quota_from(each)
            if made.unread and known is None:
                log.warning("scope of a ResourceQuota is not understood: it bounds nothing", quota=name, of=made.unread)
            self._seen_quotas[name] = each, made
        return tuple(quota for _, quota in self._seen_quotas.values())

    def half_started_since_s(self, gang: str) -> float | None:
        """Time since which a Gang is partly started by its status, which may be out of date."""
        found = self._gangs.get(gang)
        return instant_or_none(plain_once(bytes(found.status)).get("halfStartedSince")) if found else None

    def pod(self, name: str) -> cluster_view.SeenPod | None:
        pod = self._caches.pods.get(name)
        # Where claims are not watched, a gated pod with claims is released as any other: kube-scheduler allocates them.
        return seen_pod(name, pod, allocates_claims=self._caches.devices is not None) if pod else None

    def node(self, name: str) -> cluster_view.SeenNode | None:
        found = self._caches.nodes.get(name)
        if found is None:
            return None
        meta, taints = found.metadata, (msgspec.to_builtins(each) for each in found.spec.taints)
        return cluster_view.SeenNode(
            name, meta.uid, meta.resource_version, tuple({"effect": "NoSchedule", **each} for each in taints)
        )

    def service(self, name: str) -> cluster_view.SeenService | None:
        """Service of a name, or the one that has a pool of this name."""
        named = (name, *(name.removesuffix(f"-{phase}") for phase in ("prefill", "decode", workloads.CACHE)))
        name = next((each for each in named if self._services.get(each) is not None), name)
        found = self._services.get(name)
        if found is None or found.metadata.deletion_timestamp:
            return None
        obj, seen = self._seen_services.get(name, (None, None))
        if seen is None or obj is not found:
            meta = found.metadata
            template = plain_once(bytes(found.spec)).get("template")
            seen = cluster_view.SeenService(name, meta.uid, meta.generation, template)
            self._seen_services[name] = found, seen
        return seen

    def uid(self, kind: str, name: str) -> str | None:
        """UID of a Pod or an object of ours; None when it is not there, or of a kind that planning does not read.

        A Node's is its name: by it kubelet writes a node's Events, and `kubectl describe node` finds them. A Namespace
        is not watched, and has its name, too. A group of Kueue's pods has no object that is read.
        """
        if kind == "KueuePodGroup":
            return ""
        if kind in ("Node", "Namespace"):
            return name
        found = self._by_kind[kind].get(name) if kind in self._by_kind else None
        return found.metadata.uid if found else None

    def managed(self) -> Collection[str] | None:
        """Namespaces with the label by which Tonnage works in them; None: it works in all."""
        there = self._caches.beside["Namespace"].all() if self._labelled_only else {}
        named = (name for name, each in there.items() if each.metadata.labels.get(MANAGED_LABEL) == "true")
        return frozenset(named) if self._labelled_only else None

    def generations(self) -> Mapping[str, int]:
        """metadata.generation of every ModelService, by name."""
        there = self._services.all()
        self._seen_services = {name: known for name, known in self._seen_services.items() if name in there}
        return {name: each.metadata.generation for name, each in there.items()}

    def gpu_type(self, name: str) -> cluster_view.SeenGpuType | None:
        found = self._gpu_types.get(name)
        if found is None:
            return None
        spec = plain_once(bytes(found.spec))
        label = spec.get("nodeLabel", {})
        key = label.get("key", NodeLabel.model_fields["key"].default)
        return cluster_view.SeenGpuType(key, tuple(label.get("values", ())), spec.get("resourceName", "nvidia.com/gpu"))

    def deployments(self) -> Iterable[cluster_view.SeenDeployment]:
        for each in self._deployments.all().values():
            meta = each.metadata
            if not meta.deletion_timestamp:
                labels = meta.labels
                service = f"{meta.namespace}/{labels.service}{'-' if labels.phase else ''}{labels.phase}"
                replicas, ready = each.spec.replicas, each.status.ready_replicas
                yield cluster_view.SeenDeployment(
                    service,
                    labels.instance_type,
                    replicas,
                    meta.annotations.content,
                    each.no_pods,
                    max(0, replicas - ready),
                )


def is_ours(pod: Pod) -> bool:
    """Whether a pending pod waits for Tonnage, or has a node chosen by Tonnage."""
    seen = seen_pod(pod.metadata.name, pod)
    return bool(seen.chosen_node) or requested_mode(seen) is not None


def seen_pod(name: str, pod: Pod, *, allocates_claims: bool = False) -> cluster_view.SeenPod:
    """name: `namespace/name`."""
    meta, spec = pod.metadata, pod.spec
    # If no other scheduler binds the pod, no other one allocates its claims.
    has_claims = bool(spec.resource_claims) and (allocates_claims or spec.scheduler_name == SCHEDULER_NAME)
    gates = tuple(gate.name for gate in spec.scheduling_gates)
    is_released = not spec.node_name and not gates
    chosen_node = (meta.annotations.node or "") if is_released else ""
    waits = (c for c in pod.status.conditions if (c.type, c.status, c.reason) == UNSCHEDULABLE) if chosen_node else ()
    devices = meta.annotations.devices.split(",") if meta.annotations.devices else ()
    placed_s, created_s = instant_or_none(meta.annotations.placed_at), instant_or_none(meta.creation_timestamp)
    if placed_s is not None and created_s is not None and placed_s < created_s:
        placed_s = None  # from before the pod, as a template copied from another pod has it
    return cluster_view.SeenPod(
        name=name,
        uid=meta.uid,
        version=meta.resource_version,
        node=spec.node_name,
        scheduler_name=spec.scheduler_name,
        gates=gates,
        is_ending=meta.deletion_timestamp is not None,
        is_running=pod.status.phase == "Running",
        chosen_node=chosen_node,
        devices=tuple(map(int, devices)) if all(map(is_device_number, devices)) else (),
        placed_at_s=placed_s,
        has_claims=has_claims,
        is_recreated=any(each.controller and each.kind in RECREATORS for each in meta.owner_references),
        controller=pod.metadata.controller,
        has_share=meta.annotations.gpu_milli is not None,
        required_terms=required.node_selector_terms if (required := spec.affinity.node_affinity.required) else (),
        scheduler_says=next((each.message or each.reason for each in waits), ""),
        nominated_node=pod.status.nominated_node_name,
        held_seats=meta.annotations.held_seats or "",
    )


@lru_cache(maxsize=4096)
def plain_once(raw: bytes) -> dict[str, Any]:
    """A spec or status as plain data, read once, without nulls, which mean the same as absent fields.

    Callers must not change it: equal bytes share one object.
    """
    read = without_nulls(plain(raw)) if raw else {}
    return read if isinstance(read, dict) else {}


def pools_from(settings: OperatorSettings) -> tuple[NodePool, ...]:
    return tuple(NodePool(pool.placer, pool.selector, pool.shares, pool.owned) for pool in settings.pools)


def allocates_claims(settings: OperatorSettings) -> bool:
    """Whether ResourceSlices, ResourceClaims and DeviceClasses are read."""
    return any(pool.placer == "dra" for pool in settings.pools)


def foreign_kinds_from(settings: OperatorSettings) -> tuple[ForeignKind, ...]:
    """Kinds of other projects by which pods are gangs."""
    return FOREIGN_KINDS if settings.groups_of_others else ()


def device_classes_from(settings: OperatorSettings) -> dict[str, str]:
    """DeviceClass by extended resource name: a driver's chart installs a class with the driver's name."""
    return {resource: driver for driver, resource in sorted(settings.dra_drivers.items(), reverse=True)}


def observer_from(
    settings: OperatorSettings,
    caches: Caches,
    clock: Clock,
    *,
    freezes_heap: bool = True,
    facts: Facts = FACTS,
    reservations: Reservations | None = None,
) -> Observer:
    """As `Observer`. facts: parts of the snapshot from objects of Tonnage's kinds."""
    pools = pools_from(settings)
    return Observer(
        caches,
        clock,
        is_ours=is_ours,
        translation=ClaimTranslation(settings.dra_drivers, lambda labels: pool_mode(pools, labels) == "dra"),
        freezes_heap=freezes_heap,
        facts=facts,
        reservations=reservations,
    )
