"""Events (events.k8s.io) about decisions, shown by `kubectl describe`. Best effort: the loop never waits for them."""

import asyncio
import hashlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from cluster.actions import PREEMPTED, Action, SeatChange
from cluster.clock import Clock
from cluster.errors import ActionError, Mistake
from cluster.plans import Plan, Reason, Step
from cluster.snapshot import Snapshot
from controller.api import conditions, foreign_kinds, kinds, labels, validation
from controller.api.notation import microtime
from controller.deciders.closing import PODS_REFUSED
from controller.fair_shares import Shares, in_turns
from controller.kube.request import MERGE_PATCH
from controller.kube.sender import Applier, Write
from controller.objects.own_objects import by_object
from controller.ports import Outcome, Undone

NO_EVENT = ("AwaitsPod", "DeadlinePassed", "WorkUsedUp")
"""Codes of workloads that wait without an Event: there is no object yet that it could refer to, or they had no turn in
this plan and are tried in the next, so that there is nothing to say of them."""
UNPLACED = "FailedScheduling"
"""Event reason of an unplaced workload, the same as other schedulers use, so that selectors and alerts find it."""


@dataclass(frozen=True, slots=True)
class ReportedDecision:
    """Decision about one object, in the form of an Event."""

    kind: str
    name: str
    """`namespace/name`; `name` for a kind that is not namespaced."""
    action: str
    """Attempted action: an action's `attempt` (`Binding`, `Evicting`, `Moving`, `Scaling`), or `Placing`; for a whole
    gang `Starting` or `Stopping`; for a PowerDomain `Keeping` its budget, `Accepting` it, `Watching` a device."""
    reason: Reason
    """Reason of the decision or of the failure."""
    is_warning: bool = False
    event: str = ""
    """Reason of the Event, as a past participle or failure: `Placed`, `FailedBinding`. Empty: the code of `reason`,
    which for a PowerDomain's conditions is what happened."""
    where: str = ""
    """Place or manner: `on node-7, devices [0, 1]`."""

    @property
    def happened(self) -> str:
        return self.event or self.reason.code

    @property
    def note(self) -> str:
        """Text of the Event: where, and why; includes the reason's code if the Event's reason differs from it."""
        why = f"{self.reason.code}: {self.reason.words}" if self.event else self.reason.words
        return f"{self.where}; {why}" if self.where else why


GangOf = Callable[[str], str]
"""Function from a pod to its gang, both `namespace/name`; empty if the pod has none."""


def gangs_of(snapshot: Snapshot) -> GangOf:
    pods = snapshot.pods

    def gang_of(pod: str) -> str:
        row = pods.names.row(pod)
        return "" if row is None or pods.gang[row] < 0 else snapshot.gangs[int(pods.gang[row])].name

    return gang_of


def decisions_of(plan: Plan, outcome: Outcome, gang_of: GangOf = lambda _: "") -> Iterator[ReportedDecision]:
    """One decision for each step, done or not; one for each gang started or stopped, regardless of its size; and one
    for each unplaced workload."""
    by_gang: dict[tuple[str, str], tuple[list[Step], list[Undone]]] = {}
    for step in outcome.done:
        if key := _of_gang(step.action, gang_of):
            by_gang.setdefault(key, ([], []))[0].append(step)
        else:
            yield _step_decision(step.action, step.reason, is_warning=False)
    for undone in outcome.undone:
        if key := _of_gang(undone.step.action, gang_of):
            by_gang.setdefault(key, ([], []))[1].append(undone)
        else:
            yield _step_decision(undone.step.action, undone.reason, is_warning=True)
    for (gang, action), (done, not_done) in by_gang.items():
        yield _gang_decision(gang, action, done, not_done)
    for finding in plan.findings:
        kind, _, name = finding.about.partition("/")
        if finding.reason.code == PODS_REFUSED:
            yield ReportedDecision(kind, name, "HoldingBack", finding.reason, is_warning=True, event="HeldBack")
    for unplaced in plan.unplaced:
        kind, _, name = unplaced.workload.partition("/")
        kind, name = foreign_kinds.gang_object(name) if kind == "Gang" else (kind, name)
        if unplaced.reason.code not in NO_EVENT:
            yield ReportedDecision(kind, name, "Placing", unplaced.reason, is_warning=True, event=UNPLACED)


