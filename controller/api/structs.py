"""Kubernetes objects as slim structs, with only the fields that planning reads.

Both responses of the API server and manifests are decoded into them, so that one set of rules reads both. Decoding is
lenient where the API server has validated: a value that a later release adds must not make the snapshot unreadable.
"""

import re
from typing import Any, Generic, TypeVar

import msgspec

from controller.api import labels as api_labels

Item = TypeVar("Item")
Amount = str | int | float
"""Kubernetes quantity, not parsed yet: text from the API server, text or a number in a manifest."""


class Slim(msgspec.Struct, rename="camel", frozen=True, gc=False, omit_defaults=True):
    """Part of an object. It cannot form a reference cycle, so the garbage collector skips it."""


class Meta(Slim, frozen=True):
    """metadata of any object."""

    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None


class PodAnnotations(Slim, rename=None, frozen=True):
    gpu_milli: str | None = msgspec.field(default=None, name=api_labels.GPU_MILLI_ANNOTATION)
    gpu_memory: str | None = msgspec.field(default=None, name=api_labels.GPU_MEMORY_ANNOTATION)
    gpu_types: str | None = msgspec.field(default=None, name=api_labels.GPU_TYPES_ANNOTATION)
    devices: str | None = msgspec.field(default=None, name=api_labels.DEVICES_ANNOTATION)
    movable: str | None = msgspec.field(default=None, name=api_labels.MOVABLE_ANNOTATION)
    checkpoint_at: str | None = msgspec.field(default=None, name=api_labels.CHECKPOINT_ANNOTATION)
    saves_when_stopped: str | None = msgspec.field(default=None, name=api_labels.SAVES_ANNOTATION)
    node: str | None = msgspec.field(default=None, name=api_labels.CHOSEN_NODE_ANNOTATION)
    placed_at: str | None = msgspec.field(default=None, name=api_labels.PLACED_AT_ANNOTATION)
    held_seats: str | None = msgspec.field(default=None, name=api_labels.HELD_SEATS_ANNOTATION)
    kueue_count: str | None = msgspec.field(default=None, name="kueue.x-k8s.io/pod-group-total-count")
    kueue_within: str | None = msgspec.field(default=None, name="kueue.x-k8s.io/podset-required-topology")
    kueue_prefer_within: str | None = msgspec.field(default=None, name="kueue.x-k8s.io/podset-preferred-topology")
    job_set_topology: str | None = msgspec.field(default=None, name="alpha.jobset.sigs.k8s.io/exclusive-topology")
    job_set_by_selector: str | None = msgspec.field(default=None, name="alpha.jobset.sigs.k8s.io/node-selector")
    lws_topology: str | None = msgspec.field(default=None, name="leaderworkerset.sigs.k8s.io/exclusive-topology")
    lws_size: str | None = msgspec.field(default=None, name="leaderworkerset.sigs.k8s.io/size")
    volcano_group: str | None = msgspec.field(default=None, name="scheduling.k8s.io/group-name")
    volcano_task: str | None = msgspec.field(default=None, name="volcano.sh/task-spec")
    kai_group: str | None = msgspec.field(default=None, name="pod-group-name")
    kai_fraction: str | None = msgspec.field(default=None, name="gpu-fraction")
    kai_memory: str | None = msgspec.field(default=None, name="gpu-memory")
    do_not_disrupt: str | None = msgspec.field(default=None, name=api_labels.DO_NOT_DISRUPT_ANNOTATION)
    karpenter_do_not_disrupt: str | None = msgspec.field(default=None, name="karpenter.sh/do-not-disrupt")
    safe_to_evict: str | None = msgspec.field(default=None, name="cluster-autoscaler.kubernetes.io/safe-to-evict")
    mirror: str | None = msgspec.field(default=None, name="kubernetes.io/config.mirror")

    @property
    def asks_to_stay(self) -> bool:
        """Whether the pod is not to be disrupted while it runs, in the words of Tonnage or of a cluster autoscaler."""
        return "true" in (self.do_not_disrupt, self.karpenter_do_not_disrupt) or self.safe_to_evict == "false"


