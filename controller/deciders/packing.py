"""Packing: a node for every pending pod, pod by pod or all at once."""

from dataclasses import replace

import numpy as np

from cluster.plans import Plan, Reason
from cluster.snapshot import Snapshot
from controller.deciders.decider import Turn
from controller.deciders.decisions import Decisions
from controller.deciders.memory import PackingMemory
from placement.batch import proposal
from placement.batch.ladder import plan_batch, seated
from placement.engine.packer import Packer
from placement.packing.planner import pack, tried_in_vain

ASSURED_SHARE = 0.5
"""Fraction of the work of packing that is done however late it is. Chosen: it takes less than half of the deadline, and
places a thousand pods one by one on 2,000 nodes."""
PRICES_LATE = Reason("PricesLate", "new prices of the packing policy were not ready in time, so earlier ones were used")


def decide(snapshot: Snapshot, turn: Turn) -> Plan:
    """Binds, by priority, and the evictions that make room for them; a pod without a place waits, with the reason."""
    decisions, kept = turn.decisions, turn.memory.packing_under(turn.decisions)
    kept.packer.observe(turn.observed)
    kept.is_late = False
    if decisions.planner == "columns" and not snapshot.teams:  # it knows no shares
        plan = pack_batch(snapshot, turn)
    elif len(snapshot.pods.pending):
        packer = kept.packer_for(snapshot, turn.budget.left_s)
        moves = decisions.move_price if decisions.make_room else None
        plan = pack(snapshot, packer, turn.budget, preempt=decisions.preempt, tried=kept.tried, moves=moves)
        kept.tried = tried_in_vain(plan, kept.tried)
    else:
        plan = Plan()
    return replace(plan, cut_short=(*plan.cut_short, PRICES_LATE)) if kept.is_late else plan


def packer_for(snapshot: Snapshot, decisions: Decisions) -> Packer:
    """The packing engine for a snapshot without memory: the policy knows of the pods in it alone."""
    return PackingMemory.under(decisions).packer.packer(snapshot)


def pack_batch(snapshot: Snapshot, turn: Turn) -> Plan:
    """Plan for all pending pods at once, then pod by pod, by priority and with preemption, for the remainder.

    The remainder includes pods that gave up their place for want of power headroom.

    The settings pick the planner (`placement.batch.ladder.rung_for`); the plan's reasons and its certificate name it,
    and no clock cuts it short. The packing engine, which takes a second, is only made where it is needed. The turn's
    budget is for packing the remainder.
    """
    settings, memory, budget, preempt = turn.decisions.batch, turn.memory, turn.budget, turn.decisions.preempt
    began_s = budget.clock()
    plan = plan_batch(snapshot, memory.columns, settings, among=proposal.by_batch(snapshot))
    memory.columns = plan.memory
    powered, without = proposal.within_limits(snapshot, plan.seats)
    plan = replace(plan, seats=powered, waiting=np.union1d(plan.waiting, without))
    seats = proposal.seats_to_keep(snapshot, plan, preempt=preempt)
    whole = proposal.proposed(snapshot, seats, proposal.reason_of(plan))
    after = seated(snapshot, seats)
    if len(after.pods.pending):
        packer = memory.packing_under(turn.decisions).packer_for(after, budget.left_s)
        moves = turn.decisions.move_price if turn.decisions.make_room else None
        whole = whole.joined(pack(after, packer, budget, preempt=preempt, moves=moves))
    return proposal.certified(snapshot, whole, plan, budget.clock() - began_s)
