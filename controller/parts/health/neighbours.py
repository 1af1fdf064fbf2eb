"""Neighbours: other detectors, whose conditions and taints are evidence, and other remediations, which own nodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from controller.api.health_policy import Detector, HealthPolicySpec, Owner
from controller.api.structs import Node
from controller.dra.objects import ResourceSlice
from health.remediation.facts import Evidence, NodeKey, Source
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


def tainted_devices(slices: Iterable[ResourceSlice]) -> dict[str, dict[str, list[str]]]:
    """Devices that DRA drivers have tainted in their ResourceSlices: by node, and by the taint's key."""
    found: dict[str, dict[str, list[str]]] = {}
    for each in slices:
        for device in each.spec.devices:
            for taint in device.taints:
                by_key = found.setdefault(each.spec.node_name, {})
                by_key.setdefault(taint.key, []).append(f"{each.spec.driver}/{device.name}")
    return found


def evidence_of(
    node: Node, spec: HealthPolicySpec, now_s: float, devices: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Iterator[Evidence]:
    """What other detectors say about the node, while they say it. devices: its tainted ones, by the taint's key."""
    taints = {taint.key for taint in node.spec.taints}
    conditions = {condition.type for condition in node.status.conditions if condition.status == "True"}
    for detector in (*DETECTORS, *spec.detectors):
        says = detector.condition if detector.condition in conditions else detector.taint
        if says is None or says not in conditions | taints | devices.keys():
            continue
        on = f" on {', '.join(sorted(devices[says])[:4])}" if says in devices else ""
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
            shown=(f"{detector.name}: {says}{on}",),
        )
