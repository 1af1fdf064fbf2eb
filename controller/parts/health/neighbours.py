"""Neighbours: other detectors, whose conditions and taints are evidence, and other remediations, which own nodes."""

from collections.abc import Iterator

from controller.api.health_policy import Detector, HealthPolicySpec, Owner
from controller.kube.structs import Node
from health.remediation.evidence import Evidence, NodeKey, Source
from health.verdicts.verdict import Part, Syndrome

OWNERS = (
    Owner(name="nvsentinel", label="dgxc.nvidia.com/nvsentinel-state"),
    Owner(name="cluster-autoscaler", taint="ToBeDeletedByClusterAutoscaler"),
    Owner(name="karpenter", taint="karpenter.sh/disrupted"),
)
"""Known remediations. Source: NVSentinel, "Node states"; Karpenter and cluster autoscaler, documentation of taints."""
DETECTORS = tuple(
    Detector(name="node-problem-detector", condition=condition)
    for condition in ("KernelDeadlock", "ReadonlyFilesystem", "XfsShutdown")
)
"""Known detectors. Source: node-problem-detector, configuration of its kernel monitor."""


def owner_of(node: Node, spec: HealthPolicySpec) -> str:
    """Name of another remediation that owns the node; empty for none."""
    taints = {taint.key for taint in node.spec.taints}
    for owner in (*OWNERS, *spec.owners):
        if (owner.label and owner.label in node.metadata.labels) or (owner.taint and owner.taint in taints):
            return owner.name
    return ""


def evidence_of(node: Node, spec: HealthPolicySpec, now_s: float) -> Iterator[Evidence]:
    """What other detectors say about the node, while they say it."""
    taints = {taint.key for taint in node.spec.taints}
    conditions = {condition.type for condition in node.status.conditions if condition.status == "True"}
    for detector in (*DETECTORS, *spec.detectors):
        says = detector.condition if detector.condition in conditions else detector.taint
        if says is None or says not in conditions | taints:
            continue
        yield Evidence(
            job="",
            incarnation="",
            syndrome=Syndrome.NONE,
            part=Part.NODE,
            nodes=(NodeKey(node.metadata.name, node.metadata.uid),),
            pods=(),
            since_s=now_s,
            at_s=now_s,
            confidence=0.8,
            source=Source.NEIGHBOUR,
            shown=(f"{detector.name}: {says}",),
        )
