"""Replay of recorded snapshots through the present deciders, with the differences of their decisions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from cluster.actions import Action
from cluster.plans import Plan, Step
from controller.guard import Limits, guard
from controller.ports import Brain
from controller.recording.bundle import RecordedCycle
from controller.recording.ring import CycleEntry

CENT = 0.005
"""Dollars per hour; costs that differ by less are equal when printed."""

Key = tuple[str, str]
"""Type of an action, and the pod, service or node that it changes."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Action of both plans on the same object, with different values."""

    before: Step
    after: Step


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """One recorded cycle, with the decisions that would be made now."""

    entry: CycleEntry
    before: Plan
    after: Plan
    added: tuple[Step, ...]
    removed: tuple[Step, ...]
    changed: tuple[Changed, ...]

    @property
    def cost_before(self) -> float:
        """Dollars per hour of the services' planned instances."""
        return _cost(self.before)

    @property
    def cost_after(self) -> float:
        return _cost(self.after)

    @property
    def is_same(self) -> bool:
        """Whether both plans have the same actions at the same cost."""
        acts = self.added or self.removed or self.changed
        return not acts and abs(self.cost_after - self.cost_before) < CENT


def replayed(cycles: Iterable[RecordedCycle], brain: Brain, limits: Limits, deadline_s: float) -> Iterator[Replayed]:
    """The cycles one after the other, through one brain, so that it may keep what it keeps from plan to plan."""
    for cycle in cycles:
        yield compared(cycle, guard(cycle.snapshot, brain.plan(cycle.snapshot, deadline_s), limits))


def compared(cycle: RecordedCycle, after: Plan) -> Replayed:
    """Comparison of the recorded, guarded plan with another one for the same snapshot."""
    old, new = _by_key(cycle.guarded), _by_key(after)
    return Replayed(
        cycle.entry,
        cycle.guarded,
        after,
        added=tuple(step for key, step in new.items() if key not in old),
        removed=tuple(step for key, step in old.items() if key not in new),
        changed=tuple(
            Changed(old[key], step) for key, step in new.items() if key in old and old[key].action != step.action
        ),
    )


def unplaced_of(plan: Plan) -> Mapping[str, str]:
    """Reason code, by workload."""
    return {each.workload: each.reason.code for each in plan.unplaced}


def _by_key(plan: Plan) -> dict[Key, Step]:
    return {key_of(step.action): step for step in plan.steps()}


def key_of(action: Action) -> Key:
    """Key of an action, whose first field names the object that it changes."""
    about: Any = getattr(action, fields(action)[0].name)
    return type(action).__name__, str(about)


def _cost(plan: Plan) -> float:
    return sum(service.cost_per_hour for service in plan.services)
