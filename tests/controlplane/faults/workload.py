"""Workload during faults: a fleet, pods and gangs in both placement modes, and a service."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import yaml

from tests.controlplane.manifests import GPU, pod
from tests.controlplane.operators import ROOT

Object = dict[str, Any]

POOLS = [{"placer": "bind", "selector": {"pool": "bind"}}, {"placer": "gate", "selector": {"pool": "gate"}}]
"""Nodes in no pool are left alone."""
PLACEMENT_MODES: Mapping[str, Mapping[str, Any]] = {
    "bind": {"schedulerName": "tonnage"},
    "gate": {"schedulingGates": [{"name": "tonnage.dev/placement"}]},
}
SHARE = {"tonnage.dev/gpu-milli": "1000"}
TIGHT = 2
"""Nodes in a corner of the bind pool that one scenario fills to the last device."""
RESERVED = 4
"""Nodes that Tonnage has no business on; a conflicting writer binds to them."""


def fleet(nodes: int) -> list[Object]:
    """Nodes of 8 GPUs, half of each pool; half of each are A100s, half L4s."""
    kinds = [("bind" if n % 2 else "gate", "open") for n in range(nodes)]
    kinds += [("bind", "tight")] * TIGHT + [("reserved", "reserved")] * RESERVED
    made = []
    for number, (pool, corner) in enumerate(kinds):
        product = "NVIDIA-A100-SXM4-80GB" if number % 4 < 2 else "NVIDIA-L4"
        name = f"n{number:03d}"
        labels = {
            "nvidia.com/gpu.product": product, "pool": pool, "corner": corner, "kubernetes.io/hostname": name
        }  # fmt: skip
        has = {"cpu": "96", "memory": "1Ti", GPU: "8"}
        made.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "status": {"allocatable": has, "capacity": has},
            }
        )
    return made


STRANGERS = "strangers"
"""Namespace of pods that never asked for Tonnage, which stand beside every scenario."""


def strangers() -> list[Object]:
    """Pods of kube-scheduler's on nodes where it binds Tonnage's pods, too, with a disruption budget and without."""
    made: list[Object] = []
    for name in ("plain", "with-budget"):
        labels = {"app": name}
        spec = pod(name, gpus=1, nodeSelector={"pool": "gate", "corner": "open"})["spec"]
        template = {"metadata": {"labels": labels}, "spec": spec}
        made.append(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name, "namespace": STRANGERS},
                "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
            }
        )
    made.append(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "with-budget", "namespace": STRANGERS},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "with-budget"}}},
        }
    )
    return made


@dataclass(frozen=True)
class Wave:
    """Pods without an owner, and gangs of them."""

    pods: tuple[Object, ...]
    gangs: tuple[Object, ...]
    least: Mapping[str, int]
    """Members that each gang needs, by name."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in self.pods)


def wave(name: str, namespace: str, pods: int, chance: Random) -> Wave:
    """Two of three pods are single ones of 1, 2 or 4 GPUs, one of three is a member of a gang of 8."""
    singles, gangs = pods - pods // 3, max(1, pods // 24)
    made = [
        placed(f"{name}-p{n:03d}", namespace, ("bind", "gate")[n % 2], gpus=chance.choice((1, 1, 1, 2, 4)))
        for n in range(singles)
    ]
    objects, least = [], {}
    for number in range(gangs):
        gang, mode = f"{name}-g{number}", ("bind", "gate")[number % 2]
        objects.append(
            {
                "apiVersion": "tonnage.dev/v1alpha1",
                "kind": "Gang",
                "metadata": {"name": gang, "namespace": namespace},
                "spec": {"minMembers": 8},
            }
        )
        least[gang] = 8
        made += [placed(f"{gang}-{n}", namespace, mode, labels={"tonnage.dev/gang": gang}) for n in range(8)]
    # Members of a gang stay together, else it would never be there whole; the rest comes in any order.
    chance.shuffle(made)
    return Wave(tuple(made), tuple(objects), least)


def placed(
    name: str,
    namespace: str,
    mode: str,
    *,
    gpus: int = 1,
    corner: str = "open",
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod that waits for Tonnage in one placement mode."""
    selector = {"pool": mode, "corner": corner}
    made = pod(name, gpus=gpus, nodeSelector=selector, terminationGracePeriodSeconds=0, **PLACEMENT_MODES[mode], **spec)
    made["metadata"] |= {"namespace": namespace, "labels": dict(labels or {})}
    return made


def service(namespace: str) -> Object:
    """The `chat` service of the examples, with a template to make pods of, on nodes placed by `gate`."""
    documents = yaml.safe_load_all((ROOT / "examples" / "services.yaml").read_text(encoding="utf-8"))
    found: Object = next(each for each in documents if each["metadata"]["name"] == "chat")
    container = {"name": "server", "image": "example.com/none"}
    template = {
        "spec": {"containers": [container], "nodeSelector": {"pool": "gate"}, "terminationGracePeriodSeconds": 0}
    }
    found["metadata"]["namespace"] = namespace
    return {**found, "spec": {**found["spec"], "template": template}}


def share(name: str, namespace: str, mode: str = "bind") -> Object:
    """A pod that asks for all of one device, as a share of it."""
    made = placed(name, namespace, mode, gpus=0)
    made["metadata"]["annotations"] = dict(SHARE)
    return made


def small_service(namespace: str) -> Object:
    """A service of one or two instances."""
    made = service(namespace)
    made["spec"]["demand"]["requestsPerSecond"] = 0.5
    return made
