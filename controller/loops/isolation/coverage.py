"""Coverage: which policy covers which pod, what its node is ordered to do, and what the node reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from cluster.clock import Clock
from cluster.errors import UNREADABLE
from controller.api.labels import SANDBOX_LABEL
from controller.api.sandbox_policy import SandboxClass, SandboxPolicySpec
from controller.api.structs import ContainerStatus, Pod, PodStatus
from controller.kube.cache import Resource
from controller.loops.loop import Leader
from isolation.orders import ORDERS, REPORT, IsolationReport, Orders, SandboxOrder


class SandboxContainerStatus(ContainerStatus, frozen=True):
    container_id: str = msgspec.field(default="", name="containerID")


class SandboxPodStatus(PodStatus, frozen=True):
    container_statuses: tuple[SandboxContainerStatus, ...] = ()


class SandboxPod(Pod, frozen=True):
    """v1 Pod with the ids of its containers."""

    status: SandboxPodStatus = SandboxPodStatus()

    def container_id(self, name: str | None) -> str:
        """Id of the container of this name, by default of the first; empty while it does not run."""
        wanted = name or (self.spec.containers[0].name if self.spec.containers else "")
        return next((each.container_id for each in self.status.container_statuses if each.name == wanted), "")


STALE_S = 15.0
"""Age from which a report no longer counts; agents send one a second."""
MOST = 2**53
"""Largest number in a report. Larger ones are exact in no metric, and those of hundreds of digits in none at all."""
LONGEST_LIFE = 128
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
        meta = pod.metadata
        if pod.status.phase != "Running" or not pod.spec.node_name or meta.deletion_timestamp is not None:
            continue
        for policy, spec in sorted(policies.items()):
            is_in = not spec.namespaces or meta.namespace in spec.namespaces
            if is_in and spec.selector.match_labels.items() <= meta.labels.items():
                order, container_id = None, pod.container_id(spec.container)
                if container_id:
                    chosen = class_of(spec, meta.labels.get(SANDBOX_LABEL, ""))
                    order = SandboxOrder(
                        container_id,
                        f"{policy}/{meta.namespace}",
                        chosen.priority,
                        None if chosen.budget is None else int(chosen.budget),
                        int(chosen.guaranteed or 0),
                        int(chosen.agent_memory or 0),
                    )
                found[meta.uid] = Covered(name, meta.uid, pod.spec.node_name, policy, order)
                break
    return Coverage(found)


def class_of(spec: SandboxPolicySpec, label: str) -> SandboxClass:
    """The class that the label names, or else the first."""
    return next((each for each in spec.classes if each.name == label), spec.classes[0])


class SandboxChannel:
    """Orders to all nodes and their reports, on the agents' connections. Any thread may use it.

    Values are replaced whole: the connections' thread reads orders and writes reports, the loop does the opposite.
    """

    sends, receives = ORDERS, REPORT

    def __init__(self, clock: Clock, leader: Leader) -> None:
        """leader: orders of an earlier epoch are refused by the nodes."""
        self._clock, self._leader = clock, leader
        self._orders: Mapping[str, Mapping[str, SandboxOrder]] | None = None
        self._sent: dict[str, tuple[Orders, bytes]] = {}
        self._received: dict[str, tuple[IsolationReport, float]] = {}
        """Newest report of each node, and when it arrived."""

    def set_orders(self, orders: Mapping[str, Mapping[str, SandboxOrder]] | None) -> None:
        """Orders by node; None: not known yet, so that nodes keep what they have."""
        self._orders = orders

    def message_to(self, node: str) -> bytes | None:
        """Orders for a node that has reported; the same text until they change. None: nothing to say."""
        orders = self._orders
        if orders is None:
            return None
        wanted, epoch = orders.get(node, {}), self._leader.epoch
        before = self._sent.get(node)
        if before is None or before[0].sandboxes != wanted or before[0].epoch != epoch:
            sequence = before[0].sequence + 1 if before is not None and before[0].epoch == epoch else 0
            made = Orders(node, epoch, sequence, wanted)
            before = self._sent[node] = (made, msgspec.json.encode(made))
        return before[1]

    def receive(self, node: str, text: bytes) -> str:
        """Takes a report; returns why it cannot be read, or nothing."""
        try:
            report = msgspec.json.decode(text, type=IsolationReport)
        except UNREADABLE as error:
            return f"the report on sandboxes cannot be read: {error}"
        if report.node != node:
            return f"the report names node {report.node}"
        numbers = [report.budget_bytes, report.reserved_bytes]
        for each in report.sandboxes.values():
            numbers += [each.agent_bytes, each.calls_bytes, each.running, each.queued, each.frozen]
            numbers += each.happened.values()
        if min(numbers) < 0 or max(numbers) > MOST or len(report.life) > LONGEST_LIFE:
            return f"the report on sandboxes has a count below 0 or above {MOST}, or a session of a long name"
        self._received = {**self._received, node: (report, self._clock())}
        return ""

    def reports(self) -> Mapping[str, IsolationReport]:
        """Reports that are not stale, by node."""
        since_s = self._clock() - STALE_S
        return {node: report for node, (report, at_s) in self._received.items() if at_s >= since_s}
