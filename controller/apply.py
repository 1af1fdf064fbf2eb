"""Application of a plan, phase by phase; steps that depend on a failed step are skipped."""

from cluster.plans import Phase, Plan, Reason, Step
from controller.ports import Outcome, Undone, World


def carry_out(world: World, plan: Plan) -> Outcome:
    """Apply a plan phase by phase; the steps of a phase may be applied concurrently.

    A failed step is not retried: the next cycle observes the actual state. Steps on a node, pod or service of a failed
    step are skipped, because they were planned on its success. A whole phase with a skipped step is not started. One
    that fails halfway is left to the next cycle, which completes it, or rolls it back after a deadline
    (gang_rollback.py): one lost write race is no reason to stop a hundred other pods.
    """
    done: list[Step] = []
    undone: list[Undone] = []
    for phase in plan.phases:
        kept, lost = _carry_out_phase(world, phase, {touched for u in undone for touched in u.step.action.touches()})
        done += kept
        undone += lost
    return Outcome(tuple(done), tuple(undone))


def _carry_out_phase(world: World, phase: Phase, failed: set[str]) -> tuple[list[Step], list[Undone]]:
    sound = [step for step in phase.steps if not failed & step.action.touches()]
    undone = [Undone(step, _skipped(step, failed)) for step in phase.steps if failed & step.action.touches()]
    if phase.whole and undone:
        return [], undone + [
            Undone(step, Reason("NotWhole", f"{phase.name} is all or nothing, and one of its steps was skipped"))
            for step in sound
        ]
    done = []
    for step, error in zip(sound, world.apply([step.action for step in sound]), strict=True):
        if error is None:
            done.append(step)
        else:
            undone.append(Undone(step, Reason("ActionFailed", str(error))))
    return done, undone


def _skipped(step: Step, failed: set[str]) -> Reason:
    return Reason("Skipped", f"an earlier step on {', '.join(sorted(failed & step.action.touches()))} failed")
