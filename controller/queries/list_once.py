"""One look at a live cluster: its objects listed once, as the operator would see them, without a watch."""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cluster.errors import Mistake
from cluster.snapshot import Snapshot
from controller.kube.cache import Cache
from controller.kube.connection import Connection
from controller.kube_world.cached_view import is_ours, seen_pod
from controller.kube_world.observer import Caches, Observer, empty_caches
from controller.placers.pool_affinity import Ways
from controller.placers.pools import asked_placer
from controller.queries.installation import Installation
from controller.snapshot.builder import Seen
from controller.snapshot.from_manifests import Observed


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What was listed, and what else it would be with other objects in it."""

    caches: Caches
    observer: Observer
    clock: Callable[[], float]

    def seen(self) -> Observed:
        """The cluster, with everything that its reader should know of it."""
        seen: Seen = self.observer.see()
        return Observed(seen.snapshot, self.observer.notes(seen.snapshot))

    def to_plan_on(self, snapshot: Snapshot, installation: Installation) -> Snapshot:
        """The snapshot as the operator would plan on it: pods on nodes of their own way only, where its settings are
        known; else wherever else they may run."""
        if installation.settings is None:
            return snapshot
        allocates = any(pool.placer == "dra" for pool in installation.pools)

        def way_of(name: str) -> str | None:
            pod = self.caches.pods.get(name)
            return asked_placer(seen_pod(name, pod, allocates_claims=allocates)) if pod else None

        ways = Ways(installation.pools)
        return ways.told(snapshot, ways.of_services(snapshot, lambda *_: 0), way_of)

    def mistakes(self) -> tuple[Mistake, ...]:
        """What contradicts itself and is left out of the snapshot."""
        return self.observer.see().mistakes

    def put(self, objects: Iterable[dict[str, Any]]) -> None:
        """From now on as if these objects of our kinds were stored; others are passed over."""
        by_kind = {kind.name: cache for kind, cache in self.caches.own.items()}
        for obj in objects:
            cache = by_kind.get(str(obj.get("kind")))
            if cache is not None:
                line = json.dumps({"type": "MODIFIED", "object": obj}).encode()
                cache.take_line(line, self.clock())


async def look(connection: Connection, clock: Callable[[], float]) -> Look:
    """List what planning reads. Raises KubeReadError.

    clock: seconds since the epoch.
    """
    caches = empty_caches()
    await asyncio.gather(*(_list(cache, connection, clock) for cache in caches.each))
    return Look(caches, Observer(caches, clock, is_ours=is_ours, at_first_sight=lambda: None), clock)


async def _list(cache: Cache[Any], connection: Connection, clock: Callable[[], float]) -> None:
    """The newest list, not what the server has at hand: it is printed beside what was just written."""
    continue_, is_first = "", True
    while is_first or continue_:
        query = {key: value for key, value in cache.list_query(continue_).items() if key != "resourceVersion"}
        continue_ = cache.take_page(await connection.read(cache.resource.path, query), clock(), is_first=is_first)
        is_first = False
