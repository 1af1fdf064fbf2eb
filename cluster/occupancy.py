"""Occupancy of nodes and devices while actions are applied one by one, used by the guard and before writes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cluster import arrays, changes, nodes, plans, workloads
from cluster.disruption import BudgetsLeft
from cluster.neighbours import REFUSALS, Neighbours
from cluster.snapshot import PENDING, PodTable, Snapshot, device_mask, device_numbers


class Occupancy:
    """Nodes and devices of pods, and free capacity: those of a snapshot, updated by counted actions."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.free = snapshot.free()
        self.node = snapshot.pods.node.copy()
        """Shape (pods,): row of each pod's node, PENDING for none."""
        self.devices = snapshot.pods.devices.copy()
        """Shape (pods,): device masks."""
        self._filter = nodes.NodeFilter(snapshot.nodes, snapshot.gpu_type_names)
        self._eligible: dict[workloads.PodShape, arrays.BoolArray] = {}
        self._stoppable = snapshot.pods.may_be_stopped
        self._budgets = BudgetsLeft(snapshot.budgets, snapshot.pods.names)
        self._neighbours = Neighbours.of(snapshot, self._filter) if snapshot.pods.has_rules else None

    def now(self) -> Snapshot:
        """The snapshot with the counted nodes and devices of pods."""
        return replace(self.snapshot, pods=replace(self.snapshot.pods, node=self.node, devices=self.devices))

    def objection_to_bind(self, pod: str, node: str, devices: Sequence[int]) -> plans.Reason | None:
        """Reason why this pending pod cannot start on these devices of the node; None if it can."""
        row, where = self.snapshot.pods.names.row(pod), self.snapshot.nodes.names.row(node)
        if row is None or where is None:
            return plans.Reason(
                "NotFound", f"pod {pod} does not exist (yet)" if row is None else f"node {node} does not exist"
            )
        if self.node[row] != PENDING:
            return plans.Reason(
                "AlreadyBound", f"{pod} already runs on {self.snapshot.nodes.names[int(self.node[row])]}"
            )
        shape, free = self.snapshot.pods.shapes[self.snapshot.pods.shape[row]], self.free
        allowed = shape
        if workloads.is_pinned(shape.node_terms) and self.snapshot.pods.node[row] == where:
            # Pinned to its own node, it may return to where it ran in the snapshot.
            allowed = replace(shape, node_terms=workloads.without_pin(shape.node_terms))
        if allowed not in self._eligible:
            self._eligible[allowed] = self._filter.eligible(allowed)
        if not self._eligible[allowed][where]:
            return plans.Reason("NotEligible", f"{node} is cordoned, or its GPU type, labels or taints exclude {pod}")
        if len(set(devices)) != shape.gpus:
            return plans.Reason("WrongDevices", f"it requests {shape.gpus} devices, but was assigned {list(devices)}")
        if free.cpu_milli[where] < shape.cpu_milli or free.memory_bytes[where] < shape.memory_bytes:
            return plans.Reason(
                "OverCapacity", "CPU or memory of the node would be over-committed: other pods still hold it"
            )
        for name, amount in ((workloads.PODS, 1), *shape.others):
            if name in free.others and free.others[name][where] < amount:
                return plans.Reason("OverCapacity", f"{name} of the node would be over-committed: other pods hold it")
        if self._neighbours is not None:
            kinds = [kind for kind, mask in self._neighbours.refusals(shape).items() if mask[where]]
            if kinds:
                return plans.Reason("NotEligible", f"{node} has {REFUSALS[kinds[0]]}")
        for device in devices:
            if not 0 <= device < self.snapshot.nodes.gpus[where]:
                return plans.Reason("OverCapacity", f"the node has no device {device}")
            if free.gpu_milli[where, device] < shape.gpu_milli:
                words = f"device {device} is still held by other pods: less than {shape.gpu_milli} thousandths are free"
                return plans.Reason("OverCapacity", words)
        return None

    def objection_to_leave(self, pod: str, node: str, devices: Sequence[int]) -> plans.Reason | None:
        """Reason why kube-scheduler cannot make room for this pending pod on the node, by a stop of its own pods; None
        if it can."""
        row, where = self.snapshot.pods.names.row(pod), self.snapshot.nodes.names.row(node)
        if row is None or where is None:
            return self.objection_to_bind(pod, node, devices)
        pods = self.snapshot.pods
        others = kube_schedulers(pods, self._budgets, self.node, where, int(pods.priority[row]))
        held = [int(self.devices[other]) for other in others]
        for other in others:
            self.put(other, PENDING, 0)
        why = self.objection_to_bind(pod, node, devices)
        for other, mask in zip(others, held, strict=True):
            self.put(other, where, mask)
        return why

    def objection_to_stop(self, pod: str, node: str) -> plans.Reason | None:
        """Reason why this pod cannot be stopped on the node; None if it runs there."""
        row = self.snapshot.pods.names.row(pod)
        if row is None:
            return plans.Reason("NotFound", f"pod {pod} does not exist (yet)")
        runs_on = None if self.node[row] == PENDING else self.snapshot.nodes.names[int(self.node[row])]
        if runs_on != node:
            return plans.Reason("NotThere", f"{pod} does not run on {node}, but on {runs_on or 'no node'}")
        pods = self.snapshot.pods
        if pods.ending is not None and pods.ending[row]:
            return None
        if budget := self._budgets.forbidding((row,)):
            return plans.Reason("BudgetForbids", f"the disruption budget {budget.name} does not allow to stop {pod}")
        if self._stoppable[row]:
            return None
        if pods.settled is None or not pods.settled[row]:
            words = f"{pod} runs by another scheduler's decision on a node that Tonnage does not own"
            return plans.Reason("NotOursToStop", words)
        words = f"{pod} stays: it asks not to be disrupted, its node is its own, or a stop was refused lately"
        return plans.Reason("NotToBeStopped", words)

    def objection_to_stops(self, seats: Sequence[tuple[str, str]]) -> plans.Reason | None:
        """Reason why not all of these pods can be stopped on their nodes; None if they run there and may be."""
        for pod, node in seats:
            if why := self.objection_to_stop(pod, node):
                return why
        if budget := self._budgets.forbidding(self.row(pod) for pod, _ in seats):
            words = f"the disruption budget {budget.name} does not allow to stop all of its {len(seats)} pods"
            return plans.Reason("BudgetForbids", words)
        return None

    def objection_to_scale(self, service: str) -> plans.Reason | None:
        """Reason why this service cannot be scaled; None if it exists."""
        if all(each.name != service for each in self.snapshot.services):
            return plans.Reason("NotFound", f"service {service} does not exist")
        return None

    def objection_to_release(self, claim: str) -> plans.Reason | None:
        """Reason why this claim cannot be released; None if none of its pods has a node."""
        known = changes.idle_claim(self.snapshot, claim)
        if known is None:
            return plans.Reason("NotFound", f"no claim {claim} was allocated by Tonnage for pods that all wait")
        for pod in known.pods:
            row = self.snapshot.pods.names.row(pod)
            if row is not None and self.node[row] != PENDING:
                return plans.Reason("ClaimInUse", f"its pod {pod} has a node")
        return None

    def place(self, pod: str, node: str, devices: Sequence[int]) -> None:
        """Count a pod on a node, and no longer where it was. Does not check again."""
        self.put(self.row(pod), self.where(node), device_mask(devices))

    def put(self, row: int, node: int, devices: int) -> None:
        """Count the pod of a table row on a node, or on none (PENDING), with a mask of devices."""
        self._count(row, -1)
        if self._budgets.covers(row):
            self._budgets.count(row, stopped=node != int(self.snapshot.pods.node[row]))
        self.node[row], self.devices[row] = node, devices
        self._count(row, 1)

    def row(self, pod: str) -> int:
        row = self.snapshot.pods.names.row(pod)
        assert row is not None, f"{pod} was looked up before"  # noqa: S101 - an objection would have been raised
        return row

    def where(self, node: str) -> int:
        where = self.snapshot.nodes.names.row(node)
        assert where is not None, f"{node} was looked up before"  # noqa: S101 - an objection would have been raised
        return where

    def _count(self, row: int, sign: int) -> None:
        if (where := int(self.node[row])) == PENDING:
            return
        shape = self.snapshot.pods.shapes[self.snapshot.pods.shape[row]]
        self.free.cpu_milli[where] -= sign * shape.cpu_milli
        self.free.memory_bytes[where] -= sign * shape.memory_bytes
        for device in device_numbers(int(self.devices[row])):
            self.free.gpu_milli[where, device] -= sign * shape.gpu_milli
        for name in self.free.others.keys() & {workloads.PODS, *dict(shape.others)}:
            self.free.others[name][where] -= sign * shape.asks(name)
        if self._neighbours is not None:
            (self._neighbours.started if sign > 0 else self._neighbours.stopped)(shape, where)


def kube_schedulers(pods: PodTable, budgets: BudgetsLeft, node: arrays.IntArray, where: int, below: int) -> list[int]:
    """Rows of the pods on a node that kube-scheduler stops for one of a higher priority, and that nobody asks it to
    spare; without those of a disruption budget, which it may violate. node: shape (pods,), node of each.
    """
    if pods.strangers is None:
        return []
    there = (node == where) & pods.strangers & (pods.priority < below)
    rows = np.flatnonzero(there if pods.settled is None else there & ~pods.settled)
    return [row for row in rows.tolist() if not budgets.covers(row)]
