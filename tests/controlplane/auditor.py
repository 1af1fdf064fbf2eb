"""Independent audit: reads Nodes, Pods and claims from the API, and counts every device again.

It shares no code with what places pods: quantities, devices and capacity are read here by rules of its own.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.controlplane.claims_audit import asked_by_claims, double_devices, misplaced_claims
from tests.controlplane.kubectl import Kubectl

GPU = "nvidia.com/gpu"
DEVICES = "tonnage.dev/devices"
SUFFIXES = {"m": 1e-3, "k": 1e3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@dataclass(frozen=True)
class Audit:
    """What was found. Everything but `pods` and `bound` should be empty."""

    pods: int
    bound: int
    lost: tuple[str, ...]
    """Pods that should be there and are not."""
    failed: tuple[str, ...]
    """Pods that a node turned away."""
    over_capacity: tuple[str, ...]
    """Nodes whose pods ask for more than they have."""
    double: tuple[str, ...]
    """Devices that two pods were given, or that do not exist."""
    misplaced: tuple[str, ...]
    """Pods with other devices than they ask for, or on a node that is not there."""
    broken_gangs: tuple[str, ...]
    """Gangs that run with fewer members than they need."""

    @property
    def is_clean(self) -> bool:
        wrong = (self.lost, self.failed, self.over_capacity, self.double, self.misplaced, self.broken_gangs)
        return not any(wrong)


def audit(kubectl: Kubectl, expected: Iterable[str] = (), gangs: Mapping[str, int] | None = None) -> Audit:
    """Looks at the whole cluster.

    expected: `namespace/name` of pods that must be there. gangs: gang → least members, by their label.
    """
    nodes = {node["metadata"]["name"]: node["status"]["allocatable"] for node in kubectl.get("nodes")["items"]}
    pods = kubectl.get("pods", "--all-namespaces")["items"]
    alive = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
    bound = [pod for pod in alive if pod["spec"].get("nodeName")]
    asked: defaultdict[str, Counter[str]] = defaultdict(Counter)
    given: Counter[tuple[str, str]] = Counter()
    by_claims = asked_by_claims(kubectl, bound)
    misplaced, double = list(misplaced_claims(kubectl, bound)), list(double_devices(kubectl))
    for pod in bound:
        node, asks = pod["spec"]["nodeName"], _asks(pod)
        if node not in nodes:
            misplaced.append(f"{_name(pod)} on {node}, which is not there")
            continue
        asked[node].update(asks)
        numbers = [n for n in pod["metadata"].get("annotations", {}).get(DEVICES, "").split(",") if n]
        devices = asks[GPU] + by_claims[pod["metadata"]["uid"]]
        if numbers and len(set(numbers)) != devices:
            misplaced.append(f"{_name(pod)} asks for {devices:g} and has {numbers}")
        given.update((node, number) for number in numbers)
        if by_claims[pod["metadata"]["uid"]]:
            continue  # its slices say what its node has; the claims were counted by device
        double += [f"{node} has no device {n}" for n in numbers if int(n) >= float(nodes[node].get(GPU, 0))]
    double += [f"{node} device {number}: {count} pods" for (node, number), count in given.items() if count > 1]
    over = [
        f"{node}: {resource} {amount:g}"
        for node, amounts in asked.items()
        for resource, amount in amounts.items()
        if amount > _amount(nodes[node].get(resource, "0")) * (1 + 1e-9)
    ]
    members = Counter(pod["metadata"].get("labels", {}).get("tonnage.dev/gang", "") for pod in bound)
    names = {_name(pod) for pod in pods}
    return Audit(
        pods=len(alive),
        bound=len(bound),
        lost=tuple(sorted(set(expected) - names)),
        failed=tuple(_name(pod) for pod in pods if pod["status"].get("phase") == "Failed"),
        over_capacity=tuple(over),
        double=tuple(double),
        misplaced=tuple(misplaced),
        broken_gangs=tuple(g for g, least in (gangs or {}).items() if 0 < members[g] < least),
    )


def _name(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _asks(pod: Mapping[str, Any]) -> Counter[str]:
    """Requests of all containers; the pods of these tests have no init containers."""
    total: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        resources = container.get("resources", {})
        for resource, amount in {**resources.get("limits", {}), **resources.get("requests", {})}.items():
            total[resource] += _amount(amount)  # type: ignore[assignment]  # cores may be fractions
    return total


def _amount(written: str) -> float:
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if written.endswith(suffix):
            return float(written.removesuffix(suffix)) * SUFFIXES[suffix]
    return float(written)
