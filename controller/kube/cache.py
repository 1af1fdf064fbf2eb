"""Cache of the objects of one resource, with the list-and-watch protocol as a state machine."""

import asyncio
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import Lock
from typing import Any, Generic, TypeVar

import msgspec

from controller.kube.errors import KubeReadError, Refusal, is_version_lost, refusal_in
from controller.kube.nesting import DEEPEST, shallow
from controller.kube.structs import Event, ListMeta, Meta, Page, Slim

Item = TypeVar("Item", bound=Slim)

PAGE = "2000"
"""Objects per page of a list. Chosen: 5 MB of pods. The server ignores it for a list at resourceVersion 0."""

MARGIN = 20
"""Levels that are kept beyond those that are read, so that a reader sees that there were too many."""


@dataclass(frozen=True, slots=True)
class Resource(Generic[Item]):
    """Resource that is listed and watched."""

    part: str
    """Name in `Snapshot.observed_at_s`, logs and metrics."""
    path: str
    """Path of the collection: `/api/v1/pods`."""
    item: type[Item]
    """Struct of one object, with a field `metadata`."""
    is_namespaced: bool = True
    selectors: Mapping[str, str] = field(default_factory=dict)
    """`labelSelector` and `fieldSelector`, where only some of the objects are needed."""
    is_optional: bool = False
    """Whether it is enough to read it where it is served and may be listed."""
    other_paths: tuple[str, ...] = ()
    """Paths of other versions, for servers that do not serve `path`."""


