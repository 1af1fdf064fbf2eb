"""GPUType: a kind of GPU that the fleet has or could rent: how to recognise it, its memory, its price."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from controller.api.conditions import ObservedStatus
from controller.api.fields import LabelKey, LabelValue, ListOf, PositiveNumber, PositiveQuantity, Strict, as_set
from controller.api.flaw import Flaw, repeat_flaws
from controller.api.kind import Kind
from controller.api.metadata import ApiVersion, OwnMeta
from controller.api.printer_columns import ACCEPTED, AGE, Column
from controller.api.rule import unchanging

GpuResource = Literal["nvidia.com/gpu", "amd.com/gpu"]


class NodeLabel(Strict):
    """A node has GPUs of this type when its label `key` has one of these values."""

    key: LabelKey = Field(default="nvidia.com/gpu.product", description="Key of the node label that tells the product.")
    values: Annotated[ListOf[LabelValue], as_set()] = Field(
        min_length=1, max_length=32, description="Values of that label that mean this type, any of them."
    )


class PricePerHour(Strict):
    """US dollars for one device for one hour."""

    on_demand: PositiveNumber = Field(
        description="Dollars per device and hour on demand; for owned hardware, what an hour of it costs you."
    )
    spot: PositiveNumber | None = Field(
        default=None, description="Dollars per device and hour on spot; left out where there is no such offer."
    )


class GPUTypeSpec(Strict):
    node_label: NodeLabel = Field(description="How a node of this type is recognised.")
    resource_name: GpuResource = Field(
        default="nvidia.com/gpu", description="The resource by which nodes offer and pods ask these devices."
    )
    memory: PositiveQuantity = Field(description="Memory of one device, bytes (`80Gi`).")
    price_per_hour: PricePerHour = Field(description="What one device costs for one hour.")
    inventory: int | None = Field(
        default=None,
        ge=0,
        le=10_000_000,
        description="Devices that may be used at most when no nodes are given; left out: as many as money buys.",
    )


class GPUTypeStatus(ObservedStatus):
    """What Tonnage says of it: Accepted, or why not."""


class GPUType(Strict):
    """A kind of GPU. Not namespaced."""

    api_version: ApiVersion
    kind: Literal["GPUType"]
    metadata: OwnMeta
    spec: GPUTypeSpec = Field(description="How to recognise it, its memory, its price.")
    status: GPUTypeStatus = Field(default=GPUTypeStatus(), description="Written by Tonnage.")


def _value_flaws(gpu_type: GPUType) -> Iterator[Flaw]:
    yield from repeat_flaws(gpu_type.spec.node_label.values, ("spec", "nodeLabel", "values"))


RULES = (unchanging("spec", "resourceName", remedy="make another GPUType, pods run by the count of this resource"),)

SETS = (_value_flaws,)
"""What the types of the lists see to on the API server."""

KIND = Kind(
    name="GPUType",
    model=GPUType,
    plural="gputypes",
    short_names=("gput",),
    is_namespaced=False,
    columns=(
        Column("Memory", ".spec.memory", "string", "Memory of one device."),
        Column("$/h", ".spec.pricePerHour.onDemand", "number", "Dollars per device and hour on demand."),
        Column("Spot $/h", ".spec.pricePerHour.spot", "number", "Dollars per device and hour on spot."),
        Column("Resource", ".spec.resourceName", "string", "Resource by which pods ask for it.", is_wide=True),
        ACCEPTED,
        AGE,
    ),
    rules=RULES,
    checks=SETS,
    watched_as="gpu_types",
)
