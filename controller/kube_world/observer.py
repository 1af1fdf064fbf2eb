"""Observer of a live cluster: caches that follow its objects, and the snapshots made from them."""

import asyncio
import gc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import structlog
from msgspec.structs import replace as replace_struct

from cluster import errors, workloads
from cluster.clock import Clock
from cluster.snapshot import Snapshot
from controller.api import core_v1, foreign_kinds, storage, structs, validation
from controller.api.kind import Kind
from controller.api.kinds import KINDS, own_kinds
from controller.api.model_service import KIND as SERVICE
from controller.dra.objects import API as RESOURCE_API, DeviceClass, ResourceClaim, ResourceSlice
from controller.dra.translation import ClaimTranslation
from controller.kube.api_server import ApiServer
from controller.kube.cache import Cache, Resource, WatchSurroundings, WatchTimes, reflect
from controller.kube_world.reservations import Reservations
from controller.objects.own_objects import own_from, own_resource
from controller.objects.read import Findings, GroupOwner, Note, Read
from controller.snapshot import from_manifests, scalers
from controller.snapshot.builder import FACTS, BuiltSnapshot, SnapshotBuilder

log = structlog.get_logger("devices")

NODES = Resource(core_v1.NODE.part, core_v1.NODE.path, structs.Node, is_namespaced=False)
PODS = Resource(
    core_v1.POD.part,
    core_v1.POD.path,
    structs.Pod,
    selectors={"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"},
)
"""Pods except finished ones: a pod that ends leaves the watch as if deleted; a cluster keeps thousands of those."""
SLICES = Resource("slices", f"{RESOURCE_API}/resourceslices", ResourceSlice, is_namespaced=False)
CLAIMS = Resource("claims", f"{RESOURCE_API}/resourceclaims", ResourceClaim)
CLASSES = Resource("classes", f"{RESOURCE_API}/deviceclasses", DeviceClass, is_namespaced=False)

BESIDE: Mapping[str, Resource[Any]] = {
    "PodDisruptionBudget": Resource(
        "budgets", "/apis/policy/v1/poddisruptionbudgets", structs.BudgetObject, is_optional=True
    ),
    "Namespace": Resource("namespaces", "/api/v1/namespaces", structs.Namespace, is_namespaced=False),
    "PersistentVolumeClaim": Resource("volume_claims", "/api/v1/persistentvolumeclaims", storage.VolumeClaimObject),
    "PersistentVolume": Resource("volumes", "/api/v1/persistentvolumes", storage.VolumeObject, is_namespaced=False),
    "StorageClass": Resource(
        "storage_classes", f"{storage.API}/storageclasses", storage.StorageClass, is_namespaced=False
    ),
    "CSINode": Resource("csi_nodes", f"{storage.API}/csinodes", storage.CsiNode, is_namespaced=False),
}
"""What matters to where pods run, beside pods, nodes and our own kinds."""

STALE_AFTER_S = 180.0
"""Age from which a part of the cluster is too old for planning. The server sends a bookmark every minute, so three were
missed, or the connection was down for that time."""


class DeviceCaches(NamedTuple):
    """Caches for dynamic resource allocation; watched only if a pool has mode dra."""

    slices: Cache[ResourceSlice]
    claims: Cache[ResourceClaim]
    classes: Cache[DeviceClass]


@dataclass(frozen=True, slots=True)
class Caches:
    """Caches of all objects that planning reads."""

    nodes: Cache[structs.Node]
    pods: Cache[structs.Pod]
    beside: Mapping[str, Cache[Any]]
    """Those of `BESIDE`, by kind."""
    own: Mapping[Kind, Cache[structs.OwnObject]]
    """Caches of Tonnage's kinds that planning reads, in the registry's order."""
    devices: DeviceCaches | None = None
    groups: tuple[Cache[structs.OwnObject], ...] = ()
    """Caches of other projects' kinds that say how many pods start together."""
    ages: Clock | None = None
    """Clock by which the reflectors say when they heard of each; None: the same as for dates."""

    @property
    def each(self) -> tuple[Cache[Any], ...]:
        own = self.own.values()
        return (self.nodes, self.pods, *self.beside.values(), *own, *(self.devices or ()), *self.groups)


def empty_caches(
    changed: Callable[[], None] = lambda: None,
    *,
    with_devices: bool = False,
    kinds: Iterable[Kind] = KINDS,
    groups: Iterable[foreign_kinds.ForeignKind] = foreign_kinds.FOREIGN_KINDS,
) -> Caches:
    """Empty caches.

    changed: called in the event loop whenever an object is added, changed or deleted; must be fast.
    with_devices: whether ResourceSlices, ResourceClaims and DeviceClasses are watched, too. groups: other projects'
    kinds that are watched where they are served.
    """
    devices = DeviceCaches(Cache(SLICES, changed), Cache(CLAIMS, changed), Cache(CLASSES, changed))
    return Caches(
        nodes=Cache(NODES, changed),
        pods=Cache(PODS, changed),
        beside={kind: Cache(resource, changed) for kind, resource in BESIDE.items()},
        own={kind: Cache(own_resource(kind), changed) for kind in own_kinds(kinds) if kind.is_planned_from},
        devices=devices if with_devices else None,
        groups=tuple(Cache(foreign_resource(kind), changed) for kind in groups),
    )


