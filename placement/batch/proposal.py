"""Plan from a batch's placements: gangs whole, then single pods; packing serves the remainder, by priority."""

import numpy as np

from cluster.actions import Bind, Evict
from cluster.arrays import IntArray
from cluster.plans import Certificate, Phase, Plan, Reason, Step
from cluster.pods import PENDING, device_numbers
from cluster.snapshot import Snapshot
from placement.batch.gang_topology import Seats, startable_pods
from placement.batch.ladder import BatchPlan, seated
from placement.batch.problem import HostPrice
from placement.batch.problem_builder import batch_of
from placement.packing.draft import effective_priority

CERTIFICATE = "batch"
"""Name of the certificate: price per hour of a batch in dollars, and its lower bound."""


def seats_to_keep(snapshot: Snapshot, plan: BatchPlan, *, preempt: bool) -> Seats:
    """Placements of a plan without those that a more important unplaced pod might take.

    Packing then decides in the order of service, as it does for all pods. Pods that no node could ever take block no
    others. With preemption a pod might take any placement of lower priority, without it only what is free now.
    """
    if not len(plan.waiting):
        return plan.seats
    priority = effective_priority(snapshot)
    waiting = plan.waiting[startable_pods(snapshot)[plan.waiting]]
    able = waiting[_could_start(snapshot, waiting, preempt=preempt)]
    if not len(able):
        return plan.seats
    keep = priority[plan.seats.row] >= priority[able].max()
    # A gang keeps its placements whole: its members share one priority, so all of them do or none.
    return Seats(plan.seats.row[keep], plan.seats.node[keep], plan.seats.devices[keep])


def _could_start(snapshot: Snapshot, rows: IntArray, *, preempt: bool) -> IntArray:
    """Pods that would fit somewhere if nothing else were pending (and, with preemption, if nothing else ran)."""
    pods = snapshot.pods
    room = snapshot
    if preempt:
        node = np.full(len(pods), PENDING, dtype=np.int64)
        room = seated(snapshot, Seats(np.arange(len(pods)), node, np.zeros(len(pods), dtype=np.int64)))
    among = np.zeros(len(pods), dtype=np.bool_)
    among[rows] = True
    batch = batch_of(room, HostPrice(), among)
    starts = {shape for shape, copies in zip(batch.shapes, batch.largest_copies, strict=True) if copies}
    return np.array([pods.shapes[pods.shape[row]] in starts for row in rows.tolist()], dtype=np.bool_)


def proposed(snapshot: Snapshot, seats: Seats, plan: BatchPlan) -> Plan:
    """Binds of these placements, each gang's as a whole phase."""
    pods, names = snapshot.pods, snapshot.nodes.names
    reason = Reason(
        "LeastBatchCost",
        f"part of the cheapest known plan for all pending pods (planner stage {plan.rung})",
        {"usd_per_hour": plan.usd_per_hour, "bound_usd_per_hour": plan.bound_usd},
    )
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


def certified(snapshot: Snapshot, whole: Plan, plan: BatchPlan, price: HostPrice, seconds: float) -> Plan:
    """Plan with its certificate: its present price, and the proven bound on any plan.

    No certificate where the plan evicts pods: the proof covers the capacity that was free.
    """
    if plan.bound_usd <= 0 or any(isinstance(action, Evict) for action in whole.actions):
        return whole
    pods, startable = snapshot.pods, startable_pods(snapshot)
    batch = batch_of(snapshot, price, startable)
    bound = {action.pod: action.node for action in whole.actions if isinstance(action, Bind)}
    runs = {snapshot.nodes.names.row(node) for node in bound.values()}
    opened = sum(float(batch.node_usd[node]) for node in runs if node is not None and not batch.in_use[node])
    price_of = dict(zip(batch.shapes, batch.left_out_usd.tolist(), strict=True))
    left = sum(
        price_of[pods.shapes[pods.shape[r]]] for r in np.flatnonzero(startable).tolist() if pods.names[r] not in bound
    )
    certificate = Certificate(opened + left, min(plan.bound_usd, opened + left), plan.rung, seconds)
    return whole.joined(Plan(certificates={CERTIFICATE: certificate}))
