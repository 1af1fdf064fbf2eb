"""Observer of a live cluster: caches that follow its objects, and the snapshots made from them."""

import asyncio
import gc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, TypeVar

from msgspec.structs import replace as replace_struct

from cluster.errors import Mistake, ObservationError
from cluster.snapshot import Snapshot
from controller.api.foreign_kinds import FOREIGN_KINDS, ForeignKind
from controller.api.kind import Kind
from controller.api.kinds import KINDS, own_kinds
from controller.api.model_service import KIND as SERVICE
from controller.api.node import KIND as NODE
from controller.api.pod import KIND as POD
from controller.api.pruning import without_nulls
from controller.dra.objects import API as RESOURCE_API
from controller.dra.objects import DeviceClass, ResourceClaim, ResourceSlice
from controller.dra.translation import ClaimTranslation
from controller.kube.api_server import Transport
from controller.kube.cache import Cache, Resource
from controller.kube.nesting import plain
from controller.kube.reflector import Surroundings, WatchTimes, reflect
from controller.kube.structs import Node, OwnObject, Pod
from controller.objects.read import Findings, Note, Read, own_from, own_resource
from controller.snapshot.builder import FACTS, BuiltSnapshot, SnapshotBuilder
from controller.snapshot.fact import Fact
from controller.snapshot.from_manifests import note_snapshot
from controller.snapshot.pod_groups import Owner

T = TypeVar("T")

NODES = Resource(NODE.part, NODE.path, Node, is_namespaced=False)
PODS = Resource(POD.part, POD.path, Pod, selectors={"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"})
"""Pods except finished ones: a pod that ends leaves the watch as if deleted; a cluster keeps thousands of those."""
SLICES = Resource("slices", f"{RESOURCE_API}/resourceslices", ResourceSlice, is_namespaced=False)
CLAIMS = Resource("claims", f"{RESOURCE_API}/resourceclaims", ResourceClaim)
CLASSES = Resource("classes", f"{RESOURCE_API}/deviceclasses", DeviceClass, is_namespaced=False)

STALE_AFTER_S = 180.0
"""Age from which a part of the cluster is too old for planning. The server sends a bookmark every minute, so three were
missed, or the connection was down for that time."""


@dataclass(frozen=True, slots=True)
class DeviceCaches:
    """Caches for dynamic resource allocation; watched only if a pool has mode dra."""

    slices: Cache[ResourceSlice]
    claims: Cache[ResourceClaim]
    classes: Cache[DeviceClass]

    @property
    def each(self) -> tuple[Cache[Any], ...]:
        return (self.slices, self.claims, self.classes)


@dataclass(frozen=True, slots=True)
class Caches:
    """Caches of all objects that planning reads."""

    nodes: Cache[Node]
    pods: Cache[Pod]
    own: Mapping[Kind, Cache[OwnObject]]
    """Caches of Tonnage's kinds that planning reads, in the registry's order."""
    devices: DeviceCaches | None = None
    groups: Mapping[ForeignKind, Cache[OwnObject]] = field(default_factory=dict)
    """Caches of other projects' kinds that say how many pods start together."""

    @property
    def each(self) -> tuple[Cache[Any], ...]:
        devices = self.devices.each if self.devices else ()
        return (self.nodes, self.pods, *self.own.values(), *devices, *self.groups.values())


def empty_caches(
    changed: Callable[[], None] = lambda: None,
    *,
    with_devices: bool = False,
    kinds: Iterable[Kind] = KINDS,
    groups: Iterable[ForeignKind] = FOREIGN_KINDS,
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
        own={kind: Cache(own_resource(kind), changed) for kind in own_kinds(kinds) if kind.is_planned_from},
        devices=devices if with_devices else None,
        groups={kind: Cache(foreign_resource(kind), changed) for kind in groups},
    )


def foreign_resource(kind: ForeignKind) -> Resource[OwnObject]:
    first, *others = kind.paths
    return Resource(kind.called, first, OwnObject, is_optional=True, other_paths=tuple(others))


