"""Pods that wait because of their ResourceClaims, with the reason."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cluster.plans import Plan, Reason, Unplaced
from cluster.snapshot import Snapshot
from controller.ports import Brain


@dataclass(frozen=True, slots=True)
class TellsOfClaims:
    """A brain that also says of pods that wait for Tonnage why their claims keep them out of the plan."""

    brain: Brain
    reasons: Callable[[], Mapping[str, Reason]]
    """By pod; also of pods that are not Tonnage's."""
    is_ours: Callable[[str], bool]

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        plan = self.brain.plan(snapshot, deadline_s)
        waiting = [(pod, why) for pod, why in sorted(self.reasons().items()) if self.is_ours(pod)]
        return replace(plan, unplaced=(*plan.unplaced, *(Unplaced(f"Pod/{pod}", why) for pod, why in waiting)))
