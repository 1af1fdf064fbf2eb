"""What the watch has seen beyond the snapshot: identities and versions of objects, for preconditions of writes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cluster.plans import Reason
from cluster.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SeenPod:
    """One pod as the watch last saw it."""

    name: str
    """`namespace/name`."""
    uid: str
    version: str
    """resourceVersion."""
    node: str = ""
    """Where it is bound; empty when it is not."""
    scheduler_name: str = "default-scheduler"
    gates: tuple[str, ...] = ()
    is_ending: bool = False
    """It has a deletionTimestamp: it holds its devices until it is gone."""
    is_running: bool = False
    chosen_node: str = ""
    """The node that it was released towards by removing its gate, while it is not bound."""
    devices: tuple[int, ...] = ()
    """Devices that its annotation names."""
    placed_at_s: float | None = None
    """When it was given its node; None where that does not stand on it."""
    has_claims: bool = False
    """Its devices come from ResourceClaims that Tonnage allocates."""


@dataclass(frozen=True, slots=True)
class SeenService:
    """One ModelService as the watch last saw it."""

    name: str
    """`namespace/name`."""
    uid: str
    generation: int
    template: Mapping[str, Any] | None
    """Pod template of an instance; None: Tonnage plans it and makes nothing."""
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeenDeployment:
    """One Deployment of Tonnage's as the watch last saw it."""

    service: str
    """`namespace/name` of the ModelService."""
    gpu_type: str
    replicas: int
    content: str
    """What `service_deployments.content_of` said of the Deployment that was written."""


@dataclass(frozen=True, slots=True)
class SeenGpuType:
    """How nodes of a GPU type are recognised, and by which resource a pod asks for its devices."""

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


class Sightings(Protocol):
    """The caches behind the watches."""

    def snapshot(self) -> Snapshot:
        """The cluster as it was last seen. Raises ObservationError while any part is not synced."""
        ...

    def pod(self, name: str) -> SeenPod | None:
        """None when there is no such pod."""
        ...

    def service(self, name: str) -> SeenService | None: ...

    def generations(self) -> Mapping[str, int]:
        """metadata.generation of every ModelService."""
        ...

    def gpu_type(self, name: str) -> SeenGpuType | None: ...

    def deployments(self) -> Iterable[SeenDeployment]:
        """Those of every ModelService."""
        ...

    def half_started_since_s(self, gang: str) -> float | None:
        """Since when a Gang stands half started, as its status has it. It may speak of an earlier time."""
        ...

    def half_made_claims(self) -> Iterable[SeenClaim]:
        """Claims that Tonnage allocated and that only pods without a node use."""
        ...

    def unallocated(self) -> Mapping[str, Reason]:
        """Why pods (`namespace/name`) are not in the snapshot: their ResourceClaims cannot be allocated yet."""
        ...
