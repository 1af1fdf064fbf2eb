"""Moves of running pods within a share of the cluster, where that pays, after every pending pod was placed."""

from dataclasses import replace

from cluster.plans import Phase, Plan, Reason
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.deciders.decider import Turn
from controller.deciders.decisions import Decisions
from placement.batch.consolidation import consolidated
from placement.moves import defragmented

OUT_OF_TIME = Reason("MovesOutOfTime", "time ran out before the search for moves began")


def decide(share: Snapshot, turn: Turn) -> Plan:
    """Moves that reduce fragmentation, or that empty nodes where pods are planned in batches.

    Their work is limited by the numbers of pods and nodes, so only time can forbid them.
    """
    decisions = turn.decisions
    if not decisions.move_share:
        return Plan()
    if turn.budget.left_s <= 0:
        return Plan(cut_short=(OUT_OF_TIME,))
    seen = _without_moving_twice(turn.before, share)
    if decisions.planner == "columns":
        return Plan(phases=_consolidation(seen, decisions))
    packer, _ = turn.memory.packing_under(decisions).packer_for(seen, turn.budget.left_s)
    return Plan(phases=defragmented(seen, packer, decisions.move_price, decisions.move_share))


def _without_moving_twice(before: Snapshot, share: Snapshot) -> Snapshot:
    """The share in which pods that this plan starts, or restarts on other devices, stay where it puts them."""
    stays = (share.pods.node == before.pods.node) & (share.pods.devices == before.pods.devices)
    return replace(share, pods=replace(share.pods, movable=share.pods.movable & stays))


def _consolidation(share: Snapshot, decisions: Decisions) -> tuple[Phase, ...]:
    """Moves that empty nodes."""
    most = int(decisions.move_share * int((share.pods.node != PENDING).sum()))
    return consolidated(share, decisions.move_price, decisions.batch.price, most_moves=most)