class Cache(Generic[Item]):
    """Local copy of one resource. The event loop writes it; any thread may read it.

    It starts without a version, lists, and then follows a watch from the list's resourceVersion. When the server no
    longer has that version (410), the cache lists again and treats missing objects as deleted. So no change is lost;
    several may be coalesced. Source: Kubernetes documentation, "API concepts: efficient detection of changes".
    """

    def __init__(self, resource: Resource[Item], changed: Callable[[], None] = lambda: None) -> None:
        """changed: called in the event loop after an object was added, changed or deleted; it must return quickly."""
        self.resource = resource
        self.synced = asyncio.Event()
        """Set by the first complete list and never cleared; `seen_at_s` gives the age while a watch is broken."""
        self.trouble = ""
        """Error of the last request; empty once a request has succeeded."""
        self.seen_at_s = 0.0
        """Time of the last data from the server, seconds since the epoch."""
        self.lists = self.events = self.failures = 0
        """Counts since the start, for metrics."""
        self.is_absent = False
        """Whether an optional resource is not served, or may not be listed. It then has no objects."""
        self._paths = (resource.path, *resource.other_paths)
        self._changed = changed
        self._items: dict[str, Item] = {}
        self._dirty: set[str] = set()
        self._lock = Lock()
        self._version = ""
        """Newest resourceVersion received; opaque."""
        self._wants_list = True
        self._is_version_lost = False
        self._pages: dict[str, Item] = {}
        self._page_decoder = msgspec.json.Decoder(Page[resource.item])  # type: ignore[name-defined]
        self._item_decoder = msgspec.json.Decoder(resource.item)

    def __len__(self) -> int:
        return len(self._items)

    def get(self, name: str) -> Item | None:
        """Object by `name`, or by `namespace/name` where the resource has namespaces."""
        return self._items.get(name)

    def all(self) -> dict[str, Item]:
        with self._lock:
            return dict(self._items)

    def drain(self) -> dict[str, Item | None]:
        """Objects that changed since the last call, in their current state; None for a deleted one."""
        with self._lock:
            dirty, self._dirty = self._dirty, set()
            return {name: self._items.get(name) for name in dirty}

    def mark_all(self) -> None:
        """Mark all objects as changed, for a reader of `drain` that has to start again."""
        with self._lock:
            self._dirty |= self._items.keys()

    @property
    def path(self) -> str:
        """Path of the collection, of the version that is tried or read."""
        return self._paths[0]

    def leave_out(self, refusal: Refusal) -> bool:
        """Do without an optional resource that is not served, or may not be listed, until it is.

        True while a path of another version is to be tried.
        """
        if refusal.status == HTTPStatus.NOT_FOUND:
            self._paths = (*self._paths[1:], self._paths[0])
            if self._paths[0] != self.resource.path:
                return True
        with self._lock:
            self._dirty |= self._items.keys()
            self._items, self._version = {}, ""
        self._wants_list, self.is_absent, self.trouble = True, True, refusal.words
        self.synced.set()
        self._changed()
        return False

    @property
    def wants_list(self) -> bool:
        return self._wants_list

    def list_query(self, continue_: str = "") -> dict[str, str]:
        """Query of the next page.

        The first list accepts any version from the server's cache. A later one accepts nothing older than the version
        already received, so that the cache never goes back in time. Once the server has lost that version, the list
        asks for the newest.
        """
        query = {**self.resource.selectors, "limit": PAGE}
        if continue_:
            return {**query, "continue": continue_}
        return query if self._is_version_lost else {**query, "resourceVersion": self._version or "0"}

    def take_page(self, body: bytes, at_s: float, *, is_first: bool) -> str:
        """Add one page of a list; returns the token of the next page, or "" after the last one.

        Raises KubeReadError when the page cannot be decoded.
        """
        if is_first:
            self._pages = {}
        with paused_collector():
            page = self._decoded(self._page_decoder, body)
        self._pages.update((self.name_of(item), item) for item in page.items or ())
        if page.metadata.continue_:
            return page.metadata.continue_
        with self._lock:
            before, self._items, self._pages = self._items, self._pages, {}
            # An unchanged object decodes to an equal struct, so a relist marks only the objects that differ.
            changed = {name for name, item in self._items.items() if before.get(name) != item}
            self._dirty |= changed | (before.keys() - self._items.keys())
        self._version = page.metadata.resource_version
        self._wants_list = self._is_version_lost = self.is_absent = False
        self.seen_at_s, self.lists = at_s, self.lists + 1
        self.trouble = ""
        self.synced.set()
        self._changed()
        return ""

    def watch_query(self, for_s: float) -> dict[str, str]:
        return {
            **self.resource.selectors,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(for_s)),
        }

    def take_line(self, line: bytes, at_s: float) -> None:
        """Apply one watch event; a repeated event changes nothing.

        Raises KubeReadError for an ERROR object in the stream and for a line that cannot be decoded.
        """
        event = self._decoded(_EVENT, line)
        match event.type:
            case "ADDED" | "MODIFIED":
                item = self._decoded(self._item_decoder, event.object)
                self._put(self.name_of(item), item)
            case "DELETED":
                self._put(self.name_of(self._decoded(self._item_decoder, event.object)), None)
            case "BOOKMARK":
                pass
            case _:  # ERROR, and any type that a later release adds
                status = self._decoded(_ANY, event.object)
                refusal = refusal_in(status, HTTPStatus.INTERNAL_SERVER_ERROR)
                raise KubeReadError(f"watching {self.path}", refusal)
        self._version = self._decoded(_VERSIONED, event.object).metadata.resource_version
        self.seen_at_s, self.events, self.trouble = at_s, self.events + 1, ""

    @property
    def is_synced(self) -> bool:
        return self.synced.is_set()

    def fail(self, refusal: Refusal) -> None:
        """Record that a list or watch failed, and choose the next request.

        The cached objects stay; they only grow older.
        """
        self.failures += 1
        self.trouble = refusal.words
        self._pages = {}
        if is_version_lost(refusal):
            self._wants_list = self._is_version_lost = True

    def name_of(self, item: Item) -> str:
        meta: Meta = item.metadata  # type: ignore[attr-defined]  # every struct that is listed has it
        return f"{meta.namespace}/{meta.name}" if self.resource.is_namespaced else meta.name

    def _put(self, name: str, item: Item | None) -> None:
        with self._lock:
            if self._items.get(name) == item:
                return
            if item is None:
                del self._items[name]
            else:
                self._items[name] = item
            self._dirty.add(name)
        self._changed()

    def _decoded(self, decoder: "msgspec.json.Decoder[Decoded]", body: bytes | msgspec.Raw) -> "Decoded":
        try:
            try:
                return decoder.decode(body)
            except RecursionError:  # one object, whose reader says what is wrong with it, must not stop the others
                return decoder.decode(shallow(bytes(body), DEEPEST + MARGIN))
        except msgspec.MsgspecError as error:
            words = f"cannot decode the response: {error}"
            raise KubeReadError(f"reading {self.path}", Refusal(0, "Unreadable", words)) from error


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pauses the garbage collector while a list is decoded.

    It would walk a growing heap of new objects again and again and triple the time (31 MB of pods: 0.58 s with it,
    0.18 s without).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


Decoded = TypeVar("Decoded")


class _Versioned(Slim, frozen=True):
    """Metadata that the objects of all events have; a bookmark has nothing else."""

    metadata: ListMeta


_EVENT = msgspec.json.Decoder(Event)
_ANY = msgspec.json.Decoder(dict[str, Any])
_VERSIONED = msgspec.json.Decoder(_Versioned)