class OwnerReference(Slim, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool = False


class OwnerWithUid(OwnerReference, frozen=True):
    uid: str = ""


class PodMeta(Meta, frozen=True):
    creation_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    labels: dict[str, str] = {}
    annotations: PodAnnotations = PodAnnotations()

    @property
    def controller(self) -> str:
        """Controller that made it, `Kind/namespace/name`; empty: none."""
        own = (each for each in self.owner_references if each.controller)
        return next((f"{each.kind}/{self.namespace}/{each.name}" for each in own), "")

    @property
    def gang(self) -> str | None:
        """Name of the Gang in its namespace that its label names."""
        return self.labels.get(api_labels.GANG_LABEL)

    @property
    def service(self) -> str | None:
        """Name of the ModelService in its namespace that its labels name, or of that one's pool for a phase."""
        phase = self.labels.get(api_labels.PHASE_LABEL)
        service = self.labels.get(api_labels.SERVICE_LABEL)
        return f"{service}-{phase}" if service and phase else service


class Resources(Slim, frozen=True):
    requests: dict[str, Amount] = {}
    limits: dict[str, Amount] = {}


class ContainerPort(Slim, frozen=True):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Slim, frozen=True):
    name: str = ""
    resources: Resources = Resources()
    restart_policy: str | None = None
    ports: tuple[ContainerPort, ...] = ()

    @property
    def is_sidecar(self) -> bool:
        """Whether an init container keeps running beside the others."""
        return self.restart_policy == "Always"


