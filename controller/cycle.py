"""One cycle of the loop: observe, decide, guard, apply, report."""

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
    """What one cycle saw, wanted and did: the record for support bundles and replay."""

    snapshot: Snapshot
    plan: Plan
    """The guarded plan: what was struck out stands in `plan.refused`."""
    outcome: Outcome
    stage_s: Mapping[str, float] = field(default_factory=dict)
    """How long each stage of `STAGES` took, seconds."""
    wanted: Plan = field(default_factory=Plan)
    """The plan of the brain, before the guard."""

    @property
    def is_quiet(self) -> bool:
        """Nothing was planned: the world is as the deciders want it, or as near as they can bring it."""
        return not self.plan.actions


def stopped() -> float:
    """A clock that stands still: for whoever does not ask how long things take."""
    return 0.0


def run_cycle(world: World, brain: Brain, limits: Limits, deadline_s: float, clock: Clock = stopped) -> Cycle:
    """One turn. Raises ObservationError when the world cannot be seen; then nothing was decided.

    clock: monotonic seconds, for `Cycle.stage_s` alone; nothing is decided by it.
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