def of_whole_services(decisions: Iterable[ReportedDecision], snapshot: Snapshot) -> Iterator[ReportedDecision]:
    """The decisions, of which those about a service's pool for a phase are about the service."""
    whole = {service.name: service.part_of for service in snapshot.services if service.part_of}
    return (replace(d, name=whole[d.name]) if d.kind == "ModelService" and d.name in whole else d for d in decisions)


def refusals_of(snapshot: Snapshot, mistakes: Iterable[Mistake], plan: Plan) -> Iterator[ReportedDecision]:
    """One decision for each object that is refused for what is written in it; a pod that runs is not.

    mistakes: of the whole cluster. plan: refuses services for what only planning finds.
    """
    found = {about: validation.words_of(wrong) for about, wrong in by_object(mistakes).items()}
    for service in plan.services:
        if service.refusal is not None and service.refusal.code == conditions.BAD_INPUT:
            found.setdefault(f"ModelService/{service.service}", service.refusal.words)
    for about, words in sorted(found.items()):
        kind, _, name = about.partition("/")
        if kind == "Pod" and snapshot.pods.names.row(name) is not None:
            continue
        yield ReportedDecision(kind, name, "Accepting", Reason(conditions.BAD_INPUT, words), is_warning=True)


def _of_gang(action: Action, gang_of: GangOf) -> tuple[str, str] | None:
    """Gang of the pod that an action starts or stops, and `Starting` or `Stopping`; None for other actions."""
    match action.seat_changes:
        case (SeatChange(node_before=None) as change,):
            attempt = "Starting"
        case (SeatChange(node_after=None) as change,):
            attempt = "Stopping"
        case _:
            return None
    gang = gang_of(change.pod)
    return (gang, attempt) if gang else None


def _gang_decision(gang: str, action: str, done: Sequence[Step], undone: Sequence[Undone]) -> ReportedDecision:
    if undone:
        first = undone[0].reason
        words = f"{len(undone)} of {len(done) + len(undone)} members failed; the first: {first.words}"
        return ReportedDecision(
            *foreign_kinds.gang_object(gang),
            action,
            Reason(first.code, words),
            is_warning=True,
            event=f"Failed{action}",
        )
    seats = (change for step in done for change in step.action.seat_changes)
    nodes = Counter(seat.node_after or seat.node_before for seat in seats)
    where = ", ".join(f"{node} ({count})" for node, count in sorted(nodes.items()))
    why = done[0].reason
    event = "Started" if action == "Starting" else PREEMPTED if why.code == PREEMPTED else "Stopped"
    return ReportedDecision(
        *foreign_kinds.gang_object(gang), action, why, event=event, where=f"{len(done)} members on {where}"
    )


