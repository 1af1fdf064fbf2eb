"""Ports of the control loop: the cluster as a `World` (Kubernetes or the simulator), and the planner as a `Brain`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.actions import Action
from cluster.errors import ActionError
from cluster.plans import Plan, Reason, Step
from cluster.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Undone:
    """Step that passed the guard but was not applied: it failed or was skipped."""

    step: Step
    reason: Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of applying a plan: the steps that were done and those that were not."""

    done: tuple[Step, ...] = ()
    undone: tuple[Undone, ...] = ()


class World(Protocol):
    """Cluster that can be observed and changed. One contract test suite runs against every implementation."""

    def observe(self) -> Snapshot:
        """Complete snapshot of the cluster. Raises ObservationError if any part is missing: plans need all parts."""
        ...

    def apply(self, actions: Sequence[Action]) -> Sequence[ActionError | None]:
        """Apply these independent actions, possibly concurrently, and read the results back.

        Results in the same order: None for success, otherwise the error; that action then has changed nothing. A world
        may refuse a Move: Kubernetes cannot move pods.
        """
        ...

    def rehearse(self, actions: Sequence[Action]) -> Sequence[ActionError | None]:
        """Whether each of these actions would be accepted as far as known; changes nothing. Results as of `apply`."""
        ...

    def report(self, plan: Plan, outcome: Outcome) -> None:
        """Report to users what was done and what was not, with the reasons."""
        ...


class Brain(Protocol):
    """Planner: in this process or a remote one. The same snapshot and seed give the same plan."""

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        """Plan for this snapshot, made within `deadline_s`."""
        ...
