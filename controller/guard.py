"""The guard: the last, pure check of a plan. What it strikes out is reported, not applied."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from cluster.actions import Action, Bind, Evict, Move, Scale
from cluster.arrays import BoolArray
from cluster.hardware import WHOLE_GPU_MILLI
from cluster.nodes import eligible_nodes
from cluster.plans import Phase, Plan, Reason, Refused, Step
from cluster.pods import PENDING, device_mask, device_numbers
from cluster.power_floors import PowerFloors, held_devices
from cluster.snapshot import Snapshot, scaled

REASONS = (
    "AlreadyBound",
    "GangNotWhole",
    "NegativeInstances",
    "NoPowerHeadroom",
    "NotEligible",
    "NotFound",
    "NotThere",
    "NotWhole",
    "OverCapacity",
    "StaleEvidence",
    "TooManyEvictions",
    "WrongDevices",
)
"""Every code with which the guard strikes a step out: counters of them start at 0, so that the first shows as one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one plan may do, whatever the deciders think."""

    max_evictions_share: float = 0.05
    """Share of the running pods that one plan may stop or move. Chosen: a mistaken plan hurts 1 pod in 20."""
    max_evictions_floor: int = 10
    """So many may always be stopped, else small fleets could never preempt."""
    max_age_s: float = 60.0
    """Evidence older than this is not acted on. Chosen: two missed 30-s relists."""


def guard(snapshot: Snapshot, plan: Plan, limits: Limits) -> Plan:
    """The plan without the steps that must not be done; those stand in `refused`, each with its reason.

    Checks every step against the cluster as the steps before it leave it: existence, eligibility, every device's
    capacity, gangs whole, at most so many evictions, nothing on stale evidence.
    """
    return _Guard(snapshot, limits).checked(plan)


class _Guard:
    """The cluster while the plan is walked through: columns of the snapshot, changed step by step."""

    def __init__(self, snapshot: Snapshot, limits: Limits) -> None:
        self.limits = limits
        running = int((snapshot.pods.node != PENDING).sum())
        self.evictions_left = max(limits.max_evictions_floor, int(limits.max_evictions_share * running))
        self._adopt(snapshot)

    def _adopt(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.free = snapshot.free()
        self.watts = PowerFloors.of(snapshot)
        self.node = snapshot.pods.node.copy()
        self.devices = snapshot.pods.devices.copy()
        self._eligible: dict[int, BoolArray] = {}
        self._journal: list[tuple[int, int, int]] = []

    def checked(self, plan: Plan) -> Plan:
        phases: list[Phase] = []
        refused: list[Refused] = []
        for phase in plan.phases:
            kept, struck = self._phase(phase)
            refused += struck
            if kept:
                phases.append(replace(phase, steps=tuple(kept)))
        return replace(plan, phases=tuple(phases), refused=plan.refused + tuple(refused))

    def _phase(self, phase: Phase) -> tuple[list[Step], list[Refused]]:
        self._journal = []
        kept: list[Step] = []
        struck: list[Refused] = []
        for step in phase.steps:
            if (why := self._objection(step.action)) is None:
                self._perform(step.action)
                kept.append(step)
            else:
                struck.append(Refused(step, why))
        if phase.whole and struck:
            why = Reason("NotWhole", f"{phase.name} must happen whole, and one of its steps was refused")
            return [], struck + self._strike(kept, why)
        if broken := next(self._broken_gangs(kept), None):
            return [], struck + self._strike(kept, broken)
        return kept, struck

    def _strike(self, steps: list[Step], why: Reason) -> list[Refused]:
        """Take back what the phase did so far."""
        for row, node, devices in reversed(self._journal):
            self._set(row, node, devices)
        self.evictions_left += sum(isinstance(step.action, Evict | Move) for step in steps)
        return [Refused(step, why) for step in steps]

    def _objection(self, action: Action) -> Reason | None:
        if (age := self.snapshot.age_s("pods")) > self.limits.max_age_s:
            return Reason("StaleEvidence", f"the pods were last seen {age:.0f} s ago", {"age_s": age})
        match action:
            case Bind():
                return self._objection_to_bind(action.pod, action.node, action.devices)
            case Evict():
                return self._objection_to_stop(action.pod, action.node)
            case Move():
                return self._objection_to_move(action)
            case Scale():
                return self._objection_to_scale(action)
            case _:
                assert_never(action)

    def _objection_to_bind(self, pod: str, node: str, devices: tuple[int, ...]) -> Reason | None:
        row, where = self.snapshot.pods.names.row(pod), self.snapshot.nodes.names.row(node)
        if row is None or where is None:
            return Reason("NotFound", f"there is no {'pod ' + pod if row is None else 'node ' + node}")
        if self.node[row] != PENDING:
            return Reason("AlreadyBound", f"{pod} runs on {self.snapshot.nodes.names[int(self.node[row])]}")
        if not self._eligible_for(int(self.snapshot.pods.shape[row]))[where]:
            return Reason("NotEligible", f"{node} is cordoned, or its type, labels or taints keep {pod} away")
        return self._objection_to_capacity(row, where, devices)

    def _objection_to_capacity(self, row: int, where: int, devices: tuple[int, ...]) -> Reason | None:
        shape, free = self.snapshot.pods.shapes[self.snapshot.pods.shape[row]], self.free
        if len(set(devices)) != shape.gpus:
            return Reason("WrongDevices", f"it asks for {shape.gpus} devices and was given {list(devices)}")
        if free.cpu_milli[where] < shape.cpu_milli or free.memory_bytes[where] < shape.memory_bytes:
            return Reason("OverCapacity", "CPU or memory of the node would be over-committed")
        for device in devices:
            if not 0 <= device < self.snapshot.nodes.gpus[where] or free.gpu_milli[where, device] < shape.gpu_milli:
                return Reason("OverCapacity", f"device {device} has not {shape.gpu_milli} thousandths left")
        return self._objection_to_watts(where, devices)

    def _objection_to_watts(self, where: int, devices: tuple[int, ...]) -> Reason | None:
        extra = sum(int(self.free.gpu_milli[where, device]) == WHOLE_GPU_MILLI for device in devices)
        held = held_devices(self.free.gpu_milli[where : where + 1], self.snapshot.nodes.gpus[where : where + 1])
        if self.watts is None or not extra or self.watts.bears(where, int(held[0]) + extra):
            return None
        need_w, left_w = self.watts.need_w(where, extra), self.watts.left_w(where)
        words = f"its floor takes {need_w:.0f} W more, and {self.watts.tightest(where)} has {left_w:.0f} W left"
        return Reason("NoPowerHeadroom", words, {"need_w": need_w, "headroom_w": left_w})

    def _objection_to_stop(self, pod: str, node: str) -> Reason | None:
        row = self.snapshot.pods.names.row(pod)
        if row is None:
            return Reason("NotFound", f"there is no pod {pod}")
        if self.node[row] == PENDING or self.snapshot.nodes.names[int(self.node[row])] != node:
            return Reason("NotThere", f"{pod} does not run on {node}")
        if self.evictions_left <= 0:
            return Reason("TooManyEvictions", "this plan has stopped as many pods as one plan may")
        return None

    def _objection_to_move(self, move: Move) -> Reason | None:
        if why := self._objection_to_stop(move.pod, move.from_node):
            return why
        row = self._row(move.pod)
        was, held = int(self.node[row]), int(self.devices[row])
        self._set(row, PENDING, 0)
        why = self._objection_to_bind(move.pod, move.node, move.devices)
        self._set(row, was, held)
        return why

    def _objection_to_scale(self, scale: Scale) -> Reason | None:
        if all(service.name != scale.service for service in self.snapshot.services):
            return Reason("NotFound", f"there is no service {scale.service}")
        if any(count < 0 for count in scale.instances.values()):
            return Reason("NegativeInstances", f"{dict(scale.instances)} asks for fewer than none")
        return None

    def _broken_gangs(self, kept: list[Step]) -> Iterator[Reason]:
        """Gangs that these steps would leave started in part."""
        pods = self.snapshot.pods
        rows = [pods.names.row(step.action.pod) for step in kept if not isinstance(step.action, Scale)]
        for gang in {int(pods.gang[row]) for row in rows if row is not None} - {-1}:
            wanted = self.snapshot.gangs[gang]
            running = int((self.node[pods.gang == gang] != PENDING).sum())
            if 0 < running < wanted.min_members:
                words = f"{wanted.name} would run with {running} of at least {wanted.min_members} members"
                yield Reason("GangNotWhole", words, {"running": running, "min_members": wanted.min_members})

    def _perform(self, action: Action) -> None:
        match action:
            case Bind():
                self._set(self._row(action.pod), self._where(action.node), device_mask(action.devices))
            case Evict():
                self._set(self._row(action.pod), PENDING, 0)
                self.evictions_left -= 1
            case Move():
                self._set(self._row(action.pod), self._where(action.node), device_mask(action.devices))
                self.evictions_left -= 1
            case Scale():
                pods = replace(self.snapshot.pods, node=self.node, devices=self.devices)
                self._adopt(scaled(replace(self.snapshot, pods=pods), action))
            case _:
                assert_never(action)

    def _row(self, pod: str) -> int:
        row = self.snapshot.pods.names.row(pod)
        assert row is not None, f"{pod} was looked up before"  # noqa: S101 - an objection would have been raised
        return row

    def _where(self, node: str) -> int:
        where = self.snapshot.nodes.names.row(node)
        assert where is not None, f"{node} was looked up before"  # noqa: S101 - an objection would have been raised
        return where

    def _eligible_for(self, shape: int) -> BoolArray:
        if shape not in self._eligible:
            pods, nodes = self.snapshot.pods, self.snapshot.nodes
            self._eligible[shape] = eligible_nodes(pods.shapes[shape], nodes, self.snapshot.gpu_type_names)
        return self._eligible[shape]

    def _set(self, row: int, node: int, devices: int) -> None:
        """Put a pod on a node (or nowhere) and charge it there, not where it was."""
        self._journal.append((row, int(self.node[row]), int(self.devices[row])))
        self._charge(row, -1)
        self.node[row], self.devices[row] = node, devices
        self._charge(row, 1)

    def _charge(self, row: int, sign: int) -> None:
        if (where := int(self.node[row])) == PENDING:
            return
        shape = self.snapshot.pods.shapes[self.snapshot.pods.shape[row]]
        self.free.cpu_milli[where] -= sign * shape.cpu_milli
        self.free.memory_bytes[where] -= sign * shape.memory_bytes
        for device in device_numbers(int(self.devices[row])):
            self.free.gpu_milli[where, device] -= sign * shape.gpu_milli
        if self.watts is not None and shape.gpus:
            here = slice(where, where + 1)
            held = held_devices(self.free.gpu_milli[here], self.snapshot.nodes.gpus[here])
            self.watts.follow((where,), held)