def _step_decision(action: Action, reason: Reason, *, is_warning: bool) -> ReportedDecision:
    kind, _, name = action.subject.partition("/")
    if is_warning:
        return ReportedDecision(kind, name, action.attempt, reason, is_warning=True, event=f"Failed{action.attempt}")
    return ReportedDecision(kind, name, action.attempt, reason, event=action.verb(reason.code), where=action.sentence)


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
"""Writes of Events about unplaced workloads, per minute and at once, half of them for one namespace. Whoever creates
pods decides how many wait, and a new leader remembers none of what was said; each write costs as much as a bind."""
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
    **{kind.called: (kind.api_versions[0], kind.name) for kind in foreign_kinds.FOREIGN_KINDS},
    **{kind.name: (kind.api_version, kind.name) for kind in kinds.KINDS},
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

    def is_again(self, decision: ReportedDecision, at_s: float) -> bool:
        """Whether this repeats the last decision. The figures behind a reason change every cycle and do not count."""
        was, now = ((each.happened, each.reason.code, each.is_warning) for each in (self.decision, decision))
        is_soon = decision.action == "Placing" and at_s - self.began_at_s < RENOTED_AFTER_S
        return was == now and (is_soon or self.decision.note == decision.note)

    def again(self, at_s: float) -> "EventSeries":
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
        self._waiting = Shares(WAITING_AT_ONCE, per_s=WAITING_PER_MINUTE / 60.0)
        self.lost = 0

    def say(self, several: Iterable[ReportedDecision]) -> None:
        """Queue new decisions, and due counts of repeated ones; called in the event loop, returns immediately.

        Of unplaced workloads and refused objects only so many Events are written in a minute, in turns of their
        namespaces. The others are counted in an Event of their namespace, until their own follows.
        """
        at_s = self._wall_clock()
        waiting: list[ReportedDecision] = []
        for decision in several:
            if decision.event == UNPLACED or decision.happened == conditions.BAD_INPUT:
                waiting.append(decision)
            else:
                self._say(decision, at_s)
        untold: Counter[str] = Counter()
        by_namespace: defaultdict[str, list[ReportedDecision]] = defaultdict(list)
        for decision in waiting:
            by_namespace[event_namespace(decision)].append(decision)
        for decision in in_turns(each for _, each in sorted(by_namespace.items())):
            if not self._say(decision, at_s, FOR_NAMESPACES):
                untold[event_namespace(decision)] += 1
        for namespace, count in sorted(untold.items()):
            words = f"{count} more wait or are refused here, of which nothing was said yet: see `tonnage explain`"
            why = Reason("ManyWait", words)
            several_wait = ReportedDecision(NAMESPACE, namespace, "Placing", why, is_warning=True, event=UNPLACED)
            self._say(several_wait, at_s, 0.0)

    def _say(self, decision: ReportedDecision, at_s: float, kept: float | None = None) -> bool:
        """Queue one decision. False where nothing was said of it yet, and nothing may be now.

        kept: writes of the allowance that are left for others; None: it needs none of the allowance.
        """
        uid = self._uid_of(decision.kind, decision.name)
        if uid is None and not decision.where:
            return True
        uid = uid or ""  # what was done to an object that is gone since, as a pod stopped without grace, is told
        key = (decision.kind, decision.name, decision.action)
        before = self._last.get(key)

        # What counts the others of a namespace is not of its share.
        whose = "" if decision.kind == NAMESPACE else event_namespace(decision)

        def may_write() -> bool:
            return kept is None or self._waiting.take(whose, at_s, kept)

        is_known = before is not None and before.uid == uid
        if before is not None and is_known and before.is_again(decision, at_s):
            series = before.again(at_s)
            self._last[key] = self._queued(series) if series.is_due() and may_write() else series
        elif may_write():
            self._last[key] = self._queued(EventSeries(decision, uid, at_s, at_s))
        else:
            return is_known
        self._last.move_to_end(key)
        if len(self._last) > REMEMBERED:
            self._last.popitem(last=False)
        return True

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
    version, kind = _REGARDED.get(decision.kind, (labels.API_VERSION, decision.kind))
    body: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": event_name(series),
            "namespace": namespace,
            "annotations": {labels.EPOCH_ANNOTATION: str(epoch)},
        },
        "eventTime": microtime(series.began_at_s),
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
        "metadata": {"annotations": {labels.EPOCH_ANNOTATION: str(epoch)}},
        "series": {"count": series.count, "lastObservedTime": microtime(series.last_at_s)},
    }
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/{event_name(series)}"
    return Write("PATCH", path, body, MERGE_PATCH)
