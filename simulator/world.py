"""Simulated cluster that obeys: the simplest World, for tests, demos and replays of the whole loop."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cluster import changes, errors, nodes, plans, workloads
from cluster.actions import Action, SeatChange
from cluster.snapshot import PENDING, PodTable, Snapshot, device_numbers
from controller.deciders.closing import with_half_started_noted
from controller.ports import Outcome

Fault = Callable[[Action], str | None]
"""Reason why an action fails in this world; None lets it happen."""


class SimulatedWorld:
    """Holds one snapshot, changes it as the actions require, and refuses what no real node could do.

    It checks physical truth on its own (devices exist and are not over-committed, pods are where the action states), so
    that an error of the deciders or the guard shows here.
    """

    def __init__(self, snapshot: Snapshot, fault: Fault = lambda _: None) -> None:
        self._now = snapshot
        self._fault = fault
        self.reports: list[tuple[plans.Plan, Outcome]] = []

    def observe(self) -> Snapshot:
        self._now = with_half_started_noted(self._now)
        return self._now

    def apply(self, actions: Sequence[Action]) -> list[errors.ActionError | None]:
        return [self._error_of(action) for action in actions]

    def rehearse(self, actions: Sequence[Action]) -> list[errors.ActionError | None]:
        """The faults of stops; a start fails when it is tried."""
        stops = [any(change.node_before is not None for change in each.seat_changes) for each in actions]
        why = [self._fault(each) if asked else None for each, asked in zip(actions, stops, strict=True)]
        return [
            errors.ActionError(f"{each}: {said}") if said else None for each, said in zip(actions, why, strict=True)
        ]

    def _error_of(self, action: Action) -> errors.ActionError | None:
        try:
            if why := self._fault(action):
                raise errors.ActionError(f"{action}: {why}")
            for change in action.seat_changes:
                row = self._now.pods.names.row(change.pod)
                if row is None:
                    raise errors.ActionError(f"{action}: there is no such pod")
                node = int(self._now.pods.node[row])
                runs_on = None if node == PENDING else self._now.nodes.names[node]
                if runs_on != change.node_before:
                    raise errors.ActionError(f"{action}: the pod runs on {runs_on}")
            after = self._now.after([action])
            for change in action.seat_changes:
                if change.node_after is not None:
                    self._check_node(after, action, change, change.node_after)
            self._now = after
        except errors.ActionError as error:
            return error
        return None

    def report(self, plan: plans.Plan, outcome: Outcome) -> None:
        self.reports.append((plan, outcome))

    def pass_time(self, for_s: float) -> None:
        self._now = replace(self._now, at_s=self._now.at_s + for_s)

    def arrive(self, pods: PodTable, gangs: Sequence[workloads.Gang] = ()) -> None:
        """Adds new pending pods. gangs: new ones; the pods' gang numbers continue those that exist."""
        self._now = replace(self._now, pods=self._now.pods.plus(pods), gangs=(*self._now.gangs, *gangs))

    def depart(self, names: Iterable[str]) -> None:
        """Ends pods and frees what they held."""
        rows = [row for name in names if (row := self._now.pods.names.row(name)) is not None]
        self._now = replace(self._now, pods=changes.without_pods(self._now.pods, rows))

    def lose(self, node: str) -> tuple[str, ...]:
        """Loses a node: no pod starts there, and its pods wait for a place. Returns those pods' names."""
        row, pods = self._node(node), self._now.pods
        lost = pods.node == row
        devices = np.where(lost, 0, pods.devices)
        self._set_schedulable(row, to=False)
        self._now = replace(self._now, pods=replace(pods, node=np.where(lost, PENDING, pods.node), devices=devices))
        return tuple(pods.names[int(pod)] for pod in np.flatnonzero(lost))

    def regain(self, node: str) -> None:
        """Returns a failed node to service, empty."""
        self._set_schedulable(self._node(node), to=True)

    def demand(self, rates_per_s: Mapping[str, float]) -> None:
        """Sets the request rates of these services; those with unmeasured demand stay unmeasured."""
        services = tuple(
            replace(each, demand=replace(each.demand, rate_per_s=rates_per_s[each.name]))
            if each.demand and each.name in rates_per_s
            else each
            for each in self._now.services
        )
        self._now = replace(self._now, services=services)

    def _node(self, name: str) -> int:
        row = self._now.nodes.names.row(name)
        if row is None:
            raise errors.ConfigError(errors.Mistake(f"node {name}", "there is no such node", "name one of the fleet"))
        return row

    def _set_schedulable(self, row: int, *, to: bool) -> None:
        schedulable = self._now.nodes.schedulable.copy()
        schedulable[row] = to
        self._now = replace(self._now, nodes=replace(self._now.nodes, schedulable=schedulable))

    def _check_node(self, after: Snapshot, action: Action, change: SeatChange, node: str) -> None:
        where, row = after.nodes.names.row(node), after.pods.names.row(change.pod)
        if where is None or row is None:
            raise errors.ActionError(f"{action}: there is no such node or pod")
        shape = after.pods.shapes[after.pods.shape[row]]
        if not nodes.eligible_nodes(shape, after.nodes, after.gpu_type_names)[where]:
            raise errors.ActionError(f"{action}: the node refuses this pod")
        held = device_numbers(int(after.pods.devices[row]))
        if len(held) != shape.gpus or any(device >= after.nodes.gpus[where] for device in held):
            raise errors.ActionError(f"{action}: it needs {shape.gpus} existing devices")
        free = after.free()
        if free.cpu_milli[where] < 0 or free.memory_bytes[where] < 0 or (free.gpu_milli[where] < 0).any():
            raise errors.ActionError(f"{action}: the node would be over-committed")
