"""Packing decider: pending pods and gangs onto nodes and devices, by priority, as a plan with reasons."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from cluster.plans import CutShort, Plan, Reason, Unplaced
from cluster.snapshot import Snapshot
from placement.budget import Budget
from placement.engine.packer import Packer
from placement.packing.draft import Draft
from placement.packing.pending_units import Unit, pending_units
from placement.packing.phases import phases_of
from placement.packing.reasons import Reasons
from placement.packing.service import Served, Service
from placement.packing.sparing import spare_victims

WORK_PER_S = 2_000_000.0
"""Places examined per second of the deadline, as `Draft.work` counts them. Measured on a core of 2026 with the policy
`tonnage`, 200 to 20,000 nodes and up to 300 shapes: 2.1 to 3.4 million per second; 0.8 million where 500 shapes of pods
share devices. So 4,000 pods on 1,000 nodes use 1.3 seconds of a plan (`make bench-binding`)."""


def packing_work_of(within_s: float) -> float:
    """Packing work that belongs to a deadline, in examined places."""
    return WORK_PER_S * within_s


def no_limit() -> Budget:
    """Budget for a caller without a deadline."""
    return Budget(math.inf)


def pack(
    snapshot: Snapshot,
    packer: Packer,
    budget: Budget | None = None,
    *,
    preempt: bool = True,
    tried: frozenset[str] = frozenset(),
) -> Plan:
    """Plan that places every pending unit that fits, by priority, and reports the rest with what was short where.

    A unit is a pod or a whole gang. A unit that does not fit is skipped and holds nothing, so it blocks no other.
    Preempted pods are served again in their own turn. Units beyond the budget wait, with that as their reason; without
    a budget every unit is served. tried: what the last plan tried in vain, as `tried_in_vain` returns it.
    """
    budget = no_limit() if budget is None else budget
    draft = Draft(snapshot, packer, tried)
    left = pending_units(draft)
    service, turn, had_turn = Service(draft, budget, preempt=preempt), Served(1), frozenset[int]()
    while left and turn.seated and not turn.ended:  # again: evictions may free more than they must
        turn = service.serve(left)
        spare_victims(draft)
        turn = replace(turn, unserved=turn.unserved - had_turn)
        had_turn |= {row for unit in left for row in unit.rows}
        left = pending_units(draft)
    return Plan(
        phases=phases_of(draft),
        unplaced=tuple(_unplaced(draft, left, turn)),
        cut_short=(OUT_OF_TIME,) if turn.ended == "time" else (),
    )


OUT_OF_TIME = Reason("PackingOutOfTime", "the deadline passed before the work of placing pods was done")


def _unplaced(draft: Draft, units: list[Unit], turn: Served) -> Iterator[Unplaced]:
    """Each waiting unit with what was short, or with the limit that kept it from its turn."""
    reasons = Reasons(draft)
    for unit in units:
        had_no_turn = turn.ended and not turn.unserved.isdisjoint(unit.rows)
        why = NO_TURN[turn.ended] if had_no_turn else reasons.of(unit)
        yield Unplaced(unit.label(draft.snapshot), why)


def tried_in_vain(plan: Plan, before: frozenset[str]) -> frozenset[str]:
    """Units that had a turn, now or in the plans before, since one after which none waited for its turn.

    The next plan begins with the others, so that a flood of pods that fit nowhere is gone through in a few plans.
    """
    waits = {each.workload: each.reason.code for each in plan.unplaced}
    no_turn = {each.code for each in NO_TURN.values()}
    had_none = {workload for workload, code in waits.items() if code in no_turn} - before
    return frozenset(waits.keys() - had_none) if had_none else frozenset()


NO_TURN: Mapping[CutShort, Reason] = {
    "work": Reason("WorkUsedUp", "the work that the deadline of this plan allows was used up before its turn"),
    "time": Reason("DeadlinePassed", "the deadline of this plan passed before its turn"),
}
