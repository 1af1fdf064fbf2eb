"""Plan from a batch's placements: gangs whole, then single pods; packing serves the remainder, by priority."""

from collections.abc import Iterator

import numpy as np

from cluster.actions import Bind, Evict
from cluster.arrays import BoolArray, IntArray
from cluster.plans import Certificate, Phase, Plan, Reason, Step
from cluster.power_floors import PowerFloors, held_devices
from cluster.snapshot import PENDING, Snapshot, device_numbers
from placement.batch.ladder import BatchPlan, BatchSettings, cost_of, plan_batch, seated
from placement.batch.lp.columns import Memory
from placement.batch.pod_assignment import Seats
from placement.batch.problem import HostPrice, batch_of
from placement.batch.startable import complete_gangs
from placement.engine.ledger import Ledger
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
    priority = effective_priority(snapshot)
    waiting = plan.waiting[complete_gangs(snapshot)[plan.waiting]]
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


DEALT_BY_PRIORITY = Reason(
    "DealtByPriority", "best fit among the pods of its priority: the work for pods one by one was used up"
)


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


def certified(snapshot: Snapshot, whole: Plan, plan: BatchPlan, price: HostPrice, seconds: float) -> Plan:
    """Plan with its certificate: the price of the nodes that it starts, and the proven bound on it.

    No certificate where the plan evicts pods: the proof covers the capacity that was free.
    """
    if plan.bound_usd <= 0 or any(isinstance(action, Evict) for action in whole.actions):
        return whole
    pods, startable = snapshot.pods, plan.startable
    batch = batch_of(snapshot, price, startable)
    seats = _seats_in(snapshot, whole)
    waiting = np.setdiff1d(pods.pending, seats.row)
    short = waiting[startable[waiting]]
    cost = cost_of(snapshot, batch, seats, short)
    figures = {SHORT: float(len(short)), IMPOSSIBLE: float(len(waiting) - len(short))}
    certificate = Certificate(cost.node_usd, cost.node_bound_usd(plan.bound_usd), plan.rung, seconds, figures=figures)
    return whole.joined(Plan(certificates={CERTIFICATE: certificate}))


def _seats_in(snapshot: Snapshot, plan: Plan) -> Seats:
    """Placements of a plan's binds, without devices."""
    pods, nodes = snapshot.pods.names, snapshot.nodes.names
    binds = [action for action in plan.actions if isinstance(action, Bind)]
    rows = [(pods.row(action.pod), nodes.row(action.node)) for action in binds]
    known = [(row, node) for row, node in rows if row is not None and node is not None]
    row, node = np.array(known, dtype=np.int64).reshape(-1, 2).T
    return Seats(row, node, np.zeros(len(row), dtype=np.int64))


def within_headroom(snapshot: Snapshot, seats: Seats) -> tuple[Seats, IntArray]:
    """Placements that the headroom carries, and the rows of pods that lost theirs; a gang keeps all of its or none.

    All of them where no headroom is published. By priority, then in the order of the batch.
    """
    floors = PowerFloors.of(snapshot)
    if floors is None or not len(seats):
        return seats, np.zeros(0, dtype=np.int64)
    ledger, keep = Ledger.of(snapshot), np.zeros(len(seats), dtype=np.bool_)
    for unit in _units(snapshot, seats):
        keep[unit] = _taken(snapshot, floors, ledger, seats, unit)
    kept = Seats(seats.row[keep], seats.node[keep], seats.devices[keep])
    return kept, seats.row[~keep]


def _units(snapshot: Snapshot, seats: Seats) -> list[list[int]]:
    """Positions of placements that are kept or dropped together, the most important first."""
    priority, gang = effective_priority(snapshot)[seats.row], snapshot.pods.gang[seats.row]
    found: dict[tuple[int, int], list[int]] = {}
    for seat in np.argsort(-priority, kind="stable").tolist():
        found.setdefault((int(gang[seat]), -1 if gang[seat] >= 0 else seat), []).append(seat)
    return list(found.values())


def _taken(snapshot: Snapshot, floors: PowerFloors, ledger: Ledger, seats: Seats, unit: list[int]) -> bool:
    """Charges the placements of a unit if all of them fit; else none."""
    for done, seat in enumerate(unit):
        if not _seated(snapshot, floors, ledger, seats, seat):
            for before in reversed(unit[:done]):
                _charge(snapshot, floors, ledger, seats, before, sign=-1)
            return False
    return True


def _seated(snapshot: Snapshot, floors: PowerFloors, ledger: Ledger, seats: Seats, seat: int) -> bool:
    node = int(seats.node[seat])
    before = _held(ledger, node)
    _charge(snapshot, floors, ledger, seats, seat, sign=1, follow=False)
    after = _held(ledger, node)
    if after == before or floors.bears(node, after):
        floors.follow((node,), np.array([after]))
        return True
    _charge(snapshot, floors, ledger, seats, seat, sign=-1, follow=False)
    return False


def _charge(
    snapshot: Snapshot, floors: PowerFloors, ledger: Ledger, seats: Seats, seat: int, *, sign: int, follow: bool = True
) -> None:
    shape = snapshot.pods.shapes[snapshot.pods.shape[seats.row[seat]]]
    node, devices = int(seats.node[seat]), device_numbers(int(seats.devices[seat]))
    if sign > 0:
        ledger.take(shape, node, devices)
    else:
        ledger.give(shape, node, devices)
    if follow:
        floors.follow((node,), np.array([_held(ledger, node)]))


def _held(ledger: Ledger, node: int) -> int:
    return int(held_devices(ledger.gpu_milli[node : node + 1], ledger.gpus[node : node + 1])[0])


MOST_PRIORITIES = 20
"""Priorities that one plan deals, the highest first; those below wait. Clusters have a handful of PriorityClasses."""


def dealt_by_priority(snapshot: Snapshot, among: BoolArray, settings: BatchSettings) -> Iterator[Seats]:
    """Placements of these pending pods, by priority, gangs whole. among: shape (pods,)."""
    priority = effective_priority(snapshot)
    for level in np.unique(priority[among])[::-1][:MOST_PRIORITIES].tolist():
        plan = plan_batch(snapshot, Memory(), settings, rung="best-fit", among=among & (priority == level))
        seats, _ = within_headroom(snapshot, plan.seats)
        yield seats
        snapshot = seated(snapshot, seats)
