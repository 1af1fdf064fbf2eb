"""Events (events.k8s.io) about decisions, shown by `kubectl describe`. Best effort: the loop never waits for them."""

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
from controller.report.decisions import Decision

log = structlog.get_logger(__name__)

REPORTER = "tonnage.dev/controller"
QUEUED = 10_000
"""Maximum number of queued Events; further ones are dropped and counted. Chosen: two full rounds of binds."""
REMEMBERED = 50_000
"""Size of the cache of the last Event per object and action, so that an unchanged one is not repeated."""
SERIES_AFTER_S, SERIES_AT_LEAST_S = 60.0, 1800.0
"""A repeated decision is one Event with a series count. The count is written after a minute, then whenever the age of
the series has doubled, and at least twice an hour: the API server deletes Events without a write for an hour."""
RENOTED_AFTER_S = 60.0
"""Minimum time between Events of an unplaced workload with the same reason and a new text, which changes with every
pod that comes or goes. Until then the old Event is counted up."""
LONGEST_NOTE = 1024
"""Maximum length of a note in events.k8s.io/v1, characters."""
AT_A_TIME = 24
"""Concurrent writes of Events: fewer than of binds, which have precedence. An Event costs the API server as much as a
bind, so that Events keep up with thousands of binds only with a similar number of concurrent writes."""
_API_VERSIONS = {kind.name: kind.api_version for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Series:
    """Last decision reported about one object, and its count. Instants are seconds since the epoch."""

    decision: Decision
    uid: str
    """UID of the object: another object of the same name gets its own Event."""
    began_at_s: float
    last_at_s: float
    count: int = 1
    written_at_s: float = 0.0
    """When the Event was last queued for writing."""

    def again(self, at_s: float) -> "Series":
        return replace(self, last_at_s=at_s, count=self.count + 1)

    def is_due(self) -> bool:
        """Whether the count should be written to the API server."""
        lasted_s = self.last_at_s - self.began_at_s
        return self.last_at_s - self.written_at_s >= min(SERIES_AT_LEAST_S, max(SERIES_AFTER_S, lasted_s / 2))


class Events:
    """Writer of Events, from a bounded queue in the asyncio event loop."""

    def __init__(
        self,
        applier: Applier,
        uid_of: Callable[[str, str], str | None],
        wall_clock: Callable[[], float],
        epoch: Callable[[], int],
        instance: str,
    ) -> None:
        """uid_of: UID of an object by kind and name; None if it does not exist. epoch: epoch of the Lease.
        instance: identity of this process."""
        self._applier = applier
        self._uid_of = uid_of
        self._wall_clock = wall_clock
        self._epoch = epoch
        self._instance = instance
        self._queue: asyncio.Queue[Series] = asyncio.Queue(QUEUED)
        self._last: OrderedDict[tuple[str, str, str], Series] = OrderedDict()
        self.lost = 0

    def say(self, several: Iterable[Decision]) -> None:
        """Queue new decisions, and due counts of repeated ones; called in the event loop, returns immediately."""
        at_s = self._wall_clock()
        for decision in several:
            uid = self._uid_of(decision.kind, decision.name)
            if uid is None:
                continue
            key = (decision.kind, decision.name, decision.action)
            before = self._last.get(key)
            if before is not None and before.uid == uid and _is_again(before, decision, at_s):
                series = before.again(at_s)
                self._last[key] = self._queued(series) if series.is_due() else series
            else:
                self._last[key] = self._queued(Series(decision, uid, at_s, at_s))
            self._last.move_to_end(key)
            if len(self._last) > REMEMBERED:
                self._last.popitem(last=False)

    def _queued(self, series: Series) -> Series:
        try:
            self._queue.put_nowait(series)
        except asyncio.QueueFull:
            self.lost += 1
        return replace(series, written_at_s=series.last_at_s)

    async def write(self) -> None:
        """Write queued Events, `AT_A_TIME` concurrently, until cancelled."""
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
        """Forget an unwritten Event, so that it is created again instead of counted up: it may have expired."""
        key = (series.decision.kind, series.decision.name, series.decision.action)
        if key in self._last and self._last[key].began_at_s == series.began_at_s:
            del self._last[key]

    def _write_of(self, series: Series) -> Write:
        epoch = self._epoch()
        return event_write(series, epoch, self._instance) if series.count == 1 else series_write(series, epoch)


def _is_again(before: Series, decision: Decision, at_s: float) -> bool:
    """Whether this repeats the last decision. The figures behind a reason change every cycle and are not compared."""
    was = before.decision
    if (was.happened, was.reason.code, was.is_warning) != (
        decision.happened,
        decision.reason.code,
        decision.is_warning,
    ):
        return False
    return was.note == decision.note or (decision.action == "Placing" and at_s - before.began_at_s < RENOTED_AFTER_S)


def event_name(series: Series) -> str:
    decision = series.decision
    content = f"{series.uid}{decision.action}{decision.reason.code}{series.began_at_s}".encode()
    return f"{decision.name.rpartition('/')[2][:200]}.{hashlib.sha256(content).hexdigest()[:16]}"


def event_namespace(decision: Decision) -> str:
    """Namespace of the object; for cluster-scoped objects the API server accepts Events only in `default`."""
    return decision.name.rpartition("/")[0] or "default"


def event_write(series: Series, epoch: int, instance: str) -> Write:
    decision = series.decision
    inside, _, name = decision.name.rpartition("/")
    namespace = event_namespace(decision)
    body: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": event_name(series), "namespace": namespace, "annotations": {EPOCH_ANNOTATION: str(epoch)}},
        "eventTime": _instant(series.began_at_s),
        "type": "Warning" if decision.is_warning else "Normal",
        "reason": decision.happened[:128],
        "action": decision.action,
        "note": decision.note[:LONGEST_NOTE],
        "regarding": {
            "apiVersion": _API_VERSIONS.get(decision.kind, API_VERSION),
            "kind": decision.kind,
            **({"namespace": inside} if inside else {}),
            "name": name,
            "uid": series.uid,
        },
        "reportingController": REPORTER,
        "reportingInstance": instance[:128],
    }
    return Write("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body)


def series_write(series: Series, epoch: int) -> Write:
    """Write that counts up an existing Event. All its other fields are immutable."""
    namespace = event_namespace(series.decision)
    body = {
        "metadata": {"annotations": {EPOCH_ANNOTATION: str(epoch)}},
        "series": {"count": series.count, "lastObservedTime": _instant(series.last_at_s)},
    }
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/{event_name(series)}"
    return Write("PATCH", path, body, MERGE_PATCH)


def _instant(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
