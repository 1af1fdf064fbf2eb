"""Packing: a node for every pending pod of one share of the cluster, pod by pod or all at once."""

from dataclasses import replace

from cluster.plans import Plan, Reason
from cluster.snapshot import Snapshot
from controller.deciders.batch import pack_batch
from controller.deciders.decider import Turn
from controller.deciders.decisions import Decisions
from controller.deciders.memory import PackingMemory
from placement.engine.packer import Packer
from placement.packing.planner import pack, tried_in_vain

ASSURED_SHARE = 0.5
"""Fraction of the work of packing that is done however late it is. Chosen: it takes less than half of the deadline, and
places a thousand pods one by one on 2,000 nodes."""
PRICES_LATE = Reason("PricesLate", "new prices of the packing policy were not ready in time, so earlier ones were used")


def decide(share: Snapshot, turn: Turn) -> Plan:
    """Binds, by priority, and the evictions that make room for them; a pod without a place waits, with the reason."""
    decisions, kept = turn.decisions, turn.memory.packing_under(turn.decisions)
    kept.packer.observe(turn.observed)
    late: list[Reason] = []

    def packer(seen: Snapshot) -> Packer:
        made, in_time = kept.packer_for(seen, turn.budget.left_s)
        if not in_time:
            late.append(PRICES_LATE)
        return made

    if decisions.planner == "columns":
        plan = pack_batch(share, decisions.batch, packer, turn.memory, turn.budget, preempt=decisions.preempt)
    elif len(share.pods.pending):
        plan = pack(share, packer(share), turn.budget, preempt=decisions.preempt, tried=kept.tried)
        kept.tried = tried_in_vain(plan, kept.tried)
    else:
        plan = Plan()
    return replace(plan, cut_short=(*plan.cut_short, *late)) if late else plan


def packer_for(snapshot: Snapshot, decisions: Decisions) -> Packer:
    """The packing engine for a snapshot without memory: the policy knows of the pods in it alone."""
    return PackingMemory.under(decisions).packer.packer(snapshot)
