"""Cache of the objects of one resource, with the list-and-watch protocol as a state machine."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from random import Random
from threading import Lock
from typing import Any, Generic, Never, TypeVar

import msgspec
import structlog

from cluster.clock import Clock
from cluster.collector import paused_collector
from controller.api.structs import DEEPEST, Event, ListMeta, ListPage, Meta, Slim, shallow
from controller.kube.api_server import ApiServer
from controller.kube.request import ABSENT, KubeReadError, Refusal, Sleep, is_version_lost, refusal_in

Item = TypeVar("Item", bound=Slim)

PAGE = "2000"
"""Objects per page of a list. Chosen: 5 MB of pods. The server ignores it for a list at resourceVersion 0."""

MARGIN = 20
"""Levels that are kept beyond those that are read, so that a reader sees that there were too many."""


Told = Callable[[], None]


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

    def __init__(self, resource: Resource[Item], changed: Told = lambda: None) -> None:
        """changed: called in the event loop after an object was added, changed or deleted; it must return quickly."""
        self.resource = resource
        self.synced = asyncio.Event()
        """Set by the first complete list and never cleared; `seen_at_s` gives the age while a watch is broken."""
        self.trouble = ""
        """Error of the last request; empty once a request has succeeded."""
        self.seen_at_s = 0.0
        """Time of the last data from the server, by the clock of its reader."""
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
        self.wants_list = True
        """Whether the next request is a list, and not a watch."""
        self._is_version_lost = False
        self._pages: dict[str, Item] = {}
        self._page_decoder = msgspec.json.Decoder(ListPage[resource.item])  # type: ignore[name-defined]
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

    @property
    def has_changes(self) -> bool:
        """Whether objects changed since the last call of `drain`."""
        return bool(self._dirty)

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
        self.wants_list, self.is_absent, self.trouble = True, True, refusal.words
        self.synced.set()
        self._changed()
        return False

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
        self.wants_list = self._is_version_lost = self.is_absent = False
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

    def start_over(self) -> None:
        """Lists anew from whatever version the server has, whose store may have gone back in time.

        The objects stay until then, so that the list marks what differs; the cache counts as not synced.
        """
        self.wants_list, self._is_version_lost, self._version = True, True, ""
        self.synced.clear()

    def fail(self, refusal: Refusal) -> None:
        """Record that a list or watch failed, and choose the next request.

        The cached objects stay. A server that was away, or ended a watch at once, is listed anew: it may be older.
        """
        self.failures += 1
        self.trouble = refusal.words
        self._pages = {}
        self._is_version_lost |= is_version_lost(refusal)
        self.wants_list |= is_version_lost(refusal) or refusal.reason in ("NoConnection", "ShortWatch")

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


Decoded = TypeVar("Decoded")


class _Versioned(Slim, frozen=True):
    """Metadata that the objects of all events have; a bookmark has nothing else."""

    metadata: ListMeta


_EVENT = msgspec.json.Decoder(Event)
_ANY = msgspec.json.Decoder(dict[str, Any])
_VERSIONED = msgspec.json.Decoder(_Versioned)


log = structlog.get_logger(__name__)

STARTING = 6
"""Refusals in a row after which an optional kind that was read counts as absent: about 20 s of pauses."""


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """Durations of watches, and of the back-off after a failure."""

    watch_for_s: tuple[float, float] = (300.0, 600.0)
    """Range of the requested duration of a watch; it is random, so that watches do not all end at once. As
    client-go's."""
    idle_s: float = 150.0
    """Time without a line after which a watch is considered dead, 30 to 600. The server sends a bookmark every minute,
    so two were missed."""
    first_wait_s: float = 0.8
    """Wait after the first failure; doubles with each further one. As client-go's."""
    longest_wait_s: float = 10.0
    """Longest wait, 1 to 60. Chosen: a third of client-go's, because nothing is planned in the meantime."""
    longest_asked_s: float = 60.0
    """Longest wait that a server may ask for, 10 to 120. Chosen: a third of the age from which nothing is planned."""
    calm_after_s: float = 60.0
    """Time without a failure after which the next failure counts as the first."""
    absent_s: float = 60.0
    """Longest wait until a kind that is not served, or may not be listed, is tried again. Chosen: people install a kind
    minutes before they use it."""
    short_watch_s: float = 1.0
    """A watch that ends within this time without any event counts as a failure, so that a broken proxy is not
    overloaded."""

    def wait_s(self, failures: int, refusal: Refusal, chance: Random) -> float:
        """Wait after the n-th failure in a row; the first is 1.

        After a first lost resourceVersion there is no wait. A Retry-After of the server is honoured up to
        `longest_asked_s`: it may come from a proxy in front of it.
        """
        if failures == 1 and is_version_lost(refusal):
            return 0.0
        longest = min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(failures - 1, 30))
        asked_s = min(self.longest_asked_s, refusal.retry_after_s or 0.0)
        return max(asked_s, longest * chance.uniform(0.5, 1.0))


