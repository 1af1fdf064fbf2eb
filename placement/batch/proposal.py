"""Plan from a batch's placements: gangs whole, then single pods; packing serves the remainder, by priority."""

import numpy as np

from cluster.actions import Bind, Evict
from cluster.arrays import BoolArray, IntArray
from cluster.occupancy import Occupancy
from cluster.plans import Certificate, Phase, Plan, Reason, Step
from cluster.power_floors import PowerFloors
from cluster.snapshot import PENDING, Snapshot, device_numbers
from placement.batch.ladder import BatchPlan, cost_of, seated
from placement.batch.pod_assignment import Seats
from placement.batch.problem import batch_of, complete_gangs
from placement.packing.draft import effective_priority

CERTIFICATE = "batch"
"""Name of the certificate: price per hour of the nodes that a batch starts in dollars, and the lower bound on it in
every plan that leaves out no more."""
SHORT, IMPOSSIBLE = "short", "impossible"
"""Figures of the certificate: pods left out because resources are short beside others, and pods that no plan could
start beside what runs (too large, no eligible node, a gang that cannot be whole)."""


def seats_to_keep(snapshot: Snapshot, plan: BatchPlan, *, preempt: bool) -> Seats:
    """Placements of a plan without those that a more important unplaced pod might take.

    Packing then decides in the order of service, as it does for all pods. Pods that no node could ever take block no
    others. With preemption a pod might take any placement of lower priority, without it only what is free now.
    """
    if not len(plan.waiting):
        return plan.seats
    pods, room, seats = snapshot.pods, snapshot, plan.seats
    priority = effective_priority(snapshot)
    waiting = plan.waiting[complete_gangs(snapshot)[plan.waiting]]
    if preempt:  # as if nothing ran
        nowhere = np.full(len(pods), PENDING, dtype=np.int64)
        room = seated(snapshot, Seats(np.arange(len(pods)), nowhere, np.zeros(len(pods), dtype=np.int64)))
    among = np.zeros(len(pods), dtype=np.bool_)
    among[waiting] = True
    batch = batch_of(room, among)
    starts = {shape for shape, copies in zip(batch.shapes, batch.largest_copies, strict=True) if copies}
    able = [row for row in waiting.tolist() if pods.shapes[pods.shape[row]] in starts]
    if not able:
        return seats
    keep = priority[seats.row] >= priority[able].max()
    # A gang keeps its placements whole: its members share one priority, so all of them do or none.
    return Seats(seats.row[keep], seats.node[keep], seats.devices[keep])


def reason_of(plan: BatchPlan) -> Reason:
    """Reason of every placement of a batch."""
    return Reason(
        "LeastBatchCost",
        f"part of the cheapest known plan for all pending pods (planner stage {plan.rung})",
        {"usd_per_hour": plan.cost.node_usd, "bound_usd_per_hour": plan.cost.node_bound_usd(plan.bound_usd)},
    )


def proposed(snapshot: Snapshot, seats: Seats, reason: Reason) -> Plan:
    """Binds of these placements, each gang's as a whole phase."""
    pods, names = snapshot.pods, snapshot.nodes.names
    order = np.argsort(seats.row, kind="stable")
    gangs: dict[int, list[Step]] = {}
    singles: list[Step] = []
    columns = (seats.row[order], seats.node[order], seats.devices[order], pods.gang[seats.row[order]])
    numbers = {mask: device_numbers(mask) for mask in np.unique(seats.devices).tolist()}
    for row, node, devices, gang in zip(*(column.tolist() for column in columns), strict=True):
        step = Step(Bind(pods.names[row], names[node], numbers[devices]), reason)
        (singles if gang < 0 else gangs.setdefault(gang, [])).append(step)
    phases = [
        Phase(f"start {snapshot.gangs[gang].name}", tuple(steps), whole=True) for gang, steps in sorted(gangs.items())
    ]
    phases.append(Phase("start pods", tuple(singles)))
    return Plan(phases=tuple(phase for phase in phases if phase.steps))


