"""One cycle of the control loop: observe, decide, guard, apply phase by phase, report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cluster.actions import Bind
from cluster.clock import Clock
from cluster.plans import Plan, Reason, Step
from cluster.snapshot import Snapshot
from controller.guard import Limits, guard
from controller.ports import Brain, Outcome, Undone, World


def carry_out(world: World, plan: Plan) -> Outcome:
    """Apply a plan phase by phase; the steps of a phase may be applied concurrently.

    A failed step is not retried: the next cycle observes the actual state. Steps on a node, pod or service of a failed
    step are skipped, because they were planned on its success. A failed bind leaves more room than was planned, so only
    steps on its pod are skipped: evictions on its node for other pods need not wait until it succeeds. A whole phase
    with a skipped step is not started. One that fails halfway is left to the next cycle, which completes it, or rolls
    it back after a deadline (gang_rollback.py): one lost write race is no reason to stop a hundred other pods.

    A whole phase asks first, and takes no step where one would fail: pods would be stopped for nothing, or a gang would
    start in part. Where it stops pods for those that it starts, the stops come first, then the starts on their nodes,
    and then the others, each only if those before it succeeded. Where stopped pods hold their devices until they are
    gone, a gang then waits whole for the cycle after that.
    """
    done: list[Step] = []
    undone: list[Undone] = []
    for phase in plan.phases:
        # What is not as planned, to the loss of later steps: all that a failed step touches, of a bind its pod alone.
        failed = {
            name
            for each in (u.step.action for u in undone)
            for name in ((each.subject,) if isinstance(each, Bind) else each.touches())
        }
        sound, lost = [], []
        for step in phase.steps:
            if on := failed & step.action.touches():
                lost.append(Undone(step, Reason("Skipped", f"an earlier step on {', '.join(sorted(on))} failed")))
            else:
                sound.append(step)
        if phase.whole and lost:
            words = f"{phase.name} is all or nothing, and one of its steps was skipped"
            undone += lost + [Undone(step, Reason("NotWhole", words)) for step in sound]
            continue
        stages = list(_stages(sound)) if phase.whole else [sound]
        for number, steps in enumerate(stages):
            if number and lost:
                first = next(each.reason for each in lost if each.reason.code != "NotWhole")
                lost += [
                    Undone(step, Reason("NotWhole", f"{phase.name} is all or nothing: {first.words}")) for step in steps
                ]
                continue
            if phase.whole and (refused := _refused(world, phase.name, steps)):
                lost += refused
                continue
            for step, error in zip(steps, world.apply([step.action for step in steps]), strict=True):
                if error is None:
                    done.append(step)
                else:
                    lost.append(Undone(step, Reason("ActionFailed", str(error))))
        undone += lost
    return Outcome(tuple(done), tuple(undone))


def _refused(world: World, phase: str, steps: Sequence[Step]) -> list[Undone]:
    """All of these steps, with the reasons, where one of them would fail; none where all would be done."""
    stops = any(change.node_before is not None for step in steps for change in step.action.seat_changes)
    code = "StopRefused" if stops else "ActionFailed"
    answers = zip(steps, world.rehearse([step.action for step in steps]), strict=True)
    refused = {id(step): Undone(step, Reason(code, str(error))) for step, error in answers if error}
    if not refused:
        return []
    words = f"{phase} is all or nothing: {next(iter(refused.values())).reason.words}"
    return [refused.get(id(step)) or Undone(step, Reason("NotWhole", words)) for step in steps]


def _stages(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Steps that stop pods, then those that start pods on their nodes, then the rest."""
    emptied = {change.node_before for step in steps for change in step.action.seat_changes} - {None}

    def stage(step: Step) -> int:
        changes = step.action.seat_changes
        if any(change.node_before is not None for change in changes):
            return 0
        return 1 if any(change.node_after in emptied for change in changes) else 2

    for number in range(3):
        if these := [step for step in steps if stage(step) == number]:
            yield these


STAGES = ("observe", "plan", "guard", "apply", "report")


@dataclass(frozen=True, slots=True, eq=False)
class Cycle:
    """Record of one cycle for support bundles and replay: its snapshot, plans and outcome."""

    snapshot: Snapshot
    plan: Plan
    """The plan after the guard; removed steps are in `plan.refused`."""
    outcome: Outcome
    stage_s: Mapping[str, float] = field(default_factory=dict)
    """Duration of each stage of `STAGES`, seconds."""
    wanted: Plan = field(default_factory=Plan)
    """The brain's plan, before the guard."""

    @property
    def is_quiet(self) -> bool:
        """Whether the plan has no actions: the cluster is as wanted, or as close to it as the deciders can get."""
        return not self.plan.actions


def stopped() -> float:
    """Clock that always shows 0, for callers that need no durations."""
    return 0.0


def run_cycle(world: World, brain: Brain, limits: Limits, deadline_s: float, clock: Clock = stopped) -> Cycle:
    """Run one cycle. Raises ObservationError when the cluster cannot be observed; then nothing is decided.

    clock: monotonic seconds, only for `Cycle.stage_s`; decisions do not depend on it.
    """
    marks_s = [clock()]
    snapshot = world.observe()
    marks_s.append(clock())
    wanted = brain.plan(snapshot, deadline_s)
    marks_s.append(clock())
    plan = guard(snapshot, wanted, limits)
    marks_s.append(clock())
    outcome = carry_out(world, plan)
    marks_s.append(clock())
    world.report(plan, outcome)
    marks_s.append(clock())
    took_s = [end - start for start, end in pairwise(marks_s)]
    return Cycle(snapshot, plan, outcome, dict(zip(STAGES, took_s, strict=True)), wanted)
