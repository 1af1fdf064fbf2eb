"""Volume claims, volumes, storage classes and CSI nodes as slim structs with the fields that placement reads."""

import msgspec

from controller.api.structs import Amount, LabelSelector, Meta, NodeSelector, OwnerWithUid, Slim

API = "/apis/storage.k8s.io/v1"

WAITS = "WaitForFirstConsumer"
"""Binding mode of a class whose claims are bound once a pod's node is chosen; in the other, at once."""
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""Provisioner of classes whose volumes an administrator makes. Source: Kubernetes documentation, "Local volumes"."""
POD_ONLY = "ReadWriteOncePod"
"""Access mode of claims that one pod at a time may use."""


class StorageAnnotations(Slim, rename=None, frozen=True):
    bind_completed: str | None = msgspec.field(default=None, name="pv.kubernetes.io/bind-completed")
    selected_node: str | None = msgspec.field(default=None, name="volume.kubernetes.io/selected-node")
    storage_class: str | None = msgspec.field(default=None, name="volume.beta.kubernetes.io/storage-class")
    is_default_class: str | None = msgspec.field(default=None, name="storageclass.kubernetes.io/is-default-class")


class StorageMeta(Meta, frozen=True):
    annotations: StorageAnnotations = StorageAnnotations()
    owner_references: tuple[OwnerWithUid, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class ClaimResources(Slim, frozen=True):
    requests: dict[str, Amount] = msgspec.field(default_factory=dict)


class ClaimSpec(Slim, frozen=True):
    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str = "Filesystem"
    selector: LabelSelector | None = None
    resources: ClaimResources = ClaimResources()


class StorageStatus(Slim, frozen=True):
    phase: str = ""
    """Empty until Kubernetes has looked at the object, as in files that are yet to be applied."""


class VolumeClaimObject(Slim, frozen=True):
    """v1 PersistentVolumeClaim."""

    metadata: StorageMeta
    spec: ClaimSpec = ClaimSpec()
    status: StorageStatus = StorageStatus()

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def storage_class(self) -> str | None:
        """Name of its class; empty: volumes without a class; None: not said."""
        older = self.metadata.annotations.storage_class
        return self.spec.storage_class_name if older is None else older


class ClaimReference(Slim, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class CsiSource(Slim, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class InTreeDisk(Slim, frozen=True):
    """Disk of a driver inside of Kubernetes, by the field that each of them names it in."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    pd_name: str = ""
    disk_uri: str = msgspec.field(default="", name="diskURI")


class VolumeNodeAffinity(Slim, frozen=True):
    required: NodeSelector | None = None


class VolumeSpec(Slim, frozen=True):
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, Amount] = msgspec.field(default_factory=dict)
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity = VolumeNodeAffinity()
    csi: CsiSource | None = None
    aws_elastic_block_store: InTreeDisk | None = None
    gce_persistent_disk: InTreeDisk | None = None
    azure_disk: InTreeDisk | None = None
    cinder: InTreeDisk | None = None


class VolumeObject(Slim, frozen=True):
    """v1 PersistentVolume."""

    metadata: StorageMeta
    spec: VolumeSpec = VolumeSpec()
    status: StorageStatus = StorageStatus()

    @property
    def storage_class(self) -> str:
        """Name of its class; empty: none."""
        older = self.metadata.annotations.storage_class
        return self.spec.storage_class_name if older is None else older

    @property
    def kept_for(self) -> str:
        """Claim (`namespace/name`) that has it, or for which it is kept; empty: none."""
        reference = self.spec.claim_ref
        return f"{reference.namespace}/{reference.name}" if reference is not None else ""


class TopologyRequirement(Slim, frozen=True):
    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(Slim, frozen=True):
    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Slim, frozen=True):
    """storage.k8s.io/v1 StorageClass."""

    metadata: StorageMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class DriverAllocatable(Slim, frozen=True):
    count: int | None = None


class NodeDriver(Slim, frozen=True):
    name: str
    allocatable: DriverAllocatable = DriverAllocatable()


class CsiNodeSpec(Slim, frozen=True):
    drivers: tuple[NodeDriver, ...] = ()


class CsiNode(Slim, frozen=True):
    """storage.k8s.io/v1 CSINode."""

    metadata: StorageMeta
    spec: CsiNodeSpec = CsiNodeSpec()
