"""events.k8s.io Events: what `kubectl describe` shows of a decision. Best effort: nobody waits for them."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from cluster.actions import Action, Bind, Evict, Move, Scale, SetPowerLease
from cluster.errors import ActionError
from cluster.plans import Plan, Reason
from controller.api.metadata import API_VERSION
from controller.kube_apply import Applier, Job
from controller.kube_write import Write
from controller.world import Outcome

log = structlog.get_logger(__name__)

REPORTER = "tonnage.dev/controller"
QUEUED = 10_000
"""Events that may wait to be written; what comes on top is lost and counted. Chosen: two full rounds of binds."""
REMEMBERED = 50_000
"""Last words about so many objects are kept, so that what was said is not said again."""
LONGEST_NOTE = 1024
"""events.k8s.io/v1 takes no more."""
AT_A_TIME = 8
"""Events in flight: an Event costs the API server as much as a bind, and binds come first."""


@dataclass(frozen=True, slots=True)
class Said:
    """One decision about one object."""

    kind: str
    name: str
    """`namespace/name`."""
    action: str
    """What was attempted: `Binding`, `Evicting`, `Scaling`, `Placing`."""
    reason: Reason
    is_warning: bool = False


def said_of(plan: Plan, outcome: Outcome) -> Iterator[Said]:
    """One for each step that was done or was not, and for each workload that has no place."""
    for step in outcome.done:
        yield _said(step.action, step.reason, is_warning=False)
    for undone in outcome.undone:
        yield _said(undone.step.action, undone.reason, is_warning=True)
    for unplaced in plan.unplaced:
        kind, _, name = unplaced.workload.partition("/")
        if unplaced.reason.code != "AwaitsPod":  # there is no object yet that it could be said of
            yield Said(kind, name, "Placing", unplaced.reason, is_warning=True)


def _said(action: Action, reason: Reason, *, is_warning: bool) -> Said:
    match action:
        case Bind():
            where = f"{action.node}" + (f", devices {list(action.devices)}" if action.devices else "")
            return Said("Pod", action.pod, "Binding", _placed(reason, where, is_warning), is_warning)
        case Evict() | Move():
            return Said("Pod", action.pod, "Evicting", reason, is_warning)
        case Scale():
            return Said("ModelService", action.service, "Scaling", reason, is_warning)
        case SetPowerLease():
            return Said("Node", action.node, "LeasingWatts", reason, is_warning)


def _placed(reason: Reason, where: str, is_warning: bool) -> Reason:
    return reason if is_warning else Reason(reason.code, f"on {where}: {reason.words}")


class Events:
    """Writes events from a bounded queue, in the event loop."""

    def __init__(
        self, applier: Applier, uid_of: Callable[[str, str], str | None], wall_clock: Callable[[], float], instance: str
    ) -> None:
        """uid_of: of an object by kind and name; None when it is not there. instance: which process says it."""
        self._applier = applier
        self._uid_of = uid_of
        self._wall_clock = wall_clock
        self._instance = instance
        self._queue: asyncio.Queue[Said] = asyncio.Queue(QUEUED)
        self._last: OrderedDict[tuple[str, str, str], tuple[str, str]] = OrderedDict()
        self.lost = 0

    def say(self, several: Iterable[Said]) -> None:
        """Queue what is new; called in the event loop, returns at once."""
        for said in several:
            key, words = (said.kind, said.name, said.action), (said.reason.code, said.reason.words)
            if self._last.get(key) == words:
                continue
            self._last[key] = words
            self._last.move_to_end(key)
            if len(self._last) > REMEMBERED:
                self._last.popitem(last=False)
            try:
                self._queue.put_nowait(said)
            except asyncio.QueueFull:
                self.lost += 1

    async def write(self) -> None:
        """Write what is queued, until cancelled."""
        while True:
            batch = [await self._queue.get()]
            while len(batch) < AT_A_TIME and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            jobs = [Job(f"Event/{n}", write) for n, said in enumerate(batch) if (write := self._write_of(said))]
            failed = [answer for answer in await self._applier.send(jobs) if isinstance(answer, ActionError)]
            if failed:
                self.lost += len(failed)
                log.debug("events were not written", count=len(failed), why=str(failed[0]))

    def _write_of(self, said: Said) -> Write | None:
        uid = self._uid_of(said.kind, said.name)
        return None if uid is None else event_write(said, uid, self._wall_clock(), self._instance)


def event_write(said: Said, uid: str, at_s: float, instance: str) -> Write:
    namespace, _, name = said.name.partition("/")
    instant = datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    told = f"{uid}{said.action}{said.reason.code}{instant}".encode()
    body: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{name[:200]}.{hashlib.sha256(told).hexdigest()[:16]}", "namespace": namespace},
        "eventTime": instant,
        "type": "Warning" if said.is_warning else "Normal",
        "reason": said.reason.code[:128],
        "action": said.action,
        "note": said.reason.words[:LONGEST_NOTE],
        "regarding": {
            "apiVersion": "v1" if said.kind == "Pod" else API_VERSION,
            "kind": said.kind,
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
        "reportingController": REPORTER,
        "reportingInstance": instance[:128],
    }
    return Write("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body)
