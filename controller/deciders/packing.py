"""Packing: a node for every pending pod, pod by pod or all at once, and moves after it."""

from dataclasses import replace

import numpy as np

from cluster.plans import Plan, Reason
from cluster.snapshot import PENDING, Snapshot
from controller.deciders.decider import Turn
from controller.deciders.decisions import Decisions
from controller.deciders.memory import PackingMemory
from placement.batch import proposal
from placement.batch.consolidation import candidates, emptying
from placement.batch.ladder import plan_batch, seated
from placement.engine.packer import Packer
from placement.packing.planner import pack, tried_in_vain

ASSURED_SHARE = 0.5
"""Fraction of the work of packing that is done however late it is. Chosen: it takes less than half of the deadline, and
places a thousand pods one by one on 2,000 nodes."""
PRICES_LATE = Reason("PricesLate", "new prices of the packing policy were not ready in time, so earlier ones were used")
OUT_OF_TIME = Reason("MovesOutOfTime", "time ran out before nodes were examined for emptying")
POLISH_WORK = 20_000
"""Nodes that one plan examines for emptying, times the nodes of the fleet: a tenth of a second of a slow core."""


def decide(snapshot: Snapshot, turn: Turn) -> Plan:
    """Binds, by priority, and the evictions that make room for them; a pod without a place waits, with the reason."""
    decisions, kept = turn.decisions, turn.memory.packing_under(turn.decisions)
    kept.packer.observe(turn.observed)
    kept.is_late = False
    if decisions.planner == "columns":
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


def decide_moves(snapshot: Snapshot, turn: Turn) -> Plan:
    """Moves that empty nodes where that pays, whatever planner placed their pods; a few nodes have their turn."""
    decisions, memory = turn.decisions, turn.memory
    if not decisions.move_share:
        return Plan()
    if turn.budget.left_s <= 0:
        return Plan(cut_short=(OUT_OF_TIME,))
    seen = _movable(snapshot, turn.observed)
    order, last = candidates(seen), snapshot.nodes.names.row(memory.polished)
    after = order.index(last) + 1 if last in order else 0
    nodes = [*order[after:], *order[:after]][: 1 + POLISH_WORK // len(snapshot.nodes)]
    if nodes:
        memory.polished = snapshot.nodes.names[nodes[-1]]
    most = int(decisions.move_share * int((snapshot.pods.node != PENDING).sum()))
    packer = memory.packing_under(decisions).packer_for(seen, turn.budget.left_s)
    return Plan(phases=emptying(seen, packer, nodes, decisions.move_price, most_moves=most))


def _movable(snapshot: Snapshot, observed: Snapshot) -> Snapshot:
    """The snapshot in which only those pods may move that stand where they were observed, and that no rule between pods
    is about: what this plan starts stays where it puts it."""
    pods, before = snapshot.pods, observed.pods
    rows = before.names.rows(pods.names)
    known = rows >= 0
    stays = np.zeros(len(pods), dtype=np.bool_)
    stays[known] = (pods.node[known] == before.node[rows[known]]) & (pods.devices[known] == before.devices[rows[known]])
    if (plain := proposal.by_batch(snapshot)) is not None:
        stays &= plain
    return replace(snapshot, pods=replace(pods, movable=pods.movable & stays))
