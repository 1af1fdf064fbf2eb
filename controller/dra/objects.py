"""ResourceSlices, claims and DeviceClasses of resource.k8s.io/v1 as slim structs with the fields that allocation
reads."""

from dataclasses import dataclass

import msgspec

from controller.api.labels import EPOCH_ANNOTATION, PLACED_AT_ANNOTATION
from controller.api.structs import Amount, Meta, NodeSelector, OwnerWithUid, PodToleration, Slim

API = "/apis/resource.k8s.io/v1"

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Finalizer of every allocated claim; deallocation removes it. Source: resource/v1 types.go, `Finalizer`."""

MAX_RESERVATIONS = 256
"""Maximum number of pods of one claim. Source: resource/v1 types.go, `ResourceClaimReservedForMaxSize`."""


@dataclass(frozen=True, slots=True, order=True)
class DeviceId:
    """Cluster-wide identity of a device."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class Attribute(Slim, frozen=True):
    """Attribute value of one of four types; all four are empty for a type that is not listed here."""

    integer: int | None = msgspec.field(default=None, name="int")
    boolean: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class ValidRange(Slim, frozen=True):
    min: Amount
    max: Amount | None = None
    step: Amount | None = None


class RequestPolicy(Slim, frozen=True):
    """How much of a capacity one allocation may take: `default` where the request does not say."""

    default: Amount | None = None
    valid_values: tuple[Amount, ...] = ()
    valid_range: ValidRange | None = None


class DeviceCapacity(Slim, frozen=True):
    value: Amount
    request_policy: RequestPolicy | None = None


class DeviceTaint(Slim, frozen=True):
    key: str
    value: str = ""
    effect: str = ""


class DeviceToleration(PodToleration, frozen=True):
    toleration_seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Source: Kubernetes 1.36, dynamic-resource-allocation/resourceclaim/devicetoleration.go."""
        if (self.effect or taint.effect) != taint.effect or (self.key or taint.key) != taint.key:
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)


class Counter(Slim, frozen=True):
    value: Amount


class CounterSet(Slim, frozen=True):
    """Amounts of a physical device that its partitions share."""

    name: str
    counters: dict[str, Counter] = msgspec.field(default_factory=dict)


class CounterUse(Slim, frozen=True):
    """Amounts of a counter set that a device takes while it is allocated."""

    counter_set: str
    counters: dict[str, Counter] = msgspec.field(default_factory=dict)


class Device(Slim, frozen=True):
    name: str
    attributes: dict[str, Attribute] = msgspec.field(default_factory=dict)
    capacity: dict[str, DeviceCapacity] = msgspec.field(default_factory=dict)
    consumes_counters: tuple[CounterUse, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    allow_multiple_allocations: bool = False
    binding_conditions: tuple[str, ...] = ()


class DevicePool(Slim, frozen=True):
    name: str
    generation: int = 0
    resource_slice_count: int = 1


class SliceSpec(Slim, frozen=True):
    driver: str
    pool: DevicePool
    node_name: str = ""
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Slim, frozen=True):
    metadata: Meta
    spec: SliceSpec


class CelSelector(Slim, frozen=True):
    expression: str = ""


class DeviceSelector(Slim, frozen=True):
    cel: CelSelector = CelSelector()


class DeviceClassSpec(Slim, frozen=True):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[msgspec.Raw, ...] = ()


class DeviceClass(Slim, frozen=True):
    metadata: Meta
    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequirements(Slim, frozen=True):
    requests: dict[str, Amount] = msgspec.field(default_factory=dict)


class ExactRequest(Slim, frozen=True):
    device_class_name: str
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements = CapacityRequirements()


class DeviceRequest(Slim, frozen=True):
    name: str
    exactly: ExactRequest | None = None


class Constraint(Slim, frozen=True):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Slim, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    config: tuple[msgspec.Raw, ...] = ()


class ResourceClaimSpec(Slim, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Slim, frozen=True):
    """One device allocated to a claim."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    """Of an allocation beside others of the same device."""
    consumed_capacity: dict[str, Amount] = msgspec.field(default_factory=dict)

    @property
    def id(self) -> DeviceId:
        return DeviceId(self.driver, self.pool, self.device)


class AllocatedDevices(Slim, frozen=True):
    results: tuple[AllocatedDevice, ...] = ()


class Allocation(Slim, frozen=True):
    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None


class Consumer(Slim, frozen=True):
    resource: str
    name: str
    uid: str
    api_group: str = msgspec.field(default="", name="apiGroup")


class ClaimStatus(Slim, frozen=True):
    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()


class ClaimAnnotations(Slim, rename=None, frozen=True):
    epoch: str = msgspec.field(default="", name=EPOCH_ANNOTATION)
    placed_at: str | None = msgspec.field(default=None, name=PLACED_AT_ANNOTATION)


class ResourceClaimMeta(Meta, frozen=True):
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerWithUid, ...] = ()
    annotations: ClaimAnnotations = ClaimAnnotations()


class ResourceClaim(Slim, frozen=True):
    metadata: ResourceClaimMeta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def name(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_allocated(self) -> bool:
        return self.status.allocation is not None

    @property
    def results(self) -> tuple[AllocatedDevice, ...]:
        """Devices that it holds, alone or beside others; admin access holds none."""
        allocation = self.status.allocation
        return tuple(r for r in allocation.devices.results if not r.admin_access) if allocation else ()

    @property
    def held(self) -> tuple[DeviceId, ...]:
        """Devices that the claim holds exclusively."""
        return tuple(result.id for result in self.results if result.share_id is None)

    @property
    def node(self) -> str:
        """Node of its devices; empty for an unallocated claim, and for devices that several nodes can reach."""
        selector = self.status.allocation.node_selector if self.status.allocation else None
        terms = selector.node_selector_terms if selector else ()
        fields = [f for term in terms for f in term.match_fields if f.key == "metadata.name" and f.operator == "In"]
        return fields[0].values[0] if len(terms) == 1 and len(fields) == 1 and len(fields[0].values) == 1 else ""

    def is_reserved_for(self, uid: str) -> bool:
        return any(each.uid == uid for each in self.status.reserved_for)

    def is_owned_by(self, uid: str) -> bool:
        return any(owner.uid == uid and owner.controller for owner in self.metadata.owner_references)