async def follow(
    caches: Iterable[Cache[Any]], transport: Transport, around: Surroundings, times: WatchTimes | None = None
) -> None:
    """Keep caches up to date until cancelled. Errors of the server and network are retried; only a bug raises."""
    async with asyncio.TaskGroup() as group:
        for cache in caches:
            work = reflect(cache, transport, times or WatchTimes(), around)
            group.create_task(work, name=f"reflect {cache.resource.part}")


def settle_heap() -> None:
    """Exclude present objects from garbage collection, after the first sync: most of them stay for long."""
    gc.collect()
    gc.freeze()


class Observer:
    """Makes snapshots from the caches. Thread-safe; calls wait for each other."""

    def __init__(
        self,
        caches: Caches,
        clock: Callable[[], float],
        *,
        is_ours: Callable[[Pod], bool] = lambda _: True,
        new_book: Callable[[], ClaimTranslation] = lambda: ClaimTranslation({}, lambda _: False),
        stale_after_s: float = STALE_AFTER_S,
        at_first_sight: Callable[[], None] = settle_heap,
        facts: tuple[Fact, ...] = FACTS,
        is_guarded: Callable[[], bool] = lambda: True,
    ) -> None:
        """clock: seconds since the epoch, the one that the reflectors have.

        is_ours: whether a pending pod waits for Tonnage; others are left to their own scheduler.
        new_book: makes an empty book of devices, for caches that have devices. is_guarded: whether the API server lets
        nobody change what a running pod's annotations say of its GPUs; where not, the first that was seen counts.
        """
        self._caches = caches
        self._new_book = new_book
        self._book = new_book()
        self._clock = clock
        self._stale_after_s = stale_after_s
        self._at_first_sight = at_first_sight
        self._is_first = True
        self._is_ours = is_ours
        self._facts = facts
        self._is_guarded = is_guarded
        self._builder = self._new_builder()
        self._unreadable: dict[tuple[str, str], tuple[Mistake, ...]] = {}
        self._lock = Lock()

    def _new_builder(self) -> SnapshotBuilder:
        return SnapshotBuilder(self._is_ours, self._facts, groups_others=bool(self._caches.groups))

    def observe(self) -> Snapshot:
        """Present snapshot. Raises ObservationError while a part was not yet listed, or is too old."""
        return self.see().snapshot

    def see(self) -> BuiltSnapshot:
        """Present snapshot, with the objects that it leaves out. Raises ObservationError."""
        with self._lock:
            at_s = self._clock()
            observed_at_s = self._checked_ages(at_s)
            seen = self._seen(at_s, observed_at_s)
            if self._is_first:
                self._is_first = False
                self._at_first_sight()
            amiss = self._book.mistakes
        unreadable = (m for _, mistakes in sorted(self._unreadable.items()) for m in mistakes)
        return replace(seen, mistakes=(*unreadable, *amiss, *seen.mistakes))

    def notes(self, snapshot: Snapshot) -> tuple[Note, ...]:
        """Notes for users about the last snapshot. Reads every pod, so it is not for every cycle."""
        findings = Findings()
        with self._lock:
            self._builder.note(snapshot, findings)
        note_snapshot(snapshot, findings)
        return findings.notes

    def _checked_ages(self, at_s: float) -> Mapping[str, float]:
        """When each part was last observed; its cached objects are at least that new."""
        missing = [cache for cache in self._caches.each if not cache.is_synced]
        if missing:
            said = "; ".join(_with_trouble(cache, cache.resource.part) for cache in missing)
            raise ObservationError(f"observing the cluster: not seen yet: {said}")
        needed = [cache for cache in self._caches.each if not cache.resource.is_optional]
        seen_at_s = {cache.resource.part: cache.seen_at_s for cache in needed}
        stale = [cache for cache in needed if at_s - cache.seen_at_s > self._stale_after_s]
        if stale:
            said = "; ".join(
                _with_trouble(cache, f"{cache.resource.part} for {at_s - cache.seen_at_s:.0f} s") for cache in stale
            )
            raise ObservationError(f"observing the cluster: nothing was heard of {said}")
        return seen_at_s

    def _seen(self, at_s: float, observed_at_s: Mapping[str, float]) -> BuiltSnapshot:
        try:
            self._take_changes()
            return self._builder.build(at_s, observed_at_s)
        except Exception:
            # A bug; but drained changes that were not applied must not be lost for good.
            self._builder, self._unreadable = self._new_builder(), {}
            self._book = self._new_book()
            for cache in self._caches.each:
                cache.mark_all()
            raise

    def _take_changes(self) -> None:
        for kind, cache in self._caches.own.items():
            for name, obj in cache.drain().items():
                self._take_own(kind, name, obj)
        self._take_groups()
        nodes, pods = self._caches.nodes.drain(), self._caches.pods.drain()
        if not self._is_guarded():
            pods = {name: pod and as_first_seen(pod, self._builder.known_pod(name)) for name, pod in pods.items()}
        if self._caches.devices is not None:
            nodes, pods = self._with_devices(self._caches.devices, nodes, pods)
        for name, node in nodes.items():
            if node is None:
                self._builder.remove_node(name)
            else:
                self._builder.put_node(Read(node, NODE))
        for name, pod in pods.items():
            if pod is None:
                self._builder.remove_pod(name)
            else:
                self._builder.put_pod(Read(pod, POD))

    def _take_groups(self) -> None:
        for kind, cache in self._caches.groups.items():
            for name, obj in cache.drain().items():
                if obj is None:
                    self._builder.remove_owner(kind.called, name)
                else:
                    self._builder.put_owner(kind.called, name, owner_of(obj))
        self._builder.read_groups(kind.called for kind, cache in self._caches.groups.items() if not cache.is_absent)

    def _with_devices(
        self, devices: DeviceCaches, nodes: Mapping[str, Node | None], pods: Mapping[str, Pod | None]
    ) -> tuple[dict[str, Node | None], dict[str, Pod | None]]:
        """Changed nodes and pods, with devices from slices and claims."""
        for name, found in devices.slices.drain().items():
            self._book.known.put_slice(name, found)
        for name, known in devices.classes.drain().items():
            self._book.known.put_class(name, known)
        for name, claim in devices.claims.drain().items():
            self._book.known.put_claim(name, claim)
        for name, node in nodes.items():
            self._book.known.put_node(name, node)
        for name, pod in pods.items():
            self._book.known.put_pod(name, pod)
        settled = self._book.settle()
        return settled.nodes, settled.pods

    def with_book(self, look: Callable[[ClaimTranslation], T]) -> T:
        """Result of a function of the claim translation, as of the last snapshot."""
        with self._lock:
            return look(self._book)

    def _take_own(self, kind: Kind, name: str, obj: OwnObject | None) -> None:
        self._unreadable.pop((kind.name, name), None)
        read = None if obj is None or _is_over(kind, obj) else own_from(name, kind, obj)
        if isinstance(read, Read):
            self._builder.put_own(read)
            return
        self._builder.remove_own(kind, name)
        if read is not None:
            self._unreadable[kind.name, name] = read


def _is_over(kind: Kind, obj: OwnObject) -> bool:
    """Whether nothing is planned for the object any more, although it is there: a finalizer may keep it for ever."""
    return kind is SERVICE and obj.metadata.deletion_timestamp is not None


def owner_of(obj: OwnObject) -> Owner:
    """Object of another project's kind: plain data, whatever stands in it."""
    spec, status = (without_nulls(plain(raw)) for raw in (obj.spec, obj.status))
    return Owner(spec if isinstance(spec, dict) else {}, status if isinstance(status, dict) else {})


def as_first_seen(pod: Pod, before: Pod | None) -> Pod:
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
