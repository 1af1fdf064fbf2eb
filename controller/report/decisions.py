"""What there is to say of a plan: one thing for each decision, about the object that it is of."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cluster.actions import Action, Bind, Evict, Move, Scale
from cluster.plans import Plan, Reason
from cluster.snapshot import Snapshot
from controller.ports import Outcome, Undone


@dataclass(frozen=True, slots=True)
class Said:
    """One decision about one object."""

    kind: str
    name: str
    """`namespace/name`; `name` of what has no namespace."""
    action: str
    """What was attempted: `Binding`, `Evicting`, `Scaling`, `Placing`, of a whole gang `Starting`, `Stopping`; of a
    PowerDomain `Keeping` its budget, `Accepting` it, `Watching` a device."""
    reason: Reason
    is_warning: bool = False


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
    by_gang: dict[tuple[str, str], tuple[list[Action], list[Undone]]] = {}
    for step in outcome.done:
        if key := _of_gang(step.action, gang_of):
            by_gang.setdefault(key, ([], []))[0].append(step.action)
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
            yield Said(kind, name, "Placing", unplaced.reason, is_warning=True)


def _of_gang(action: Action, gang_of: GangOf) -> tuple[str, str] | None:
    match action:
        case Bind():
            gang, deed = gang_of(action.pod), "Starting"
        case Evict():
            gang, deed = gang_of(action.pod), "Stopping"
        case _:
            return None
    return (gang, deed) if gang else None


def _said_of_gang(gang: str, action: str, done: Sequence[Action], undone: Sequence[Undone]) -> Said:
    nodes = Counter(each.node for each in done if isinstance(each, Bind | Evict))
    where = ", ".join(f"{node} ({count})" for node, count in sorted(nodes.items()))
    if not undone:
        code = "Started" if action == "Starting" else "Stopped"
        return Said("Gang", gang, action, Reason(code, f"{len(done)} members on {where}"))
    first = undone[0].reason
    words = f"{len(undone)} of {len(done) + len(undone)} members failed, the first because {first.words}"
    return Said("Gang", gang, action, Reason(first.code, words), is_warning=True)


def _said(action: Action, reason: Reason, *, is_warning: bool) -> Said:
    match action:
        case Bind():
            where = f"{action.node}" + (f", devices {list(action.devices)}" if action.devices else "")
            return Said("Pod", action.pod, "Binding", _placed(reason, where, is_warning), is_warning)
        case Evict() | Move():
            return Said("Pod", action.pod, "Evicting", reason, is_warning)
        case Scale():
            return Said("ModelService", action.service, "Scaling", reason, is_warning)


def _placed(reason: Reason, where: str, is_warning: bool) -> Reason:
    return reason if is_warning else Reason(reason.code, f"on {where}: {reason.words}")
