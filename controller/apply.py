"""Carrying a plan out: in order, gangs whole, and nothing on top of something that failed."""

from collections.abc import Iterable
from typing import assert_never

from cluster.actions import Action, Bind, Evict, Move, Scale
from cluster.errors import ActionError
from cluster.plans import Phase, Plan, Reason, Step
from controller.world import Outcome, Undone, World


def carry_out(world: World, plan: Plan) -> Outcome:
    """Apply the steps of a plan one by one.

    A step that fails is not retried: the next cycle sees reality. Steps that touch a node, pod or service that a failed
    step touched are skipped, for they were planned on its success. A whole phase that breaks is taken back.
    """
    done: list[Step] = []
    undone: list[Undone] = []
    spoilt: set[str] = set()
    for phase in plan.phases:
        kept, lost = _carry_out_phase(world, phase, spoilt)
        done += kept
        undone += lost
        spoilt.update(*(touches(u.step.action) for u in lost))
    return Outcome(tuple(done), tuple(undone))


def _carry_out_phase(world: World, phase: Phase, spoilt: set[str]) -> tuple[list[Step], list[Undone]]:
    done: list[Step] = []
    undone: list[Undone] = []
    spoilt = set(spoilt)
    for step in phase.steps:
        try:
            if broken := spoilt & touches(step.action):
                raise ActionError(f"skipped: an earlier step on {', '.join(sorted(broken))} failed")
            world.apply(step.action)
        except ActionError as error:
            undone.append(Undone(step, Reason("ActionFailed", str(error))))
            if phase.whole:
                return [], undone + _take_back(world, done, phase)
            spoilt |= touches(step.action)
        else:
            done.append(step)
    return done, undone


def _take_back(world: World, done: Iterable[Step], phase: Phase) -> list[Undone]:
    """Undo what was done of a phase that must be whole, last first. What cannot be undone is said, too."""
    taken_back = []
    for step in reversed(list(done)):
        words = f"taken back: {phase.name} could not be completed"
        try:
            for action in inverse(step.action):
                world.apply(action)
        except ActionError as error:
            words = f"could not be taken back after {phase.name} broke: {error}"
        taken_back.append(Undone(step, Reason("TakenBack", words)))
    return taken_back


def inverse(action: Action) -> tuple[Action, ...]:
    """The actions that restore what was before; an eviction has none, its devices are anybody's since."""
    match action:
        case Bind():
            return (Evict(action.pod, action.node),)
        case Move():
            return (Evict(action.pod, action.node),)
        case Evict() | Scale():
            return ()
        case _:
            assert_never(action)


def touches(action: Action) -> frozenset[str]:
    """The nodes, pods and services that an action changes, as `Kind/name`."""
    match action:
        case Bind() | Evict():
            return frozenset((f"Pod/{action.pod}", f"Node/{action.node}"))
        case Move():
            return frozenset((f"Pod/{action.pod}", f"Node/{action.from_node}", f"Node/{action.node}"))
        case Scale():
            return frozenset((f"ModelService/{action.service}",))
        case _:
            assert_never(action)
