"""Carrying a plan out: phase by phase, and nothing on top of something that failed."""

from cluster.plans import Phase, Plan, Reason, Step
from controller.ports import Outcome, Undone, World


def carry_out(world: World, plan: Plan) -> Outcome:
    """Apply a plan phase by phase; the steps of a phase may happen together.

    A step that fails is not retried: the next cycle sees reality. Steps that touch a node, pod or service that a failed
    step touched are skipped, for they were planned on its success. A whole phase of which a step must be skipped is not
    begun. One that breaks halfway is left to the next cycle, which completes it, or takes it back when that does not
    come about in time (gang_rollback.py): a write that lost a race is no reason to stop a hundred others.
    """
    done: list[Step] = []
    undone: list[Undone] = []
    for phase in plan.phases:
        kept, lost = _carry_out_phase(world, phase, {touched for u in undone for touched in u.step.action.touches()})
        done += kept
        undone += lost
    return Outcome(tuple(done), tuple(undone))


def _carry_out_phase(world: World, phase: Phase, spoilt: set[str]) -> tuple[list[Step], list[Undone]]:
    sound = [step for step in phase.steps if not spoilt & step.action.touches()]
    undone = [Undone(step, _skipped(step, spoilt)) for step in phase.steps if spoilt & step.action.touches()]
    if phase.whole and undone:
        return [], undone + [Undone(step, Reason("NotWhole", f"{phase.name} cannot be whole")) for step in sound]
    done = []
    for step, error in zip(sound, world.apply([step.action for step in sound]), strict=True):
        if error is None:
            done.append(step)
        else:
            undone.append(Undone(step, Reason("ActionFailed", str(error))))
    return done, undone


def _skipped(step: Step, spoilt: set[str]) -> Reason:
    return Reason("Skipped", f"an earlier step on {', '.join(sorted(spoilt & step.action.touches()))} failed")
