"""Occupancy of nodes and devices while actions are applied one by one, used by the guard and before writes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cluster import arrays, changes, nodes, plans, workloads
from cluster.disruption import BudgetsLeft
from cluster.neighbours import REFUSALS, Neighbours
from cluster.power_floors import PowerFloors, held_devices
from cluster.snapshot import PENDING, PodTable, Snapshot, device_mask, device_numbers


class Occupancy:
    """Nodes and devices of pods, and free capacity: those of a snapshot, updated by counted actions."""

    def __init__(self, snapshot: Snapshot, watts: PowerFloors | None = None) -> None:
        """watts: the power headroom of the snapshot, which then limits binds too."""
        self.snapshot, self.watts = snapshot, watts
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
        self._journal: list[tuple[int, int, int]] = []
        """Row, node and devices of a pod before each change."""

    @property
    def mark(self) -> int:
        """Point in time to pass to `roll_back`."""
        return len(self._journal)

    def roll_back(self, mark: int) -> None:
        """Restores the nodes and devices of pods as they were at that mark."""
        while len(self._journal) > mark:
            self._set(*self._journal.pop())

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
        for name, amount, left in free.asked(shape):
            if left[where] < amount:
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
        return self._lack_of_power(
            where, sum(int(free.gpu_milli[where, d]) == workloads.WHOLE_GPU_MILLI for d in devices)
        )

    def _lack_of_power(self, where: int, extra: int) -> plans.Reason | None:
        """Reason why so many more devices of a node cannot start to work; None if they can."""
        if self.watts is None or not extra or self.watts.bears(where, self._held(where) + extra):
            return None
        need_w, left_w = self.watts.need_w(where, extra), self.watts.left_w(where)
        words = f"its power floor needs {need_w:.0f} W more, but {self.watts.tightest(where)} has {left_w:.0f} W left"
        return plans.Reason("NoPowerHeadroom", words, {"need_w": need_w, "headroom_w": left_w})

    def _held(self, where: int) -> int:
        here = slice(where, where + 1)
        return int(held_devices(self.free.gpu_milli[here], self.snapshot.nodes.gpus[here])[0])

    def objection_to_leave(self, pod: str, node: str, devices: Sequence[int]) -> plans.Reason | None:
        """Reason why kube-scheduler cannot make room for this pending pod on the node, by a stop of its own pods; None
        if it can."""
        row, where = self.snapshot.pods.names.row(pod), self.snapshot.nodes.names.row(node)
        if row is None or where is None:
            return self.objection_to_bind(pod, node, devices)
        pods = self.snapshot.pods
        mark = self.mark
        for other in kube_schedulers(pods, self._budgets, self.node, where, int(pods.priority[row])):
            self.put(other, PENDING, 0)
        why = self.objection_to_bind(pod, node, devices)
        self.roll_back(mark)
        return why

    def objection_to_move(self, pod: str, node: str, devices: Sequence[int]) -> plans.Reason | None:
        """Reason why this running pod cannot go to these devices of the node; None if it can."""
        mark = self.mark
        self.put(self.row(pod), PENDING, 0)
        why = self.objection_to_bind(pod, node, devices)
        self.roll_back(mark)
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
        self._journal.append((row, int(self.node[row]), int(self.devices[row])))
        self._set(row, node, devices)

    def _set(self, row: int, node: int, devices: int) -> None:
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
        self.free.charge(shape, where, device_numbers(int(self.devices[row])), sign)
        if self.watts is not None and shape.gpus:
            self.watts.follow((where,), np.array([self._held(where)]))
        if self._neighbours is not None:
            self._neighbours.count(shape.beside, where, sign)


def kube_schedulers(pods: PodTable, budgets: BudgetsLeft, node: arrays.IntArray, where: int, below: int) -> list[int]:
    """Rows of the pods on a node that kube-scheduler stops for one of a higher priority, and that nobody asks it to
    spare; without those of a disruption budget, which it may violate. node: shape (pods,), node of each.
    """
    if pods.strangers is None:
        return []
    there = (node == where) & pods.strangers & (pods.priority < below)
    rows = np.flatnonzero(there if pods.settled is None else there & ~pods.settled)
    return [row for row in rows.tolist() if not budgets.covers(row)]