@dataclass(frozen=True, slots=True)
class WatchSurroundings:
    """Clock, sleep and random numbers of a reflector, which tests replace."""

    clock: Clock
    """Monotonic: a cache is as old as before when somebody sets the clock of dates."""
    pause: Sleep
    chance: Random
    went_back: Told = lambda: None
    """Called where the server is behind what one cache knows: others may know what is no more, and would not see it."""


async def reflect(cache: Cache[Item], transport: ApiServer, times: WatchTimes, around: WatchSurroundings) -> Never:
    """Keep the cache current until cancelled. Every failed read is logged, counted and retried."""
    failures, failed_at_s = 0, 0.0
    while True:
        events = cache.events
        try:
            if cache.wants_list:
                await list_all(cache, transport, around.clock)
            await watch_once(cache, transport, times, around)
        except KubeReadError as error:
            is_read = bool(cache.lists) and not cache.is_absent
            # A server that starts refuses for a moment what it is about to serve.
            if error.refusal.status in ABSENT and cache.resource.is_optional and not (is_read and failures < STARTING):
                was_absent = cache.is_absent
                if not cache.leave_out(error.refusal):
                    if not was_absent:
                        log.info("not read", part=cache.resource.part, why=error.refusal.words)
                    await around.pause(times.absent_s * around.chance.uniform(0.5, 1.0))
                continue
            now_s = around.clock()
            # A watch that delivered an event has worked: back-off for a connection that is cut again and again must not
            # make the cache stale.
            has_worked = cache.events != events and not is_version_lost(error.refusal)
            is_first = has_worked or now_s - failed_at_s > times.calm_after_s
            failures = 1 if is_first else failures + 1
            failed_at_s = now_s
            cache.fail(error.refusal)
            if is_version_lost(error.refusal) and error.refusal.status == HTTPStatus.GATEWAY_TIMEOUT:
                around.went_back()
            wait_s = times.wait_s(failures, error.refusal, around.chance)
            log.warning(
                "watch broken", part=cache.resource.part, error=str(error), failures=failures, wait_s=round(wait_s, 2)
            )
            await around.pause(wait_s)


async def list_all(cache: Cache[Item], transport: ApiServer, clock: Clock) -> None:
    """List the resource page by page; the cache changes with the last page. Raises KubeReadError."""
    continue_, is_first = "", True
    while is_first or continue_:
        body = await transport.read(cache.path, cache.list_query(continue_))
        continue_ = cache.take_page(body, clock(), is_first=is_first)
        is_first = False
    log.info("listed", part=cache.resource.part, objects=len(cache))


async def watch_once(cache: Cache[Item], transport: ApiServer, times: WatchTimes, around: WatchSurroundings) -> None:
    """Follow one watch to its end. Raises KubeReadError when it breaks, or ends at once without an event."""
    start_s, events = around.clock(), cache.events
    query = cache.watch_query(around.chance.uniform(*times.watch_for_s))
    async with aclosing(transport.watch(cache.path, query, idle_s=times.idle_s)) as lines:
        async for line in lines:
            cache.take_line(line, around.clock())
    if cache.events == events and around.clock() - start_s < times.short_watch_s:
        words = "the watch ended at once, without an event"
        raise KubeReadError(f"watching {cache.path}", Refusal(0, "ShortWatch", words))
