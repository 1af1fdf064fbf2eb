"""Carrying a plan out: phase by phase, gangs whole, and nothing on top of something that failed."""

from typing import assert_never

from cluster.actions import Action, Bind, Evict, Move, Scale, SetPowerLease
from cluster.errors import ActionError
from cluster.plans import Phase, Plan, Reason, Step
from controller.world import Outcome, Undone, World


def carry_out(world: World, plan: Plan) -> Outcome:
    """Apply a plan phase by phase; the steps of a phase may happen together.

    A step that fails is not retried: the next cycle sees reality. Steps that touch a node, pod or service that a failed
    step touched are skipped, for they were planned on its success. A whole phase that breaks is taken back.
    """
    done: list[Step] = []
    undone: list[Undone] = []
    for phase in plan.phases:
        kept, lost = _carry_out_phase(world, phase, {touched for u in undone for touched in touches(u.step.action)})
        done += kept
        undone += lost
    return Outcome(tuple(done), tuple(undone))


def _carry_out_phase(world: World, phase: Phase, spoilt: set[str]) -> tuple[list[Step], list[Undone]]:
    sound = [step for step in phase.steps if not spoilt & touches(step.action)]
    undone = [Undone(step, _skipped(step, spoilt)) for step in phase.steps if spoilt & touches(step.action)]
    if phase.whole and undone:
        return [], undone + [Undone(step, Reason("NotWhole", f"{phase.name} cannot be whole")) for step in sound]
    done = []
    for step, error in zip(sound, world.apply([step.action for step in sound]), strict=True):
        if error is None:
            done.append(step)
        else:
            undone.append(Undone(step, Reason("ActionFailed", str(error))))
    if phase.whole and undone:
        return [], undone + _take_back(world, done, phase)
    return done, undone


def _skipped(step: Step, spoilt: set[str]) -> Reason:
    return Reason("Skipped", f"an earlier step on {', '.join(sorted(spoilt & touches(step.action)))} failed")


def _take_back(world: World, done: list[Step], phase: Phase) -> list[Undone]:
    """Undo what was done of a phase that must be whole. What cannot be undone is said, too."""
    back = [(step, action) for step in done for action in inverse(step.action)]
    answers = world.apply([action for _, action in back])
    return [Undone(step, _taken_back(phase, error)) for (step, _), error in zip(back, answers, strict=True)]


def _taken_back(phase: Phase, error: ActionError | None) -> Reason:
    if error is None:
        return Reason("TakenBack", f"taken back: {phase.name} could not be completed")
    return Reason("NotTakenBack", f"could not be taken back after {phase.name} broke: {error}")


def inverse(action: Action) -> tuple[Action, ...]:
    """The actions that restore what was before.

    An eviction has none, its devices are anybody's since; nor has a lease of watts, which ends by itself.
    """
    match action:
        case Bind():
            return (Evict(action.pod, action.node),)
        case Move():
            return (Evict(action.pod, action.node),)
        case Evict() | Scale() | SetPowerLease():
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
        case SetPowerLease():
            # Not `Node/…`: a bind that failed there must not keep watts from being lowered.
            return frozenset((f"PowerLease/{action.node}",))
        case _:
            assert_never(action)
