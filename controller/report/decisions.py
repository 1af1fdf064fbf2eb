"""What there is to say of a plan: one thing for each decision, about the object that it is of."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cluster.actions import PREEMPTED, Action, SeatChange
from cluster.plans import Plan, Reason, Step
from cluster.snapshot import Snapshot
from controller.ports import Outcome, Undone

UNPLACED = "FailedScheduling"
"""Event reason of a workload without a place: the one of every scheduler, so that selectors and alerts find it."""


@dataclass(frozen=True, slots=True)
class Said:
    """One decision about one object, as an Event shows it."""

    kind: str
    name: str
    """`namespace/name`; `name` of what has no namespace."""
    action: str
    """What was attempted: an action's `attempt` (`Binding`, `Evicting`, `Moving`, `Scaling`), `Placing`, of a whole
    gang `Starting`, `Stopping`; of a PowerDomain `Keeping` its budget, `Accepting` it, `Watching` a device."""
    reason: Reason
    """Why it was decided, or why it failed."""
    is_warning: bool = False
    event: str = ""
    """What happened, the Event's reason: `Placed`, `FailedBinding`. Empty: the code of `reason`, where that is itself
    what happened, as with the conditions of a PowerDomain."""
    where: str = ""
    """Where or how it happened: `on node-7, devices [0, 1]`."""

    @property
    def happened(self) -> str:
        return self.event or self.reason.code

    @property
    def note(self) -> str:
        """What happened where, and why: with the reason's code where the Event's reason is another word."""
        why = f"{self.reason.code}: {self.reason.words}" if self.event else self.reason.words
        return f"{self.where}; {why}" if self.where else why


GangOf = Callable[[str], str]
"""The gang of a pod, `namespace/name` both; empty for a pod of none."""


def gangs_of(snapshot: Snapshot) -> GangOf:
    pods = snapshot.pods

    def gang_of(pod: str) -> str:
        row = pods.names.row(pod)
        return "" if row is None or pods.gang[row] < 0 else snapshot.gangs[int(pods.gang[row])].name

    return gang_of


def said_of(plan: Plan, outcome: Outcome, gang_of: GangOf = lambda _: "") -> Iterator[Said]:
    """One for each decision: a step that was done or was not, a gang that was started or stopped however many pods it
    has, and a workload that has no place."""
    by_gang: dict[tuple[str, str], tuple[list[Step], list[Undone]]] = {}
    for step in outcome.done:
        if key := _of_gang(step.action, gang_of):
            by_gang.setdefault(key, ([], []))[0].append(step)
        else:
            yield _said(step.action, step.reason, is_warning=False)
    for undone in outcome.undone:
        if key := _of_gang(undone.step.action, gang_of):
            by_gang.setdefault(key, ([], []))[1].append(undone)
        else:
            yield _said(undone.step.action, undone.reason, is_warning=True)
    for (gang, action), (done, not_done) in by_gang.items():
        yield _said_of_gang(gang, action, done, not_done)
    for unplaced in plan.unplaced:
        kind, _, name = unplaced.workload.partition("/")
        if unplaced.reason.code != "AwaitsPod":  # there is no object yet that it could be said of
            yield Said(kind, name, "Placing", unplaced.reason, is_warning=True, event=UNPLACED)


def _of_gang(action: Action, gang_of: GangOf) -> tuple[str, str] | None:
    """The gang that an action starts or stops a member of, and which of both it does."""
    match action.seat_changes:
        case (SeatChange(node_before=None) as change,):
            deed = "Starting"
        case (SeatChange(node_after=None) as change,):
            deed = "Stopping"
        case _:
            return None
    gang = gang_of(change.pod)
    return (gang, deed) if gang else None


def _said_of_gang(gang: str, action: str, done: Sequence[Step], undone: Sequence[Undone]) -> Said:
    if undone:
        first = undone[0].reason
        words = f"{len(undone)} of {len(done) + len(undone)} members failed, the first because {first.words}"
        return Said("Gang", gang, action, Reason(first.code, words), is_warning=True, event=f"Failed{action}")
    seats = (change for step in done for change in step.action.seat_changes)
    nodes = Counter(seat.node_after or seat.node_before for seat in seats)
    where = ", ".join(f"{node} ({count})" for node, count in sorted(nodes.items()))
    why = done[0].reason
    event = "Started" if action == "Starting" else PREEMPTED if why.code == PREEMPTED else "Stopped"
    return Said("Gang", gang, action, why, event=event, where=f"{len(done)} members on {where}")


def _said(action: Action, reason: Reason, *, is_warning: bool) -> Said:
    kind, _, name = action.subject.partition("/")
    if is_warning:
        return Said(kind, name, action.attempt, reason, is_warning=True, event=f"Failed{action.attempt}")
    return Said(kind, name, action.attempt, reason, event=action.verb(reason.code), where=action.sentence)
