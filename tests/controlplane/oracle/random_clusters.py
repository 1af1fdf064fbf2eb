"""Random small clusters: nodes, volumes, pods that run, and pods that wait and use every field that a filter reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.controlplane.oracle import random_pods, random_volumes
from tests.controlplane.oracle.random_pods import NAMESPACES, Object, RandomPod, Surroundings

RACK, ZONE, HOSTNAME = "example.com/rack", "topology.kubernetes.io/zone", "kubernetes.io/hostname"
CLASSES: Mapping[str, Mapping[str, Any]] = {
    "low": {"value": -10},
    "high": {"value": 1000},
    "polite": {"value": 500, "preemptionPolicy": "Never"},
}
"""PriorityClasses that pods name."""
RUNTIMES: Mapping[str, Mapping[str, str]] = {
    "sandboxed": {"cpu": "500m", "memory": "256Mi"},
    "virtual": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"},
}
"""RuntimeClasses by name: the overhead of their pods."""
MOST_NODES = 12


@dataclass(frozen=True, slots=True)
class RandomCluster:
    """Objects of one cluster, in the order in which they must be created."""

    seed: int
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels by namespace."""
    nodes: tuple[Object, ...]
    volumes: random_volumes.Volumes
    running: tuple[RandomPod, ...]
    """Pods that are bound by `spec.nodeName`, and pods that wait and are nominated to a node."""
    pending: tuple[RandomPod, ...]
    kinds: tuple[str, ...] = field(default=())
    """Kinds of constraints that the nodes or other pods put on every pod that waits."""


def random_cluster(seed: int, *, pending: int = 10, nodes: int = 0) -> RandomCluster:
    """The cluster of this seed, with so many pods that wait. nodes: 0: a random number."""
    chance = Random(seed)  # noqa: S311 - a repeatable case, no secret
    count = nodes or chance.randint(3, MOST_NODES)
    names = [f"s{seed}-n{number}" for number in range(count)]
    fleet = tuple(_node(chance, name, names) for name in names)
    volumes = random_volumes.random_volumes(chance, names)
    around = Surroundings(tuple(names), volumes.uses)
    running: list[RandomPod] = []
    for node in fleet:
        name = node["metadata"]["name"]
        most = int(node["status"]["allocatable"].get("pods", "110"))
        running += [
            random_pods.running_pod(chance, f"r{len(running) + n}", name, around)
            for n in range(min(chance.choice((0, 1, 1, 2, 2, 3)), most))
        ]
    if chance.random() < 0.3:
        for node in chance.sample(fleet, chance.randint(1, 2)):
            node["status"]["allocatable"][random_pods.SEAT] = "1"
            name = node["metadata"]["name"]
            running += random_pods.nominated_pod(chance, f"nominated-{len(running)}", around, name)
    waiting = tuple(random_pods.pending_pod(chance, f"p{n}", around) for n in range(pending))
    team = {name: {"team": chance.choice(("red", "blue"))} if chance.random() < 0.8 else {} for name in NAMESPACES}
    return RandomCluster(seed, team, fleet, volumes, tuple(running), waiting, _kinds(fleet, running))


def _kinds(nodes: tuple[Object, ...], running: list[RandomPod]) -> tuple[str, ...]:
    kinds = {kind for pod in running for kind in pod.kinds if kind.startswith("running: ")}
    if any(node["spec"].get("taints") for node in nodes):
        kinds.add("node: taints")
    if any(node["spec"].get("unschedulable") for node in nodes):
        kinds.add("node: cordon")
    if any(int(node["status"]["allocatable"].get("pods", "110")) < 10 for node in nodes):
        kinds.add("node: few pods")
    names = [node["metadata"]["labels"].get(HOSTNAME) for node in nodes]
    if len(set(names)) < len(names) or None in names:
        kinds.add("node: twins or no hostname")
    return tuple(sorted(kinds))


def _node(chance: Random, name: str, names: list[str]) -> Object:
    labels = {
        ZONE: f"z{chance.randrange(3)}",
        RACK: f"r{chance.randrange(4)}",
        HOSTNAME: name if chance.random() < 0.88 else chance.choice(names),
        "disk": chance.choice(("ssd", "ssd", "hdd")),
        "generation": chance.choice(("1", "2", "3", "4", "10", "x7", "007")),
    }
    missing = {ZONE: 0.12, RACK: 0.15, HOSTNAME: 0.06, "disk": 0.3, "generation": 0.25}
    labels = {key: value for key, value in labels.items() if chance.random() >= missing[key]}
    allocatable = {
        "cpu": chance.choice(("4", "8", "7500m", "16", "32")),
        "memory": chance.choice(("16Gi", "33000000Ki", "64G", "128Gi")),
        "pods": chance.choice(("2", "3", "5", "30", "110", "110", "110", "110")),
    }
    further = {
        "ephemeral-storage": (0.9, ("10Gi", "40Gi", "100G", "200Gi")),
        "hugepages-2Mi": (0.8, ("0", "256Mi", "1Gi", "2Gi")),
        "hugepages-1Gi": (0.2, ("1Gi", "2Gi")),
        "nvidia.com/gpu": (0.75, ("1", "4", "8", "8")),
        "example.com/fpga": (0.8, ("1", "2", "4", "8")),
        "rdma/hca": (0.75, ("1", "4", "1k")),
        "habana.ai/gaudi": (0.6, ("0", "8", "8", "8")),
    }
    allocatable |= {key: chance.choice(of) for key, (share, of) in further.items() if chance.random() < share}
    taints = []
    for key in ("dedicated", "maintenance", "gpu"):
        if chance.random() < 0.08:
            effect = chance.choice(("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"))
            taint = {"key": key, "effect": effect}
            taints.append(taint if chance.random() < 0.4 else {**taint, "value": chance.choice(("yes", "no"))})
    spec: dict[str, Any] = {"taints": taints} if taints else {}
    if chance.random() < 0.08:
        spec["unschedulable"] = True
        if chance.random() < 0.5:
            spec["taints"] = [*taints, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    conditions = [{"type": "Ready", "status": "True"}] if chance.random() < 0.5 else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": allocatable, "conditions": conditions},
    }
