"""Live cluster without a server: watch caches that a test fills, and the observer that reads them."""

from collections.abc import Iterable
from typing import Any

from controller.api.foreign_kinds import foreign_kind_of
from controller.api.kind import Kind
from controller.api.kinds import KINDS
from controller.kube.cache import Cache
from controller.kube_world.observer import Caches, Observer, empty_caches
from tests.builders.watch_events import Object, as_stored, deleted, listed, modified
from tests.clock import HandClock


class LiveCluster:
    """Objects come and go as a watch reports it, at the time of `clock`."""

    def __init__(self, objects: Iterable[Object] = (), kinds: Iterable[Kind] = KINDS, **observing: Any) -> None:
        self.caches: Caches = empty_caches(kinds=kinds)
        self.clock = HandClock(1000.0)
        self.observer = Observer(self.caches, self.clock, freezes_heap=False, **observing)
        self._version = 1
        self._by_kind: dict[str, Cache[Any]] = {
            "Node": self.caches.nodes,
            "Pod": self.caches.pods,
            **self.caches.beside,
            **{kind.name: cache for kind, cache in self.caches.own.items()},
            **{cache.resource.part: cache for cache in self.caches.groups},
        }
        by_kind: dict[str, list[Object]] = {kind: [] for kind in self._by_kind}
        for obj in objects:
            by_kind[_called(obj)].append(as_stored(obj))
        for kind, cache in self._by_kind.items():
            cache.take_page(listed(by_kind[kind]), self.clock.now_s, is_first=True)

    def put(self, *objects: Object) -> None:
        for obj in objects:
            self._version += 1
            stored = as_stored(obj, self._version)
            self._by_kind[_called(obj)].take_line(modified(stored, self._version), self.clock.now_s)

    def remove(self, *objects: Object) -> None:
        for obj in objects:
            self._version += 1
            stored = as_stored(obj, self._version)
            self._by_kind[_called(obj)].take_line(deleted(stored, self._version), self.clock.now_s)


def _called(obj: Object) -> str:
    """Kind of an object, in the words of the caches."""
    foreign = foreign_kind_of(obj["apiVersion"], obj["kind"])
    return foreign.called if foreign else str(obj["kind"])