class SelectorRequirement(Slim, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class SelectorTerm(Slim, frozen=True):
    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(Slim, frozen=True):
    node_selector_terms: tuple[SelectorTerm, ...] = ()


class Unread(Slim, frozen=True):
    """Object of which only its presence matters."""


class NodeAffinity(Slim, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[Unread, ...] = msgspec.field(default=(), name="preferredDuringSchedulingIgnoredDuringExecution")


class LabelSelector(Slim, frozen=True):
    """meta/v1 LabelSelector; an empty one selects everything, a missing one nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class PodAffinityTerm(Slim, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PodAffinity(Slim, frozen=True):
    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[Unread, ...] = msgspec.field(default=(), name="preferredDuringSchedulingIgnoredDuringExecution")


class Affinity(Slim, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class PodToleration(Slim, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SpreadConstraint(Slim, frozen=True):
    when_unsatisfiable: str = "DoNotSchedule"
    topology_key: str = ""
    max_skew: int = 1
    min_domains: int | None = None
    label_selector: LabelSelector | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class SchedulingGate(Slim, frozen=True):
    name: str


class PodClaim(Slim, frozen=True):
    """Reference from a pod to a ResourceClaim: an existing one, or one generated from a template."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class GeneratedClaim(Slim, frozen=True):
    """ResourceClaim that was generated for a pod from a template; without a name when none is needed."""

    name: str
    resource_claim_name: str | None = None


class ExtendedRequest(Slim, frozen=True):
    resource_name: str = ""


class ExtendedResourceClaim(Slim, frozen=True):
    """ResourceClaim that kube-scheduler made for extended resources of a pod which a DeviceClass offers."""

    resource_claim_name: str
    request_mappings: tuple[ExtendedRequest, ...] = ()


class SchedulingGroup(Slim, frozen=True):
    """PodGroup of Kubernetes' Workload API (1.36)."""

    pod_group_name: str | None = None


class WorkloadReference(Slim, frozen=True):
    """Workload of Kubernetes' Workload API (1.35), and the group of pods in it."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class NodeConstraints(Slim, frozen=True):
    """Part of a pod's spec that restricts it to some nodes."""

    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    tolerations: tuple[PodToleration, ...] = ()


class OperatingSystem(Slim, frozen=True):
    name: str = ""


class VolumeClaim(Slim, frozen=True):
    claim_name: str = ""


class Volume(Slim, frozen=True):
    """Volume of a pod, as far as it decides where the pod may run."""

    name: str = ""
    persistent_volume_claim: VolumeClaim | None = None
    ephemeral: Unread | None = None
    """A claim that is made for the pod, named after it and the volume."""
    gce_persistent_disk: Unread | None = None
    aws_elastic_block_store: Unread | None = None
    azure_disk: Unread | None = None
    cinder: Unread | None = None
    rbd: Unread | None = None
    iscsi: Unread | None = None


class PodSpec(NodeConstraints, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: Resources = Resources()
    overhead: dict[str, Amount] = {}
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    host_network: bool = False
    os: OperatingSystem | None = None
    volumes: tuple[Volume, ...] = ()
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    active_deadline_seconds: int | None = None
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    resource_claims: tuple[PodClaim, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None


class ContainerStatus(Slim, frozen=True):
    """What the kubelet holds for a container, which differs from its spec while it is resized in place."""

    name: str = ""
    allocated_resources: dict[str, Amount] = {}
    resources: Resources = Resources()


class PodCondition(Slim, frozen=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(Slim, frozen=True):
    phase: str = "Pending"
    start_time: str | None = None
    nominated_node_name: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[GeneratedClaim, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaim | None = None


class Pod(Slim, frozen=True):
    """v1 Pod."""

    metadata: PodMeta
    spec: PodSpec
    status: PodStatus = PodStatus()

    @property
    def was_placed(self) -> bool:
        """Whether Tonnage decided where the pod runs: its annotation says so, or no other scheduler would have."""
        return self.metadata.annotations.node is not None or self.spec.scheduler_name == api_labels.SCHEDULER_NAME

    @property
    def belongs_to_its_node(self) -> bool:
        """Whether its replacement comes back to the same node: a static pod's, or a DaemonSet's."""
        owners = self.metadata.owner_references
        is_static = self.metadata.annotations.mirror is not None
        return is_static or any(each.controller and each.kind in ("DaemonSet", "Node") for each in owners)

    @property
    def holds_nothing(self) -> bool:
        """Whether the pod holds no resources: it has ended, or was deleted before it was bound."""
        ended = self.status.phase in ("Succeeded", "Failed")
        return ended or (self.metadata.deletion_timestamp is not None and not self.spec.node_name)


class NodeAnnotations(Slim, rename=None, frozen=True):
    released: str | None = msgspec.field(default=None, name=api_labels.RELEASED_ANNOTATION)


class NodeMeta(Meta, frozen=True):
    labels: dict[str, str] = {}
    annotations: NodeAnnotations = NodeAnnotations()


class NodeTaint(Slim, frozen=True):
    key: str
    value: str = ""
    effect: str = "NoSchedule"
    time_added: str | None = None


class NodeSpec(Slim, frozen=True):
    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] = ()


class NodeCondition(Slim, frozen=True):
    type: str
    status: str


class NodeStatus(Slim, frozen=True):
    allocatable: dict[str, Amount] = {}
    capacity: dict[str, Amount] = {}
    conditions: tuple[NodeCondition, ...] = ()


class Node(Slim, frozen=True):
    """v1 Node."""

    metadata: NodeMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """False when the condition Ready is not True, or is missing while the node has other conditions."""
        conditions = self.status.conditions
        return not conditions or any(c.type == "Ready" and c.status == "True" for c in conditions)


class NamespaceMeta(Meta, frozen=True):
    labels: dict[str, str] = {}


class Namespace(Slim, frozen=True):
    """v1 Namespace."""

    metadata: NamespaceMeta


class OwnObject(Slim, frozen=True):
    """Object of one of Tonnage's kinds with spec and status still encoded; its model in `controller/api` reads them."""

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


class BudgetSpec(Slim, frozen=True):
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class BudgetStatus(Slim, frozen=True):
    disruptions_allowed: int = 0
    observed_generation: int | None = None
    """None: no controller has seen the budget."""


class BudgetObject(Slim, frozen=True):
    """policy/v1 PodDisruptionBudget."""

    metadata: Meta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class LeaseSpec(Slim, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class LeaseMeta(Meta, frozen=True):
    annotations: dict[str, str] = {}


class LeaseObject(Slim, frozen=True):
    """coordination.k8s.io/v1 Lease."""

    metadata: LeaseMeta
    spec: LeaseSpec = LeaseSpec()


class ListMeta(Slim, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(Slim, Generic[Item], frozen=True):
    """Page of a list, or the whole list."""

    items: list[Item] | None = None
    metadata: ListMeta = ListMeta()


class Event(Slim, frozen=True):
    """Watch event, one line of a watch."""

    type: str
    """Type of the event: `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`."""
    object: msgspec.Raw


def object_from(content: Any, kind: type[Item]) -> Item:
    """Struct of plain data that is already validated, as manifests are."""
    return msgspec.convert(content, kind)


DEEPEST = 100
"""Levels of maps and lists that are read. Chosen: a pod template in an object of another project has about 20."""

_TOKEN = re.compile(rb'"(?:[^"\\]+|\\.)*"|[\[\]{}]', re.DOTALL)


def shallow(body: bytes, deepest: int = DEEPEST) -> bytes:
    """JSON in which each map and list that would be the level after `deepest` is null, the same as a field left out."""
    level, kept_from = 0, 0
    kept: list[bytes] = []
    for token in _TOKEN.finditer(body):
        match body[token.start()]:
            case 0x7B | 0x5B:  # { [
                level += 1
                if level == deepest + 1:
                    kept += [body[kept_from : token.start()], b"null"]
            case 0x7D | 0x5D:  # } ]
                if level == deepest + 1:
                    kept_from = token.end()
                level -= 1
    return b"".join([*kept, body[kept_from:]])


def plain(raw: msgspec.Raw | bytes) -> Any:
    """Plain data of JSON, at most about `DEEPEST` levels of it where there are very many."""
    body = bytes(raw)
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        return msgspec.json.decode(shallow(body))


def nests_too_deep(value: Any, deepest: int = DEEPEST) -> bool:
    """Whether plain data has more levels of maps and lists than are read."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(deepest):
        inside = [each.values() if isinstance(each, dict) else each for each in level]
        level = [inner for values in inside for inner in values if isinstance(inner, dict | list)]
        if not level:
            return False
    return True