def certified(snapshot: Snapshot, whole: Plan, plan: BatchPlan, seconds: float) -> Plan:
    """Plan with its certificate: the price of the nodes that it starts, and the proven bound on it.

    No certificate where the plan evicts pods: the proof covers the capacity that was free.
    """
    if plan.bound_usd <= 0 or any(isinstance(action, Evict) for action in whole.actions):
        return whole
    pods, nodes, startable = snapshot.pods, snapshot.nodes, plan.startable
    binds = [action for action in whole.actions if isinstance(action, Bind)]
    places = [(pods.names.row(action.pod), nodes.names.row(action.node)) for action in binds]
    known = [(row, node) for row, node in places if row is not None and node is not None]
    row, node = np.array(known, dtype=np.int64).reshape(-1, 2).T
    waiting = np.setdiff1d(pods.pending, row)
    short = waiting[startable[waiting]]
    cost = cost_of(snapshot, batch_of(snapshot, startable), node, short)
    figures = {SHORT: float(len(short)), IMPOSSIBLE: float(len(waiting) - len(short))}
    certificate = Certificate(cost.node_usd, cost.node_bound_usd(plan.bound_usd), plan.rung, seconds, figures=figures)
    return whole.joined(Plan(certificates={CERTIFICATE: certificate}))


def within_limits(snapshot: Snapshot, seats: Seats) -> tuple[Seats, IntArray]:
    """Placements that power domains and the nodes' other resources carry, and the rows of pods that lost theirs.

    A batch is planned by GPUs, CPU and memory. Its placements are then checked in the order of service, by priority and
    then as the batch has them, and those that no longer fit are dropped; a gang keeps all of its or none. Packing,
    which respects all limits, serves those pods, or they wait. All are kept where nothing else is limited.
    """
    floors, pods, free = PowerFloors.of(snapshot), snapshot.pods, snapshot.free()
    shape_of, keep = pods.shape[seats.row], np.ones(len(seats), dtype=np.bool_)
    for name, left in free.others.items():
        asked = np.array([shape.asks(name) for shape in pods.shapes], dtype=np.int64)[shape_of]
        keep &= (left >= np.bincount(seats.node, asked, len(left)))[seats.node]
    if not len(seats) or (floors is None and keep.all()):
        return seats, np.zeros(0, dtype=np.int64)
    priority, gang = effective_priority(snapshot)[seats.row], pods.gang[seats.row]
    units: dict[tuple[int, int], list[int]] = {}
    for seat in np.argsort(-priority, kind="stable").tolist():
        units.setdefault((int(gang[seat]), -1 if gang[seat] >= 0 else seat), []).append(seat)
    taken, names = Occupancy(snapshot, floors), snapshot.nodes.names
    for unit in units.values():
        mark = taken.mark
        for seat in unit:
            row, node, devices = int(seats.row[seat]), int(seats.node[seat]), int(seats.devices[seat])
            if taken.objection_to_bind(pods.names[row], names[node], device_numbers(devices)):
                taken.roll_back(mark)
                keep[unit] = False
                break
            taken.put(row, node, devices)
        else:
            keep[unit] = True
    return Seats(seats.row[keep], seats.node[keep], seats.devices[keep]), seats.row[~keep]


def by_batch(snapshot: Snapshot) -> BoolArray | None:
    """Pods that a batch may place: those that no rule between pods is about, and gangs of such without groups and
    preferred domains. None: all."""
    pods = snapshot.pods
    ruled = np.array([bool(s.beside.is_bound or s.beside.crowds) for s in pods.shapes], dtype=np.bool_)[pods.shape]
    is_tree = [bool(gang.groups or gang.prefer_within) for gang in snapshot.gangs]
    ruled |= np.array([*is_tree, False], dtype=np.bool_)[pods.gang]
    if not ruled.any():
        return None
    ruled |= (pods.gang >= 0) & np.isin(pods.gang, pods.gang[ruled])
    return ~ruled
