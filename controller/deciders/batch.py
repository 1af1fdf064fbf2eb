"""Planning in batches, and how what a batch leaves over is served."""

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
    """Seats for all that waits at once; then, by priority and with preemption, for what the batch could not seat.

    That includes what had to give up its seat for want of power headroom.

    The settings pick the planner (`placement.batch.ladder.rung_for`), which is told in the plan's reasons and in its
    certificate; no clock cuts one short. packer: makes the packing engine, which takes a second, if it is needed.
    budget: for what the batch leaves over.
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