def foreign_resource(kind: foreign_kinds.ForeignKind) -> Resource[structs.OwnObject]:
    first, *others = kind.paths
    return Resource(kind.called, first, structs.OwnObject, is_optional=True, other_paths=tuple(others))


async def follow(
    caches: Iterable[Cache[Any]], transport: ApiServer, around: WatchSurroundings, times: WatchTimes | None = None
) -> None:
    """Keep caches up to date until cancelled. Errors of the server and network are retried; only a bug raises."""
    async with asyncio.TaskGroup() as group:
        for cache in caches:
            work = reflect(cache, transport, times or WatchTimes(), around)
            group.create_task(work, name=f"reflect {cache.resource.part}")


class Observer:
    """Makes snapshots from the caches. Not thread-safe."""

    def __init__(
        self,
        caches: Caches,
        clock: Clock,
        *,
        is_ours: Callable[[structs.Pod], bool] = lambda _: True,
        translation: ClaimTranslation | None = None,
        freezes_heap: bool = True,
        facts: scalers.Facts = FACTS,
        reservations: Reservations | None = None,
    ) -> None:
        """clock: seconds since the epoch.

        is_ours: whether a pending pod waits for Tonnage; others are left to their own scheduler.
        translation: an empty translation of claims, for caches that have devices. freezes_heap:
        whether present objects are excluded from garbage collection after the first snapshot. reservations: whether the
        API server lets nobody change what a running pod's annotations say of its GPUs; where not, the first that was
        seen counts.
        """
        self.caches = caches
        self.claims = (translation or ClaimTranslation({})) if caches.devices is not None else None
        """ResourceClaims as of the last snapshot; None where they are not watched."""
        self._clock, self._ages = clock, caches.ages or clock
        self._freezes_heap = freezes_heap
        self._is_ours = is_ours
        self._facts = facts
        self._reservations = reservations or Reservations()
        self._builder = self._new_builder()
        self._last: BuiltSnapshot | None = None
        self._unreadable: dict[tuple[str, str], tuple[errors.Mistake, ...]] = {}
        self._logged: frozenset[errors.Mistake] = frozenset()

    def _new_builder(self) -> SnapshotBuilder:
        return SnapshotBuilder(self._is_ours, self._facts, groups_others=bool(self.caches.groups))

    def observe(self, *, anew: bool = True) -> Snapshot:
        """Present snapshot. Raises ObservationError while a part was not yet listed, or is too old.

        anew: False: the last one with the present instant, while no object has changed; one cycle then builds one.
        """
        return self.see(anew=anew).snapshot

    def see(self, *, anew: bool = False) -> BuiltSnapshot:
        """Present snapshot, with the objects that it leaves out; anew as in `observe`. Raises ObservationError."""
        at_s = self._clock()
        # When each part was last observed; its cached objects are at least that new. Raises ObservationError.
        missing = [cache for cache in self.caches.each if not cache.is_synced]
        if missing:
            words = "; ".join(_with_trouble(cache, cache.resource.part) for cache in missing)
            raise errors.ObservationError(f"observing the cluster: not seen yet: {words}")
        needed = [cache for cache in self.caches.each if not cache.resource.is_optional]
        now_s = self._ages()
        ages_s = {cache: now_s - cache.seen_at_s for cache in needed}
        stale = "; ".join(
            _with_trouble(cache, f"{cache.resource.part} for {age_s:.0f} s")
            for cache, age_s in ages_s.items()
            if age_s > STALE_AFTER_S
        )
        if stale:
            raise errors.ObservationError(f"observing the cluster: nothing was heard of {stale}")
        observed_at_s = {cache.resource.part: at_s - age_s for cache, age_s in ages_s.items()}
        if self._last is not None and not anew and not any(cache.has_changes for cache in self.caches.each):
            # The same objects at a later instant: what is written from it is of now, however long the plan took.
            now = replace(self._last.snapshot, at_s=at_s, observed_at_s=observed_at_s)
            return replace(self._last, snapshot=now)
        try:
            self._take_changes()
            seen = self._builder.build(at_s, observed_at_s)
        except Exception:
            # A bug; but drained changes that were not applied must not be lost for good.
            self._builder, self._unreadable, self._last = self._new_builder(), {}, None
            if self.claims is not None:
                self.claims.forget()
            for cache in self.caches.each:
                cache.mark_all()
            raise
        if self._freezes_heap:
            self._freezes_heap = False
            # Most present objects stay for long: the collector need not look at them.
            gc.collect()
            gc.freeze()
        of_devices = self.claims.mistakes if self.claims is not None else ()
        unreadable = (m for _, mistakes in sorted(self._unreadable.items()) for m in mistakes)
        self._last = replace(seen, mistakes=(*unreadable, *of_devices, *seen.mistakes))
        return self._last

    def shape_of(self, pod: structs.Pod) -> workloads.PodShape:
        """Shape of a pod that need not be in the snapshot."""
        return self._builder.shape_of(pod)

    def notes(self, snapshot: Snapshot) -> tuple[Note, ...]:
        """Notes for users about the last snapshot. Reads every pod, so it is not for every cycle."""
        findings = Findings()
        self._builder.note(snapshot, findings)
        from_manifests.note_snapshot(snapshot, findings)
        return findings.notes

    def log_devices(self) -> None:
        """Log each problem with the devices of a node when it appears and when it is resolved."""
        before, self._logged = self._logged, frozenset(self.claims.mistakes if self.claims else ())
        for each in sorted(self._logged - before, key=str):
            log.warning("devices of a node cannot be used", node=each.place, why=each.problem, remedy=each.remedy)
        for each in sorted(before - self._logged, key=str):
            log.info("devices of a node can be used again", node=each.place, was=each.problem)

    def _take_changes(self) -> None:
        """Hand the changes of all caches to the builder."""
        builder, caches = self._builder, self.caches
        for kind, own in caches.own.items():
            for name, obj in own.drain().items():
                self._unreadable.pop((kind.name, name), None)
                # Nothing is planned for a service that is being deleted, although it is there: a finalizer may keep it
                # for ever.
                is_over = kind is SERVICE and obj is not None and obj.metadata.deletion_timestamp is not None
                read = None if obj is None or is_over else own_from(name, kind, obj)
                builder.put_own(kind, name, read if isinstance(read, Read) else None)
                if isinstance(read, tuple):
                    self._unreadable[kind.name, name] = read
        for group in caches.groups:
            for name, owner in group.drain().items():
                builder.groups.put_owner(group.resource.part, name, None if owner is None else owner_of(owner))
        builder.groups.read(group.resource.part for group in caches.groups if not group.is_absent)
        for kind_beside, (_, put) in builder.beside.items():
            for name, obj in caches.beside[kind_beside].drain().items():
                put(name, obj)
        nodes, pods = caches.nodes.drain(), caches.pods.drain()
        if not self._reservations.is_guarded:
            pods = {name: pod and as_first_seen(pod, builder.known_pod(name)) for name, pod in pods.items()}
        if caches.devices is not None and self.claims is not None:
            known = self.claims.known
            for name, each in caches.devices.slices.drain().items():
                known.put_slice(name, each)
            for name, device_class in caches.devices.classes.drain().items():
                known.put_class(name, device_class)
            for name, claim in caches.devices.claims.drain().items():
                known.put_claim(name, claim)
            for name, node in nodes.items():
                known.put_node(name, node)
            for name, pod in pods.items():
                known.put_pod(name, pod)
            translated = self.claims.settle()
            nodes, pods = translated.nodes, translated.pods
        for name, node in nodes.items():
            builder.put_node(name, None if node is None else Read(node, core_v1.NODE))
        for name, pod in pods.items():
            builder.put_pod(name, None if pod is None else Read(pod, core_v1.POD))


