"""Events (events.k8s.io) about decisions, shown by `kubectl describe`. Best effort: the loop never waits for them."""

import asyncio
import hashlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, zip_longest
from typing import Any

import structlog

from cluster.clock import Clock
from cluster.errors import ActionError
from cluster.plans import Reason
from controller.api.conditions import BAD_INPUT
from controller.api.foreign_kinds import FOREIGN_KINDS
from controller.api.kinds import KINDS
from controller.api.labels import API_VERSION, EPOCH_ANNOTATION
from controller.kube.request import MERGE_PATCH
from controller.kube.sender import Applier, Write
from controller.report.decisions import UNPLACED, ReportedDecision

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
WAITING_PER_MINUTE, WAITING_AT_ONCE = 50.0, 120.0
"""Writes of Events about unplaced workloads, per minute and at once. Whoever creates pods decides how many wait, and a
new leader remembers none of what was said; each write costs the API server as much as a bind."""
FOR_NAMESPACES = 10.0
"""Writes kept for the Events of namespaces, which count the workloads that nothing was said of yet."""
LONGEST_NOTE = 1024
"""Maximum length of a note in events.k8s.io/v1, characters."""
AT_A_TIME = 24
"""Concurrent writes of Events: fewer than of binds, which have precedence. An Event costs the API server as much as a
bind, so that Events keep up with thousands of binds only with a similar number of concurrent writes."""
NAMESPACE = "Namespace"
KUEUE_GROUP = ("kueue.x-k8s.io/v1beta1", "Workload")
"""Object that Kueue makes of a group of pods, with the group's name. It is not read."""
_REGARDED: Mapping[str, tuple[str, str]] = {
    NAMESPACE: ("v1", NAMESPACE),
    "KueuePodGroup": KUEUE_GROUP,
    **{kind.called: (kind.api_versions[0], kind.name) for kind in FOREIGN_KINDS},
    **{kind.name: (kind.api_version, kind.name) for kind in KINDS},
}
"""apiVersion and kind of the objects of Events, by the kind of a decision."""


@dataclass(frozen=True, slots=True)
class EventSeries:
    """Last decision reported about one object, and its count. Instants are seconds since the epoch."""

    decision: ReportedDecision
    uid: str
    """UID of the object: another object of the same name gets its own Event."""
    began_at_s: float
    last_at_s: float
    count: int = 1
    written_at_s: float = 0.0
    """When the Event was last queued for writing."""

    def again(self, at_s: float) -> "EventSeries":
        return replace(self, last_at_s=at_s, count=self.count + 1)

    def is_due(self) -> bool:
        """Whether the count should be written to the API server."""
        lasted_s = self.last_at_s - self.began_at_s
        return self.last_at_s - self.written_at_s >= min(SERIES_AT_LEAST_S, max(SERIES_AFTER_S, lasted_s / 2))


@dataclass(slots=True)
class Allowance:
    """Writes that may be made now; they come back with time. Instants are seconds since the epoch."""

    left: float = WAITING_AT_ONCE
    at_s: float = 0.0

    def refill(self, at_s: float) -> None:
        more = max(0.0, at_s - self.at_s) * WAITING_PER_MINUTE / 60.0
        self.left, self.at_s = min(WAITING_AT_ONCE, self.left + more), at_s

    def take(self, kept: float = 0.0) -> bool:
        """Whether one more write may be made, with this many kept for others; counts it."""
        may = self.left - kept >= 1.0
        self.left -= may
        return may


