"""View of the watched objects beyond the snapshot: uids and resourceVersions, for the preconditions of writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster import workloads
from controller.api import structs


@dataclass(frozen=True, slots=True)
class SeenPod:
    """Pod in its last observed state."""

    name: str
    """`namespace/name`."""
    uid: str
    version: str
    """resourceVersion."""
    node: str = ""
    """Node to which it is bound; empty when it is not bound."""
    scheduler_name: str = "default-scheduler"
    gates: tuple[str, ...] = ()
    is_ending: bool = False
    """Whether it has a deletionTimestamp; it holds its devices until it is gone."""
    is_running: bool = False
    chosen_node: str = ""
    """Node that was selected when its gate was removed, while it is not bound."""
    devices: tuple[int, ...] = ()
    """Device indices in its annotation."""
    placed_at_s: float | None = None
    """Time at which it was placed, seconds since the epoch; None without that annotation."""
    has_claims: bool = False
    """Whether its devices come from ResourceClaims that Tonnage allocates."""
    is_recreated: bool = False
    """Whether its owner creates a new pod when this one is deleted."""
    controller: str = ""
    """What made it, `Kind/namespace/name`; empty: nothing did."""
    has_share: bool = False
    """Whether it asks for a share of a device by its annotation."""
    required_terms: tuple[structs.SelectorTerm, ...] = ()
    """Alternatives of its required node affinity, as they are written."""
    scheduler_says: str = ""
    """Words of kube-scheduler for not binding it to its chosen node; empty where it has said nothing."""
    nominated_node: str = ""
    """Node on which kube-scheduler is stopping other pods for it."""
    held_seats: str = ""
    """Annotation with the seats that are held for it."""


@dataclass(frozen=True, slots=True)
class SeenRefusal:
    """Refusal of a pod by kube-scheduler or a kubelet where Tonnage placed it."""

    uid: str
    """Of the pod."""
    namespace: str
    shape: workloads.PodShape
    """Its shape as long as it had no node."""
    node: str
    words: str
    """Who refused it, and in which words."""
    at_s: float
    """Seconds since the epoch."""
    reason: str = ""
    """The kubelet's word for it."""
    is_of_node: bool = False
    """Whether the node would refuse pods of anybody."""
    stands: bool = False
    """Whether the pod still waits for this node."""


@dataclass(frozen=True, slots=True)
class SeenNode:
    """Node in its last observed state."""

    name: str
    uid: str
    version: str
    """resourceVersion."""
    taints: tuple[Mapping[str, str], ...] = ()
    """As they are written, so that writing them again changes none."""


@dataclass(frozen=True, slots=True)
class SeenService:
    """ModelService in its last observed state."""

    name: str
    """`namespace/name`."""
    uid: str
    generation: int
    template: Mapping[str, Any] | None
    """Pod template of an instance; None: Tonnage plans the service but creates no Deployment."""


@dataclass(frozen=True, slots=True)
class SeenDeployment:
    """Deployment that Tonnage created, in its last observed state."""

    service: str
    """`namespace/name` of the ModelService."""
    instance_type: workloads.InstanceType
    replicas: int
    content: str
    """Content hash from `kube_world.deployments.content_of` at the time of writing."""
    no_pods: str = ""
    """Why no pods are created for it."""
    unready: int = 0
    """Replicas that are not ready."""


@dataclass(frozen=True, slots=True)
class SeenGpuType:
    """Node label that identifies a GPU type, and the extended resource with which pods request its devices."""

    label: str
    values: tuple[str, ...]
    resource: str


@dataclass(frozen=True, slots=True)
class SeenClaim:
    """One ResourceClaim that Tonnage allocated and whose pods have no node, as the watch last saw it."""

    name: str
    """`namespace/name`."""
    uid: str
    pods: tuple[str, ...]
    """Those that use it, `namespace/name` each."""
    holder: str
    """What holds its devices among the pods of the snapshot."""
    placed_at_s: float | None = None
    """When it was given its devices; None where that does not stand on it."""
