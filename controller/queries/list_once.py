"""One-time listing of a live cluster: the objects that the operator would observe, without a watch."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.clock import Clock
from cluster.errors import Mistake
from cluster.snapshot import Snapshot
from controller.kube.api_server import ApiServer
from controller.kube.cache import Cache
from controller.kube.request import ABSENT, KubeReadError
from controller.kube_world import cached_view
from controller.kube_world.observer import Caches, Observer, empty_caches
from controller.kube_world.refusals import FAILED_PODS
from controller.settings import OperatorSettings, settings_from
from controller.snapshot.builder import BuiltSnapshot
from controller.snapshot.from_manifests import Observed

if TYPE_CHECKING:
    from controller.kube_world.planning_view import PlanningView


@dataclass(slots=True, eq=False)
class ListedCluster:
    """Listed objects, to which other objects can be added."""

    caches: Caches
    observer: Observer
    clock: Clock
    view: cached_view.CachedView
    settings: OperatorSettings
    _planning: "PlanningView | None" = None

    def to_plan_on(self) -> Snapshot:
        """Snapshot as the operator would plan on it: with writes in flight, without pods of other schedulers."""
        if self._planning is None:
            # Only here, since it loads what plans: a tenth of a second of CPU.
            from controller.kube_world.planning_view import PlanningView

            self._planning = PlanningView(
                self.view,
                cached_view.pools_from(self.settings),
                clock=self.clock,
                device_classes=cached_view.device_classes_from(self.settings),
                release_deadline_s=self.settings.release_deadline_s,
            )
        return self._planning.snapshot()

    def seen(self) -> Observed:
        """Snapshot of the cluster, with notes for the reader."""
        built: BuiltSnapshot = self.observer.see()
        return Observed(built.snapshot, self.observer.notes(built.snapshot))

    def mistakes(self) -> tuple[Mistake, ...]:
        """Errors of objects that the snapshot leaves out."""
        return self.observer.see().mistakes

    def put(self, objects: Iterable[dict[str, Any]]) -> None:
        """Add or replace objects of Tonnage's kinds, as if they were stored; others are ignored."""
        by_kind = {kind.name: cache for kind, cache in self.caches.own.items()}
        for obj in objects:
            cache = by_kind.get(str(obj.get("kind")))
            if cache is not None:
                line = json.dumps({"type": "MODIFIED", "object": obj}).encode()
                cache.take_line(line, self.clock())


async def list_cluster(connection: ApiServer, clock: Clock, settings: OperatorSettings | None = None) -> ListedCluster:
    """List all objects that planning reads. Raises KubeReadError.

    clock: seconds since the epoch. settings: of the operator, for `to_plan_on`; then Deployments are listed too, and
    devices where Tonnage allocates claims.
    """
    known = settings or settings_from({})
    caches = empty_caches(
        with_devices=settings is not None and cached_view.allocates_claims(settings),
        groups=cached_view.foreign_kinds_from(known),
    )
    deployments, failed = Cache(cached_view.DEPLOYMENTS), Cache(FAILED_PODS)
    quotas = Cache(cached_view.QUOTAS)
    wanted: tuple[Cache[Any], ...] = caches.each if settings is None else (*caches.each, deployments, failed, quotas)
    await asyncio.gather(*(_list(cache, connection, clock) for cache in wanted))
    observer = cached_view.observer_from(known, caches, clock, freezes_heap=False)
    view = cached_view.CachedView(
        observer, deployments, failed=failed, quotas=quotas, labelled_only=known.managed_namespaces == "labelled"
    )
    return ListedCluster(caches, observer, clock, view, known)


async def _list(cache: Cache[Any], connection: ApiServer, clock: Clock) -> None:
    """List at the newest version, not from the server's cache: the result is printed beside a preceding write."""
    continue_, is_first = "", True
    while is_first or continue_:
        query = {key: value for key, value in cache.list_query(continue_).items() if key != "resourceVersion"}
        try:
            page = await connection.read(cache.path, query)
        except KubeReadError as error:
            if not cache.resource.is_optional or error.refusal.status not in ABSENT:
                raise
            if not cache.leave_out(error.refusal):
                return
            continue
        continue_ = cache.take_page(page, clock(), is_first=is_first)
        is_first = False
