"""Pods that ask for Tonnage but that no decider sees, with the reason: their ResourceClaims cannot be allocated yet."""

from cluster.plans import Plan, Reason, Unplaced
from cluster.snapshot import Snapshot
from controller.deciders.decider import Turn


def decide(snapshot: Snapshot, turn: Turn) -> Plan:  # noqa: ARG001 - every decider's
    waiting = (Unplaced(f"Pod/{each.pod}", Reason(each.code, each.words)) for each in snapshot.left_out)
    return Plan(unplaced=tuple(waiting))
