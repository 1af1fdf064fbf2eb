"""GPUType: a GPU product that the fleet has or could rent: how to recognise it, its memory, its price."""

from typing import Annotated, Literal

from pydantic import Field

from controller.api import fields
from controller.api.conditions import ObservedStatus
from controller.api.kind import ACCEPTED, AGE, Kind, PrinterColumn
from controller.api.rule import unchanging

GpuResource = Literal["nvidia.com/gpu", "amd.com/gpu"]


class NodeLabel(fields.Strict):
    """Node label that marks this GPU type: a node has such GPUs when label `key` has one of these values."""

    key: fields.LabelKey = Field(
        default="nvidia.com/gpu.product", description="Key of the node label that names the GPU product."
    )
    values: Annotated[fields.ListOf[fields.LabelValue], fields.as_set()] = Field(
        min_length=1, max_length=32, description="Values of that label that mean this GPU type."
    )


class PricePerHour(fields.Strict):
    """US dollars for one device for one hour."""

    on_demand: fields.PositiveNumber = Field(
        description="On-demand price, dollars per device and hour; for owned hardware, your own cost per hour."
    )
    spot: fields.PositiveNumber | None = Field(
        default=None, description="Spot price, dollars per device and hour; leave it out where there is no spot offer."
    )


class GPUTypeSpec(fields.Strict):
    node_label: NodeLabel = Field(description="Node label that marks nodes with this GPU type.")
    resource_name: GpuResource = Field(
        default="nvidia.com/gpu", description="Extended resource that nodes offer and pods request for these devices."
    )
    memory: fields.PositiveQuantity = Field(description="Memory of one device, bytes (`80Gi`).")
    price_per_hour: PricePerHour = Field(description="Price of one device for one hour.")
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
