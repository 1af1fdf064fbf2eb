"""events.k8s.io Events: what `kubectl describe` shows of a decision. Best effort: nobody waits for them."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import structlog

from cluster.errors import ActionError
from controller.api.kinds import KINDS
from controller.api.labels import API_VERSION, EPOCH_ANNOTATION
from controller.kube.request import MERGE_PATCH
from controller.kube.sender import Applier
from controller.kube.write import Write
from controller.report.decisions import Said

log = structlog.get_logger(__name__)

REPORTER = "tonnage.dev/controller"
QUEUED = 10_000
"""Events that may wait to be written; what comes on top is lost and counted. Chosen: two full rounds of binds."""
REMEMBERED = 50_000
"""Last words about so many objects are kept, so that what was said is not said again."""
SERIES_AFTER_S, SERIES_AT_LEAST_S = 60.0, 1800.0
"""What is decided again and again is one Event whose series is counted up: after a minute first, then as long again as
it has lasted, at least twice an hour. The API server forgets an Event after an hour that nobody writes to it."""
RENOTED_AFTER_S = 60.0
"""Why a workload has no place changes with every pod that comes or goes; new words for the same reason make a new Event
once in so long, and count the old one up until then."""
LONGEST_NOTE = 1024
"""events.k8s.io/v1 takes no more."""
AT_A_TIME = 24
"""Events in flight: fewer than binds, which come first where both are under way. An Event costs the API server as much
as a bind, so thousands of binds are told of as fast as they were made only with about as many in flight."""
_API_VERSIONS = {kind.name: kind.api_version for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Series:
    """What was last said of one object, and how often since. Instants are seconds since the epoch."""

    said: Said
    uid: str
    """Of the object: another one of its name is told anew."""
    began_at_s: float
    last_at_s: float
    count: int = 1
    told_at_s: float = 0.0
    """When the API server was last told."""

    def again(self, at_s: float) -> "Series":
        return replace(self, last_at_s=at_s, count=self.count + 1)

    def is_due(self) -> bool:
        """Whether the API server should hear of the count."""
        lasted_s = self.last_at_s - self.began_at_s
        return self.last_at_s - self.told_at_s >= min(SERIES_AT_LEAST_S, max(SERIES_AFTER_S, lasted_s / 2))


class Events:
    """Writes events from a bounded queue, in the event loop."""

    def __init__(
        self,
        applier: Applier,
        uid_of: Callable[[str, str], str | None],
        wall_clock: Callable[[], float],
        epoch: Callable[[], int],
        instance: str,
    ) -> None:
        """uid_of: of an object by kind and name; None when it is not there. epoch: of the Lease. instance: which
        process says it."""
        self._applier = applier
        self._uid_of = uid_of
        self._wall_clock = wall_clock
        self._epoch = epoch
        self._instance = instance
        self._queue: asyncio.Queue[Series] = asyncio.Queue(QUEUED)
        self._last: OrderedDict[tuple[str, str, str], Series] = OrderedDict()
        self.lost = 0

    def say(self, several: Iterable[Said]) -> None:
        """Queue what is new, and what has been so for a while; called in the event loop, returns at once."""
        at_s = self._wall_clock()
        for said in several:
            uid = self._uid_of(said.kind, said.name)
            if uid is None:
                continue
            key = (said.kind, said.name, said.action)
            before = self._last.get(key)
            if before is not None and before.uid == uid and _is_again(before, said, at_s):
                series = before.again(at_s)
                self._last[key] = self._queued(series) if series.is_due() else series
            else:
                self._last[key] = self._queued(Series(said, uid, at_s, at_s))
            self._last.move_to_end(key)
            if len(self._last) > REMEMBERED:
                self._last.popitem(last=False)

    def _queued(self, series: Series) -> Series:
        try:
            self._queue.put_nowait(series)
        except asyncio.QueueFull:
            self.lost += 1
        return replace(series, told_at_s=series.last_at_s)

    async def write(self) -> None:
        """Write what is queued, so many at a time, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_A_TIME):
                group.create_task(self._write_one_after_another())

    async def _write_one_after_another(self) -> None:
        while True:
            series = await self._queue.get()
            answer = await self._applier.send_one(self._write_of(series))
            if isinstance(answer, ActionError):
                self.lost += 1
                self._forget(series)
                log.debug("an event was not written", why=str(answer))

    def _forget(self, series: Series) -> None:
        """One that was not written is said anew, not counted up: it may have expired."""
        key = (series.said.kind, series.said.name, series.said.action)
        if key in self._last and self._last[key].began_at_s == series.began_at_s:
            del self._last[key]

    def _write_of(self, series: Series) -> Write:
        epoch = self._epoch()
        return event_write(series, epoch, self._instance) if series.count == 1 else series_write(series, epoch)


def _is_again(before: Series, said: Said, at_s: float) -> bool:
    """Whether this is what was said before. The figures behind a reason change every cycle and are not shown."""
    was = before.said
    if (was.happened, was.reason.code, was.is_warning) != (said.happened, said.reason.code, said.is_warning):
        return False
    return was.note == said.note or (said.action == "Placing" and at_s - before.began_at_s < RENOTED_AFTER_S)


def event_name(series: Series) -> str:
    said = series.said
    told = f"{series.uid}{said.action}{said.reason.code}{series.began_at_s}".encode()
    return f"{said.name.rpartition('/')[2][:200]}.{hashlib.sha256(told).hexdigest()[:16]}"


def event_namespace(said: Said) -> str:
    """That of the object; of one without a namespace the API server takes Events in `default` alone."""
    return said.name.rpartition("/")[0] or "default"


def event_write(series: Series, epoch: int, instance: str) -> Write:
    said = series.said
    inside, _, name = said.name.rpartition("/")
    namespace = event_namespace(said)
    body: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": event_name(series), "namespace": namespace, "annotations": {EPOCH_ANNOTATION: str(epoch)}},
        "eventTime": _instant(series.began_at_s),
        "type": "Warning" if said.is_warning else "Normal",
        "reason": said.happened[:128],
        "action": said.action,
        "note": said.note[:LONGEST_NOTE],
        "regarding": {
            "apiVersion": _API_VERSIONS.get(said.kind, API_VERSION),
            "kind": said.kind,
            **({"namespace": inside} if inside else {}),
            "name": name,
            "uid": series.uid,
        },
        "reportingController": REPORTER,
        "reportingInstance": instance[:128],
    }
    return Write("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body)


def series_write(series: Series, epoch: int) -> Write:
    """Counts an Event up that stands there already. All but its series is immutable."""
    namespace = event_namespace(series.said)
    body = {
        "metadata": {"annotations": {EPOCH_ANNOTATION: str(epoch)}},
        "series": {"count": series.count, "lastObservedTime": _instant(series.last_at_s)},
    }
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/{event_name(series)}"
    return Write("PATCH", path, body, MERGE_PATCH)


def _instant(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