def owner_of(obj: structs.OwnObject) -> GroupOwner:
    """Object of another project's kind: plain data, whatever stands in it."""
    spec, status = (validation.without_nulls(structs.plain(raw)) for raw in (obj.spec, obj.status))
    return GroupOwner(spec if isinstance(spec, dict) else {}, status if isinstance(status, dict) else {})


def as_first_seen(pod: structs.Pod, before: structs.Pod | None) -> structs.Pod:
    """A running pod with what its annotations said of its GPUs when it was seen before; anybody may change them.

    before: the same pod, or another of its name, as it was last taken. A pod with claims has its devices from them.
    """
    if (
        before is None
        or before.metadata.uid != pod.metadata.uid
        or not before.spec.node_name
        or pod.spec.resource_claims
    ):
        return pod
    first, now = before.metadata.annotations, pod.metadata.annotations
    if (first.gpu_milli, first.gpu_types, first.devices) == (now.gpu_milli, now.gpu_types, now.devices):
        return pod
    kept = replace_struct(now, gpu_milli=first.gpu_milli, gpu_types=first.gpu_types, devices=first.devices)
    return replace_struct(pod, metadata=replace_struct(pod.metadata, annotations=kept))


def _with_trouble(cache: Cache[Any], words: str) -> str:
    return f"{words} ({cache.trouble})" if cache.trouble else words
