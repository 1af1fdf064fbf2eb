"""Decisions to report of a plan: one for each action, gang or unplaced workload, with the object it concerns."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from cluster.actions import PREEMPTED, Action, SeatChange
from cluster.errors import Mistake
from cluster.plans import Plan, Reason, Step
from cluster.snapshot import Snapshot
from controller.api.conditions import BAD_INPUT
from controller.api.foreign_kinds import gang_object
from controller.api.validation import words_of
from controller.deciders.closing import PODS_REFUSED
from controller.objects.own_objects import by_object
from controller.ports import Outcome, Undone

NO_EVENT = ("AwaitsPod", "DeadlinePassed", "WorkUsedUp")
"""Codes of workloads that wait without an Event: there is no object yet that it could refer to, or they had no turn in
this plan and are tried in the next, so that there is nothing to say of them."""
UNPLACED = "FailedScheduling"
"""Event reason of an unplaced workload, the same as other schedulers use, so that selectors and alerts find it."""


@dataclass(frozen=True, slots=True)
class ReportedDecision:
    """ReportedDecision about one object, in the form of an Event."""

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
        kind, name = gang_object(name) if kind == "Gang" else (kind, name)
        if unplaced.reason.code not in NO_EVENT:
            yield ReportedDecision(kind, name, "Placing", unplaced.reason, is_warning=True, event=UNPLACED)


def refusals_of(snapshot: Snapshot, mistakes: Iterable[Mistake], plan: Plan) -> Iterator[ReportedDecision]:
    """One decision for each object that is refused for what is written in it; a pod that runs is not.

    mistakes: of the whole cluster. plan: refuses services for what only planning finds.
    """
    found = {about: words_of(wrong) for about, wrong in by_object(mistakes).items()}
    for service in plan.services:
        if service.refusal is not None and service.refusal.code == BAD_INPUT:
            found.setdefault(f"ModelService/{service.service}", service.refusal.words)
    for about, words in sorted(found.items()):
        kind, _, name = about.partition("/")
        if kind == "Pod" and snapshot.pods.names.row(name) is not None:
            continue
        yield ReportedDecision(kind, name, "Accepting", Reason(BAD_INPUT, words), is_warning=True)


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
            *gang_object(gang), action, Reason(first.code, words), is_warning=True, event=f"Failed{action}"
        )
    seats = (change for step in done for change in step.action.seat_changes)
    nodes = Counter(seat.node_after or seat.node_before for seat in seats)
    where = ", ".join(f"{node} ({count})" for node, count in sorted(nodes.items()))
    why = done[0].reason
    event = "Started" if action == "Starting" else PREEMPTED if why.code == PREEMPTED else "Stopped"
    return ReportedDecision(*gang_object(gang), action, why, event=event, where=f"{len(done)} members on {where}")


def _step_decision(action: Action, reason: Reason, *, is_warning: bool) -> ReportedDecision:
    kind, _, name = action.subject.partition("/")
    if is_warning:
        return ReportedDecision(kind, name, action.attempt, reason, is_warning=True, event=f"Failed{action.attempt}")
    return ReportedDecision(kind, name, action.attempt, reason, event=action.verb(reason.code), where=action.sentence)
