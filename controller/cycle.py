"""One cycle of the control loop: observe, decide, guard, apply, report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from cluster.clock import Clock
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.apply import carry_out
from controller.guard import Limits, guard
from controller.ports import Brain, Outcome, World

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
