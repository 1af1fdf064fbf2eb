"""GPUType: a GPU product that the fleet has or could rent: how to recognise it, its memory, its price."""

from typing import Annotated, Literal

from pydantic import Field

from controller.api import fields
from controller.api.conditions import ObservedStatus
from controller.api.kind import ACCEPTED, AGE, Kind, PrinterColumn
from controller.api.rule import Rule, unchanging

HOURS_PER_YEAR = 8766.0
"""365.25 × 24."""


class NodeLabel(fields.Strict):
    """Node label that marks this GPU type: a node has such GPUs when label `key` has one of these values."""

    key: fields.LabelKey = Field(
        default="nvidia.com/gpu.product", description="Key of the node label that names the GPU product."
    )
    values: Annotated[fields.ListOf[fields.LabelValue], fields.as_set()] = Field(
        min_length=1, max_length=32, description="Values of that label that mean this GPU type."
    )


class OwnedDevice(fields.Strict):
    """What an owned device costs: its purchase over the years of its use, and its power."""

    capital: fields.PositiveNumber = Field(description="Dollars paid for one device with its part of the server.")
    years: fields.PositiveNumber = Field(description="Years over which that is written off.")
    watts: fields.NumberFromZero = Field(
        default=0.0, description="Watts that the device and its part of server and cooling draw on average."
    )
    dollars_per_kwh: fields.NumberFromZero = Field(default=0.0, description="Price of power, dollars per kWh.")

    @property
    def price_per_hour(self) -> float:
        return self.capital / (self.years * HOURS_PER_YEAR) + self.watts / 1000 * self.dollars_per_kwh


class PowerHour(fields.Strict):
    """Price and carbon intensity of power from an instant on, until the next entry's."""

    from_time: fields.Instant = Field(description="When they begin to hold, such as the hour of a day-ahead market.")
    dollars_per_kwh: Annotated[float, Field(ge=-1000, le=1000)] | None = Field(
        default=None, description="Price of power, dollars per kWh; owned hardware pays it instead of its own."
    )
    grams_per_kwh: fields.NumberFromZero = Field(
        default=0.0, description="Carbon intensity of power, grams of CO2 (or what warms as much) per kWh."
    )

    def paid(self, owned: OwnedDevice | None) -> float:
        """Dollars per kWh; where it does not say so, those of the owned hardware."""
        return (owned.dollars_per_kwh if owned else 0.0) if self.dollars_per_kwh is None else self.dollars_per_kwh


class PricePerHour(fields.Strict):
    """US dollars for one device for one hour."""

    on_demand: fields.PositiveNumber | None = Field(
        default=None, description="On-demand price, dollars per device and hour; leave it out for owned hardware."
    )
    owned: OwnedDevice | None = Field(default=None, description="Owned hardware, instead of the on-demand price.")
    committed: fields.PositiveNumber | None = Field(
        default=None,
        description="Price under a commitment, for nodes with the label karpenter.sh/capacity-type=reserved or "
        "tonnage.dev/capacity-type=committed.",
    )
    spot: fields.PositiveNumber | None = Field(
        default=None, description="Spot price, dollars per device and hour; leave it out where there is no spot offer."
    )

    @property
    def usual(self) -> float:
        """Price where neither spot nor a commitment decides; one of the two is always written."""
        return self.on_demand or (self.owned.price_per_hour if self.owned else 0.0)


class GPUTypeSpec(fields.Strict):
    node_label: NodeLabel = Field(description="Node label that marks nodes with this GPU type.")
    other_labels: Annotated[fields.ListOf[NodeLabel], fields.keyed_by("key")] = Field(
        default=(), max_length=8, description="Further labels that mark them, on nodes of other origin."
    )
    node_selector: dict[str, fields.LabelValue] = Field(
        default_factory=dict,
        max_length=8,
        description="Labels that such nodes have besides, such as a MIG profile, the replicas of each GPU, or the "
        "topology of a TPU slice. Of two types that fit, the one with more of them counts.",
    )
    resource_name: fields.LabelKey = Field(
        default="nvidia.com/gpu",
        description="Extended resource that nodes offer and pods request for these devices, of any vendor: whole "
        "devices (nvidia.com/gpu, amd.com/gpu, google.com/tpu), slices (nvidia.com/mig-1g.10gb) or shared replicas "
        "(nvidia.com/gpu.shared).",
    )
    share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Part of a physical device that one is: 0.1 for a replica of a GPU shared by ten, 1/7 for the "
        "smallest MIG slice.",
    )
    devices_per_pod: Annotated[fields.ListOf[int], fields.as_set()] = Field(
        default=(),
        max_length=16,
        description="Numbers of these devices that a pod may request, such as 1 of a shared GPU, or all 4 chips of a "
        "host of a TPU slice; default: any.",
    )
    memory: fields.PositiveQuantity = Field(description="Memory of one device, bytes (`80Gi`).")
    price_per_hour: PricePerHour = Field(description="Price of one device for one hour.")
    power_prices: Annotated[fields.ListOf[PowerHour], fields.keyed_by("fromTime")] = Field(
        default=(),
        max_length=1000,
        description="Power at its site over time, for owned hardware, objectives with energy, and work that waits.",
    )
    network: fields.PositiveQuantity | None = Field(
        default=None,
        description="What one device has of its node's network, bytes per second each way (`25G` of 200 Gbit/s); "
        "needed where a service's phases may be apart.",
    )
    inventory: int | None = Field(
        default=None,
        ge=0,
        le=10_000_000,
        description="Maximum number of devices when planning without nodes; default: unlimited.",
    )


class GPUType(fields.OwnKind):
    """GPU product with its memory and price. Not namespaced."""

    kind: Literal["GPUType"]
    spec: GPUTypeSpec = Field(description="How to recognise the GPU, its memory, its price.")
    status: ObservedStatus = Field(default=ObservedStatus(), description="Written by Tonnage.")


RULES = (
    Rule(
        ("spec", "pricePerHour"),
        "has(self.onDemand) != has(self.owned)",
        "should have either onDemand or owned",
        lambda price: (price.on_demand is None) != (price.owned is None),
    ),
    unchanging(
        "spec", "resourceName", remedy="create another GPUType, because running pods are counted by this resource"
    ),
)

KIND = Kind(
    model=GPUType,
    plural="gputypes",
    short_names=("gput",),
    is_namespaced=False,
    columns=(
        PrinterColumn("Memory", ".spec.memory", "string", "Memory of one device."),
        PrinterColumn("$/h", ".spec.pricePerHour.onDemand", "number", "Dollars per device and hour on demand."),
        PrinterColumn("Spot $/h", ".spec.pricePerHour.spot", "number", "Dollars per device and hour on spot."),
        PrinterColumn("Resource", ".spec.resourceName", "string", "Resource that pods request.", is_wide=True),
        ACCEPTED,
        AGE,
    ),
    rules=RULES,
    watched_as="gpu_types",
)
