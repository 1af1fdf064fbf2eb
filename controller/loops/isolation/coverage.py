"""Coverage: which policy covers which pod, and what its node is ordered to do. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.api.labels import SANDBOX_LABEL
from controller.api.sandbox_policy import SandboxClass, SandboxPolicySpec
from controller.loops.isolation.pods import SandboxPod
from isolation.orders import SandboxOrder


@dataclass(frozen=True, slots=True)
class Covered:
    """Pod that runs and has a policy."""

    pod: str
    """`namespace/name`."""
    uid: str
    node: str
    policy: str
    order: SandboxOrder | None
    """None while its container does not run."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """All covered pods, by UID."""

    pods: Mapping[str, Covered] = field(default_factory=dict)

    def orders(self) -> Mapping[str, Mapping[str, SandboxOrder]]:
        """Node → the pod's UID → order."""
        found: dict[str, dict[str, SandboxOrder]] = {}
        for uid, covered in sorted(self.pods.items()):
            if covered.order is not None:
                found.setdefault(covered.node, {})[uid] = covered.order
        return found

    def of_policy(self, policy: str) -> tuple[Covered, ...]:
        return tuple(each for _, each in sorted(self.pods.items()) if each.policy == policy)


def coverage_of(policies: Mapping[str, SandboxPolicySpec], pods: Mapping[str, SandboxPod]) -> Coverage:
    """Coverage by policies and pods, by name. A pod that several policies select belongs to the first by name."""
    found: dict[str, Covered] = {}
    for name, pod in pods.items():
        if pod.status.phase != "Running" or not pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            continue
        policy = next((each for each in sorted(policies) if _selects(policies[each], pod)), None)
        if policy is not None:
            order = _order(policy, policies[policy], pod)
            found[pod.metadata.uid] = Covered(name, pod.metadata.uid, pod.spec.node_name, policy, order)
    return Coverage(found)


def _selects(spec: SandboxPolicySpec, pod: SandboxPod) -> bool:
    is_in = not spec.namespaces or pod.metadata.namespace in spec.namespaces
    return is_in and spec.selector.match_labels.items() <= pod.metadata.labels.items()


def _order(policy: str, spec: SandboxPolicySpec, pod: SandboxPod) -> SandboxOrder | None:
    container_id = pod.container_id(spec.container)
    if not container_id:
        return None
    chosen = class_of(spec, pod.metadata.labels.get(SANDBOX_LABEL, ""))
    return SandboxOrder(
        container_id,
        f"{policy}/{pod.metadata.namespace}",
        chosen.priority,
        None if chosen.budget is None else int(chosen.budget),
        int(chosen.guaranteed or 0),
        int(chosen.agent_memory or 0),
    )


def class_of(spec: SandboxPolicySpec, label: str) -> SandboxClass:
    """The class that the label names, or else the first."""
    return next((each for each in spec.classes if each.name == label), spec.classes[0])
