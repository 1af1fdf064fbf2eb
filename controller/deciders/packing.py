"""Packing: a node for every pending pod."""

from dataclasses import replace

from cluster.plans import Plan, Reason
from cluster.snapshot import Snapshot
from controller.deciders.decider import Turn
from controller.deciders.decisions import Decisions
from controller.deciders.memory import PackingMemory
from placement.engine.packer import Packer
from placement.packing.planner import pack, tried_in_vain

ASSURED_SHARE = 0.5
"""Fraction of the work of packing that is done however late it is. Chosen: it takes less than half of the deadline, and
places a thousand pods one by one on 2,000 nodes."""
PRICES_LATE = Reason("PricesLate", "new prices of the packing policy were not ready in time, so earlier ones were used")


def decide(snapshot: Snapshot, turn: Turn) -> Plan:
    """Binds, by priority, and the evictions that make room for them; a pod without a place waits, with the reason.

    The policy learns from what was observed before other deciders changed the snapshot, also where no pod waits. Its
    prices are made beside the plans; where they are late, the plan says so and uses the earlier ones.
    """
    decisions, kept = turn.decisions, turn.memory.packing_under(turn.decisions)
    kept.packer.observe(turn.observed)
    kept.is_late = False
    if len(snapshot.pods.pending):
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
