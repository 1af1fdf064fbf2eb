"""Batch planning, and pod-by-pod packing of what a batch leaves unplaced."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cluster.plans import Plan
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.deciders.memory import Memory
from placement.batch.ladder import BatchSettings, plan_batch, seated
from placement.batch.pod_assignment import all_seats
from placement.batch.proposal import (
    DEALT_BY_PRIORITY,
    certified,
    dealt_by_priority,
    proposed,
    reason_of,
    seats_to_keep,
    within_headroom,
)
from placement.budget import Budget
from placement.engine.packer import Packer
from placement.packing.planner import NO_TURN, pack


def pack_batch(
    snapshot: Snapshot,
    settings: BatchSettings,
    packer: Callable[[Snapshot], Packer],
    memory: Memory,
    budget: Budget,
    *,
    preempt: bool,
) -> Plan:
    """Plan for all pending pods at once, then pod by pod, by priority and with preemption, for the remainder.

    The remainder includes pods that gave up their place for want of power headroom.

    The settings pick the planner (`placement.batch.ladder.rung_for`); the plan's reasons and its certificate name it,
    and no clock cuts it short. packer: makes the packing engine, which takes a second, only where it is needed. budget:
    for packing the remainder.
    """
    began_s = budget.clock()
    plan = plan_batch(snapshot, memory.columns, settings)
    memory.columns = plan.memory
    powered, without = within_headroom(snapshot, plan.seats)
    plan = replace(plan, seats=powered, waiting=np.union1d(plan.waiting, without))
    seats = seats_to_keep(snapshot, plan, preempt=preempt)
    whole = proposed(snapshot, seats, reason_of(plan))
    after = seated(snapshot, seats)
    if len(after.pods.pending):
        packed = pack(after, packer(after), budget, preempt=preempt)
        whole = whole.joined(_with_unserved(after, packed, settings))
    return certified(snapshot, whole, plan, settings.price, budget.clock() - began_s)


def _with_unserved(snapshot: Snapshot, packed: Plan, settings: BatchSettings) -> Plan:
    """The plan of packing, with placements for the pods that its budget had no turn for."""
    no_turn = {reason.code for reason in NO_TURN.values()}
    unserved = {each.workload for each in packed.unplaced if each.reason.code in no_turn}
    if not unserved:
        return packed
    pods, after = snapshot.pods, snapshot.after(packed.actions)
    labels = [f"Gang/{snapshot.gangs[gang].name}" if gang >= 0 else "" for gang in pods.gang.tolist()]
    waits = [(gang or f"Pod/{name}") in unserved for gang, name in zip(labels, pods.names, strict=True)]
    among = np.array(waits, dtype=np.bool_) & (after.pods.node == PENDING) & (pods.node == PENDING)
    seats = all_seats(tuple(dealt_by_priority(after, among, settings)))
    served = {labels[row] or f"Pod/{pods.names[row]}" for row in seats.row.tolist()}
    unplaced = tuple(each for each in packed.unplaced if each.workload not in served)
    return replace(packed, unplaced=unplaced).joined(proposed(after, seats, DEALT_BY_PRIORITY))