class Events:
    """Writer of Events, from a bounded queue in the asyncio event loop."""

    def __init__(
        self,
        applier: Applier,
        uid_of: Callable[[str, str], str | None],
        wall_clock: Clock,
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
        self._queue: asyncio.Queue[EventSeries] = asyncio.Queue(QUEUED)
        self._last: OrderedDict[tuple[str, str, str], EventSeries] = OrderedDict()
        self._waiting = Allowance()
        self.lost = 0

    def say(self, several: Iterable[ReportedDecision]) -> None:
        """Queue new decisions, and due counts of repeated ones; called in the event loop, returns immediately.

        Of unplaced workloads and refused objects only so many Events are written in a minute, in turns of their
        namespaces. The others are counted in an Event of their namespace, until their own follows.
        """
        at_s = self._wall_clock()
        waiting: list[ReportedDecision] = []
        for decision in several:
            if decision.event == UNPLACED or decision.happened == BAD_INPUT:
                waiting.append(decision)
            else:
                self._say(decision, at_s)
        self._waiting.refill(at_s)
        untold: Counter[str] = Counter()
        for decision in in_turns(waiting):
            if not self._say(decision, at_s, FOR_NAMESPACES):
                untold[event_namespace(decision)] += 1
        for namespace, count in sorted(untold.items()):
            words = f"{count} more wait or are refused here, of which nothing was said yet: see `tonnage explain`"
            self._say(
                ReportedDecision(
                    NAMESPACE, namespace, "Placing", Reason("ManyWait", words), is_warning=True, event=UNPLACED
                ),
                at_s,
                0.0,
            )

    def _say(self, decision: ReportedDecision, at_s: float, kept: float | None = None) -> bool:
        """Queue one decision. False where nothing was said of it yet, and nothing may be now.

        kept: writes of the allowance that are left for others; None: it needs none of the allowance.
        """
        uid = self._uid_of(decision.kind, decision.name)
        if uid is None:
            return True
        key = (decision.kind, decision.name, decision.action)
        before = self._last.get(key)
        is_known = before is not None and before.uid == uid
        if before is not None and is_known and _is_again(before, decision, at_s):
            series = before.again(at_s)
            self._last[key] = self._queued(series) if series.is_due() and self._may_write(kept) else series
        elif self._may_write(kept):
            self._last[key] = self._queued(EventSeries(decision, uid, at_s, at_s))
        else:
            return is_known
        self._last.move_to_end(key)
        if len(self._last) > REMEMBERED:
            self._last.popitem(last=False)
        return True

    def _may_write(self, kept: float | None) -> bool:
        return kept is None or self._waiting.take(kept)

    def _queued(self, series: EventSeries) -> EventSeries:
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
            epoch = self._epoch()
            answer = await self._applier.send_one(
                event_write(series, epoch, self._instance) if series.count == 1 else series_write(series, epoch)
            )
            if isinstance(answer, ActionError):
                self.lost += 1
                # Forget an unwritten Event, so that it is created again instead of counted up: it may have expired.
                key = (series.decision.kind, series.decision.name, series.decision.action)
                if key in self._last and self._last[key].began_at_s == series.began_at_s:
                    del self._last[key]
                log.debug("an event was not written", why=str(answer))


def in_turns(decisions: Iterable[ReportedDecision]) -> Iterator[ReportedDecision]:
    """Decisions in turns of the namespaces of their objects."""
    by_namespace: defaultdict[str, list[ReportedDecision]] = defaultdict(list)
    for each in decisions:
        by_namespace[event_namespace(each)].append(each)
    turns = chain.from_iterable(zip_longest(*(each for _, each in sorted(by_namespace.items()))))
    return (each for each in turns if each is not None)


def _is_again(before: EventSeries, decision: ReportedDecision, at_s: float) -> bool:
    """Whether this repeats the last decision. The figures behind a reason change every cycle and are not compared."""
    was = before.decision
    if (was.happened, was.reason.code, was.is_warning) != (
        decision.happened,
        decision.reason.code,
        decision.is_warning,
    ):
        return False
    return was.note == decision.note or (decision.action == "Placing" and at_s - before.began_at_s < RENOTED_AFTER_S)


def event_name(series: EventSeries) -> str:
    decision = series.decision
    content = f"{series.uid}{decision.action}{decision.reason.code}{series.began_at_s}".encode()
    return f"{decision.name.rpartition('/')[2][:200]}.{hashlib.sha256(content).hexdigest()[:16]}"


def event_namespace(decision: ReportedDecision) -> str:
    """Namespace of the object; for cluster-scoped objects the API server accepts Events only in `default`.

    An Event of a namespace is in it, so that whoever reads its Events reads this one, too.
    """
    return decision.name if decision.kind == NAMESPACE else decision.name.rpartition("/")[0] or "default"


def event_write(series: EventSeries, epoch: int, instance: str) -> Write:
    decision = series.decision
    inside, _, name = decision.name.rpartition("/")
    namespace = event_namespace(decision)
    inside = namespace if decision.kind == NAMESPACE else inside
    version, kind = _REGARDED.get(decision.kind, (API_VERSION, decision.kind))
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
            "apiVersion": version,
            "kind": kind,
            **({"namespace": inside} if inside else {}),
            "name": name,
            **({"uid": series.uid} if series.uid else {}),
        },
        "reportingController": REPORTER,
        "reportingInstance": instance[:128],
    }
    return Write("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body)


def series_write(series: EventSeries, epoch: int) -> Write:
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
