"""Coverage: which policy covers which pod, and what its node is ordered to do. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from cluster.clock import Clock
from cluster.errors import UNREADABLE
from controller.api.labels import SANDBOX_LABEL
from controller.api.sandbox_policy import SandboxClass, SandboxPolicySpec
from controller.api.structs import Meta, Slim
from controller.kube.cache import Resource
from isolation.orders import ORDERS, REPORT, NodeReport, Orders, SandboxOrder


class SandboxPodMeta(Meta, frozen=True):
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class ContainerName(Slim, frozen=True):
    name: str


class SandboxPodSpec(Slim, frozen=True):
    node_name: str = ""
    containers: tuple[ContainerName, ...] = ()


class ContainerStatus(Slim, frozen=True):
    name: str
    container_id: str = msgspec.field(default="", name="containerID")


class SandboxPodStatus(Slim, frozen=True):
    phase: str = "Pending"
    container_statuses: tuple[ContainerStatus, ...] = ()


class SandboxPod(Slim, frozen=True):
    """v1 Pod, as far as isolation reads it."""

    metadata: SandboxPodMeta
    spec: SandboxPodSpec = SandboxPodSpec()
    status: SandboxPodStatus = SandboxPodStatus()

    def container_id(self, name: str | None) -> str:
        """Id of the container of this name, by default of the first; empty while it does not run."""
        wanted = name or (self.spec.containers[0].name if self.spec.containers else "")
        return next((each.container_id for each in self.status.container_statuses if each.name == wanted), "")


SANDBOX_PODS: Resource[SandboxPod] = Resource(
    "sandbox_pods", "/api/v1/pods", SandboxPod, selectors={"labelSelector": SANDBOX_LABEL}
)


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


STALE_S = 15.0
"""Age from which a report no longer counts; agents send one a second."""


MOST = 2**53
"""Largest number in a report. Larger ones are exact in no metric, and those of hundreds of digits in none at all."""
LONGEST_LIFE = 128


@dataclass(frozen=True, slots=True)
class Heard:
    report: NodeReport
    at_s: float


class SandboxCourier:
    """Orders and reports of all nodes."""

    sends, hears = ORDERS, REPORT

    def __init__(self, clock: Clock, epoch: Callable[[], int]) -> None:
        """epoch: of the Lease; orders of an earlier one are refused by the nodes."""
        self._clock, self._epoch = clock, epoch
        self._orders: Mapping[str, Mapping[str, SandboxOrder]] | None = None
        self._sent: dict[str, tuple[Orders, bytes]] = {}
        self._heard: dict[str, Heard] = {}

    def set_orders(self, orders: Mapping[str, Mapping[str, SandboxOrder]] | None) -> None:
        """Orders by node; None: not known yet, so that nodes keep what they have."""
        self._orders = orders

    def mail_for(self, node: str) -> bytes | None:
        """Text for a node that has reported; the same one until its orders change. None: nothing to say."""
        orders = self._orders
        if orders is None:
            return None
        wanted, epoch = orders.get(node, {}), self._epoch()
        before = self._sent.get(node)
        if before is None or before[0].sandboxes != wanted or before[0].epoch != epoch:
            sequence = before[0].sequence + 1 if before is not None and before[0].epoch == epoch else 0
            made = Orders(node, epoch, sequence, wanted)
            before = self._sent[node] = (made, msgspec.json.encode(made))
        return before[1]

    def heard(self, node: str, text: bytes) -> str:
        """Takes a report; returns why it cannot be read, or nothing."""
        try:
            report = msgspec.json.decode(text, type=NodeReport)
        except UNREADABLE as error:
            return f"the report on sandboxes cannot be read: {error}"
        if report.node != node:
            return f"the report names node {report.node}"
        if not _can_be(report):
            return f"the report on sandboxes has a count below 0 or above {MOST}, or a session of a long name"
        self._heard = {**self._heard, node: Heard(report, self._clock())}
        return ""

    def reports(self) -> Mapping[str, NodeReport]:
        """Reports that are not stale, by node."""
        since_s = self._clock() - STALE_S
        return {node: heard.report for node, heard in self._heard.items() if heard.at_s >= since_s}


def _can_be(report: NodeReport) -> bool:
    numbers = [report.budget_bytes, report.reserved_bytes]
    for each in report.sandboxes.values():
        numbers += [each.agent_bytes, each.calls_bytes, each.running, each.queued, each.frozen, *each.happened.values()]
    return min(numbers) >= 0 and max(numbers) <= MOST and len(report.life) <= LONGEST_LIFE
