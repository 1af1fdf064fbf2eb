"""Packing decider: pending pods and gangs onto nodes and devices, by priority, as a plan with reasons."""

import heapq
from collections.abc import Callable

from cluster.actions import Bind, Evict
from cluster.plans import Phase, Plan, Reason, Step, Unplaced
from cluster.pods import device_numbers
from cluster.snapshot import Snapshot
from placement.engine.explanation import shortage
from placement.engine.packer import Packer
from placement.packing.draft import Draft
from placement.packing.gangs import seat_unit
from placement.packing.pending_units import Unit, as_of_now, order_of_service, pending_units, units_of
from placement.packing.preemption import seat_by_preemption

Stopwatch = Callable[[], bool]
"""Returns whether the time for this plan is over."""


def never() -> bool:
    """Stopwatch for a caller without a deadline."""
    return False


def pack(snapshot: Snapshot, packer: Packer, *, preempt: bool = True, is_over: Stopwatch = never) -> Plan:
    """Plan that places every pending unit that fits, by priority, and reports the rest with what was short where.

    A unit is a pod or a whole gang. A unit that does not fit is skipped and holds nothing, so it blocks no other.
    Preempted pods are served again in their own turn.
    """
    draft = Draft(snapshot, packer)
    left = pending_units(draft)
    while left and _serve(
        draft, left, preempt=preempt, is_over=is_over
    ):  # again: evictions may free more than they must
        left = pending_units(draft)
    return Plan(phases=_phases(draft), unplaced=tuple(_unplaced(draft, unit, is_over=is_over) for unit in left))


def _serve(draft: Draft, units: list[Unit], *, preempt: bool, is_over: Stopwatch) -> int:
    """Serves the queue once and returns the number of placed units.

    Victims of preemption join it at their own place.
    """
    queue = [(order_of_service(draft, unit), unit) for unit in units]
    heapq.heapify(queue)
    seated = 0
    while queue and not is_over():
        _, waited = heapq.heappop(queue)
        for unit in as_of_now(draft, waited):
            mark = draft.mark
            seated += _seat(draft, unit, preempt=preempt)
            for victim in units_of(draft, draft.unseated_since(mark)):
                heapq.heappush(queue, (order_of_service(draft, victim), victim))
    return seated


def _seat(draft: Draft, unit: Unit, *, preempt: bool) -> bool:
    """Places a unit in free resources if they suffice, else by preemption for the pods that do not fit."""
    if seat_unit(draft, unit, draft.seat):
        return True
    if not preempt:
        return False
    return seat_unit(
        draft,
        unit,
        lambda row, within: draft.seat(row, within) or seat_by_preemption(draft, row, unit.priority, within),
    )


def _phases(draft: Draft) -> tuple[Phase, ...]:
    """Phases of the plan: evictions first, since binds need what they free; then whole gangs; then single pods."""
    snapshot = draft.snapshot
    leave, start = draft.changed()
    gangs = sorted({int(snapshot.pods.gang[row]) for row in start} - {-1})
    singles = [row for row in start if snapshot.pods.gang[row] < 0]
    phases = [Phase("make room", tuple(_evict(draft, row) for row in leave))]
    for gang in gangs:
        rows = [row for row in start if snapshot.pods.gang[row] == gang]
        phases.append(Phase(f"start {snapshot.gangs[gang].name}", tuple(_bind(draft, row) for row in rows), whole=True))
    phases.append(Phase("start pods", tuple(_bind(draft, row) for row in singles)))
    return tuple(phase for phase in phases if phase.steps)


def _evict(draft: Draft, row: int) -> Step:
    snapshot = draft.snapshot
    action = Evict(snapshot.pods.names[row], snapshot.nodes.names[int(snapshot.pods.node[row])])
    priority = int(draft.priority[row])
    words = "makes room for a pod of higher priority"
    return Step(action, Reason("Preempted", words, {"priority": priority}))


def _bind(draft: Draft, row: int) -> Step:
    snapshot = draft.snapshot
    node = snapshot.nodes.names[int(draft.node[row])]
    action = Bind(snapshot.pods.names[row], node, device_numbers(int(draft.devices[row])))
    policy = draft.packer.policy.name
    if row not in draft.choices:
        return Step(action, Reason("SameSeat", "restarts in the same place, because its gang restarts as a whole"))
    return Step(action, Reason("LeastCost", f"least cost under {policy}", {"cost": draft.choices[row].cost}))


def _unplaced(draft: Draft, unit: Unit, *, is_over: Stopwatch) -> Unplaced:
    label = unit.label(draft.snapshot)
    if is_over():
        return Unplaced(label, Reason("DeadlinePassed", "the deadline of this plan passed before its turn"))
    short = shortage(draft.packer, draft.shape(unit.rows[0]))
    if unit.gang < 0 or unit.need == 1:
        return Unplaced(label, short)
    wanted = draft.snapshot.gangs[unit.gang]
    near = f" within one {wanted.within}" if wanted.within else ""
    words = f"{unit.need} members must start together{near} and do not all fit, so none was started; {short.words}"
    return Unplaced(label, Reason("GangHeldBack", words, {"need": unit.need, **short.figures}))
