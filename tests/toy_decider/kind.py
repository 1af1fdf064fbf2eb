"""GPUReserve: how many GPUs should stay free in the whole fleet."""

from typing import Literal

from pydantic import Field

from controller.api.conditions import ObservedStatus
from controller.api.fields import ApiVersion, OwnMeta, Strict
from controller.api.kind import ACCEPTED, AGE, Kind, PrinterColumn


class GPUReserveSpec(Strict):
    gpus: int = Field(ge=1, le=1_000_000, description="Number of GPUs that should stay free.")


class GPUReserveStatus(ObservedStatus):
    """Whether it is Accepted, and whether a decider has Found it short."""


class GPUReserve(Strict):
    """GPUs that should stay free."""

    api_version: ApiVersion
    kind: Literal["GPUReserve"]
    metadata: OwnMeta
    spec: GPUReserveSpec = Field(description="How many GPUs should stay free.")
    status: GPUReserveStatus = Field(default=GPUReserveStatus(), description="Written by Tonnage.")


KIND = Kind(
    model=GPUReserve,
    plural="gpureserves",
    is_namespaced=False,
    columns=(PrinterColumn("GPUs", ".spec.gpus", "integer", "GPUs that should stay free."), ACCEPTED, AGE),
)
