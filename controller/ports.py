"""The border to a cluster: what can be seen of it and done to it. Kubernetes is one world, the simulator another."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.actions import Action
from cluster.errors import ActionError
from cluster.plans import Plan, Reason, Step
from cluster.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Undone:
    """A step that was allowed and yet is not so in the world: it failed or was skipped."""

    step: Step
    reason: Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan, step by step."""

    done: tuple[Step, ...] = ()
    undone: tuple[Undone, ...] = ()


class World(Protocol):
    """A cluster that can be watched and changed. One contract test suite runs against every implementation."""

    def observe(self) -> Snapshot:
        """The whole picture now. Raises ObservationError when it cannot be had: a half picture is never planned on."""
        ...

    def apply(self, actions: Sequence[Action]) -> Sequence[ActionError | None]:
        """Make these so and read them back; they do not depend on each other and may happen together.

        Answers in the same order: None for one that is so, else why not; then that one has changed nothing. A world
        may decline a Move: Kubernetes cannot.
        """
        ...

    def report(self, plan: Plan, outcome: Outcome) -> None:
        """Tell people: what was done and why, what was not and why."""
        ...


class Brain(Protocol):
    """Same snapshot and seed, same plan, whoever thinks."""

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        """A plan for this snapshot, at most `deadline_s` from now."""
        ...


PLANNED_LOCALLY = "PlannedLocally"
"""Code of a plan's note: the brain that should have made it was not available."""
