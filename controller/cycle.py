"""One cycle of the loop: observe, decide, guard, apply, report."""

from dataclasses import dataclass

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.apply import carry_out
from controller.brain import Brain
from controller.guard import Limits, guard
from controller.world import Outcome, World


@dataclass(frozen=True, slots=True, eq=False)
class Cycle:
    """What one cycle saw, wanted and did: the record for support bundles and replay."""

    snapshot: Snapshot
    plan: Plan
    """The guarded plan: what was struck out stands in `plan.refused`."""
    outcome: Outcome

    @property
    def is_quiet(self) -> bool:
        """Nothing was planned: the world is as the deciders want it, or as near as they can bring it."""
        return not self.plan.actions


def run_cycle(world: World, brain: Brain, limits: Limits, deadline_s: float) -> Cycle:
    """One turn. Raises ObservationError when the world cannot be seen; then nothing was decided."""
    snapshot = world.observe()
    plan = guard(snapshot, brain.plan(snapshot, deadline_s), limits)
    outcome = carry_out(world, plan)
    world.report(plan, outcome)
    return Cycle(snapshot, plan, outcome)
