"""Batch planning, and pod-by-pod packing of what a batch leaves unplaced."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.deciders.memory import Memory
from placement.batch.headroom import within_headroom
from placement.batch.ladder import BatchSettings, plan_batch, seated
from placement.batch.proposal import certified, proposed, seats_to_keep
from placement.budget import Budget
from placement.engine.packer import Packer
from placement.packing.planner import pack


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
    whole = proposed(snapshot, seats, plan)
    after = seated(snapshot, seats)
    if len(after.pods.pending):
        whole = whole.joined(pack(after, packer(after), budget, preempt=preempt))
    return certified(snapshot, whole, plan, settings.price, budget.clock() - began_s)
