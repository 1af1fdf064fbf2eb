"""Findings on nodes that take no new pods for now, because their kubelet refused some."""

from cluster.plans import Finding, Plan, Reason
from cluster.snapshot import Snapshot
from controller.deciders.decider import Turn

PODS_REFUSED = "PodsRefused"


def decide(snapshot: Snapshot, turn: Turn) -> Plan:  # noqa: ARG001 - every decider's
    findings = (
        Finding(
            f"Node/{each.node}",
            Reason(
                PODS_REFUSED,
                f"its kubelet refused {each.refusals} pods that were placed on it, the last with {each.why}; it takes "
                f"no new pods for now, each time twice as long",
                {"refusals": float(each.refusals), "left_s": round(each.until_s - snapshot.at_s)},
            ),
        )
        for each in snapshot.held_back
    )
    return Plan(findings=tuple(findings))
