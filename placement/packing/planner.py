"""Packing decider: pending pods and gangs onto nodes and devices, by priority, as a plan with reasons."""

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from cluster.actions import Bind, Evict
from cluster.arrays import BoolArray
from cluster.plans import CutShort, Phase, Plan, Reason, Step, Unplaced
from cluster.pods import PENDING, device_numbers
from cluster.snapshot import Snapshot
from placement.budget import Budget
from placement.engine.packer import Packer
from placement.packing.draft import Draft
from placement.packing.gangs import seat_unit
from placement.packing.pending_units import Queue, Unit, as_of_now, pending_units, units_of
from placement.packing.preemption import seat_by_preemption
from placement.packing.reasons import Reasons

WORK_PER_S = 2_700_000.0
"""Candidate places examined per second of the deadline. Measured on a core of 2026 with 200 and 1,000 nodes: 2.2 to 2.9
million per second beside other work. So 4,000 pods on 1,000 nodes are one plan of 2 s (`make bench-binding`)."""
PLACES_PER_POD = 300
"""Fixed price of a pod, in examined places, beside the nodes that are examined for it. Measured the same way."""
PREEMPTION_PLACES = 20_000
"""Price of a search for victims, in examined places. Measured: 7 ms among 8,000 pods on 1,000 nodes."""


def packing_work_of(within_s: float) -> float:
    """Packing work that belongs to a deadline, in examined places."""
    return WORK_PER_S * within_s


def no_limit() -> Budget:
    """Budget for a caller without a deadline."""
    return Budget(math.inf)


def pack(snapshot: Snapshot, packer: Packer, budget: Budget | None = None, *, preempt: bool = True) -> Plan:
    """Plan that places every pending unit that fits, by priority, and reports the rest with what was short where.

    A unit is a pod or a whole gang. A unit that does not fit is skipped and holds nothing, so it blocks no other.
    Preempted pods are served again in their own turn. Units beyond the budget wait, with that as their reason; without
    a budget every unit is served.
    """
    budget = no_limit() if budget is None else budget
    draft = Draft(snapshot, packer)
    left = pending_units(draft)
    turn, futile, had_turn = Served(1), set[Hashable](), frozenset[int]()
    while left and turn.seated and not turn.ended:  # again: evictions may free more than they must
        turn = _serve(draft, left, budget, futile, preempt=preempt)
        turn = replace(turn, unserved=turn.unserved - had_turn)
        had_turn |= {row for unit in left for row in unit.rows}
        left = pending_units(draft)
    return Plan(
        phases=_phases(draft),
        unplaced=tuple(_unplaced(draft, left, turn)),
        cut_short=(OUT_OF_TIME,) if turn.ended == "time" else (),
    )


OUT_OF_TIME = Reason("PackingOutOfTime", "the deadline passed before the work of placing pods was done")


@dataclass(frozen=True, slots=True)
class Served:
    """Result of serving a queue once."""

    seated: int
    """Number of placed units."""
    ended: CutShort = ""
    """Limit that ended it before every unit had its turn."""
    unserved: frozenset[int] = frozenset()
    """Rows of the pods without a turn, in this pass or an earlier one."""


def _serve(draft: Draft, units: list[Unit], budget: Budget, futile: set[Hashable], *, preempt: bool) -> Served:
    """Serves the queue once.

    Victims of preemption join it at their own place. futile: keys of pods that cannot be placed (`_alike`), kept from
    one pass to the next.
    """
    queue = Queue(draft)
    for unit in units:
        queue.add(unit)
    seated = 0
    while waited := queue.next():
        for unit in as_of_now(draft, waited):
            if (alike := _alike(draft, unit)) in futile:
                continue
            if not budget.allows_more():
                late = (each for each in (unit, *queue.waiting()) if _alike(draft, each) not in futile)
                return Served(seated, budget.cut_short, frozenset(row for each in late for row in each.rows))
            mark = draft.mark
            is_seated = _seat(draft, unit, budget, preempt=preempt)
            seated += is_seated
            if not is_seated and alike is not None:
                futile.add(alike)
            if victims := draft.unseated_since(mark):
                futile.clear()  # freed resources may now fit pods that did not fit before
            for victim in units_of(draft, victims):
                queue.add(victim)
    return Served(seated)


def _alike(draft: Draft, unit: Unit) -> Hashable:
    """Key of single pods that fail alike; None for gangs.

    Free resources only shrink from one unit to the next unless pods are preempted. Thousands of pods that fit nowhere
    therefore cost no more than one, and leave the work to the units behind them.
    """
    row = unit.rows[0]
    return None if unit.gang >= 0 else (draft.shape(row), draft.snapshot.pods.owner[row], unit.priority)


def _seat(draft: Draft, unit: Unit, budget: Budget, *, preempt: bool) -> bool:
    """Places a unit in free resources if they suffice, else by preemption for the pods that do not fit."""

    def in_free_resources(row: int, within: BoolArray | None) -> bool:
        places = len(draft.snapshot.nodes) if within is None else int(within.sum())
        budget.spend(PLACES_PER_POD + places)
        return draft.seat(row, within)

    def by_preemption(row: int, within: BoolArray | None) -> bool:
        if in_free_resources(row, within):
            return True
        budget.spend(PREEMPTION_PLACES)
        return seat_by_preemption(draft, row, unit.priority, within)

    if seat_unit(draft, unit, in_free_resources):
        return True
    return preempt and _has_victims(draft, unit) and seat_unit(draft, unit, by_preemption)


def _has_victims(draft: Draft, unit: Unit) -> bool:
    """Whether any pod of lower priority runs."""
    return bool(((draft.node != PENDING) & (draft.priority < unit.priority)).any())


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


def _unplaced(draft: Draft, units: list[Unit], turn: Served) -> Iterator[Unplaced]:
    """Each waiting unit with what was short, or with the limit that kept it from its turn."""
    reasons = Reasons(draft)
    for unit in units:
        had_no_turn = turn.ended and not turn.unserved.isdisjoint(unit.rows)
        why = NO_TURN[turn.ended] if had_no_turn else reasons.of(unit)
        yield Unplaced(unit.label(draft.snapshot), why)


NO_TURN: Mapping[CutShort, Reason] = {
    "work": Reason("WorkUsedUp", "the work that the deadline of this plan allows was used up before its turn"),
    "time": Reason("DeadlinePassed", "the deadline of this plan passed before its turn"),
}
