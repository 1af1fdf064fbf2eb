"""Gang: pods that are only useful together, and how near to each other they must be."""

from typing import Any, Literal

from pydantic import Field

from controller.api.fields import LabelKey, Strict
from controller.api.metadata import ApiVersion, OwnMeta


class Topology(Strict):
    """How near to each other the members run."""

    within: LabelKey | None = Field(
        default=None, description="Key of a node label whose value all members must share (a zone, a rack)."
    )
    prefer_within: LabelKey | None = Field(
        default=None, description="Key of a node label of whose values the members should use as few as possible."
    )


class GangSpec(Strict):
    min_members: int = Field(
        ge=1,
        le=1_000_000,
        description="So many members start together, or none does. Members carry the label tonnage.dev/gang.",
    )
    topology: Topology = Field(default=Topology(), description="How near to each other the members run.")
    priority: int | None = Field(
        default=None,
        ge=-(2**31),
        le=2**31 - 1,
        description="Priority of the whole gang; left out: the highest priority among its members.",
    )


class Gang(Strict):
    """Pods that start together or not at all."""

    api_version: ApiVersion
    kind: Literal["Gang"]
    metadata: OwnMeta
    spec: GangSpec
    status: dict[str, Any] | None = Field(default=None, description="Written by Tonnage.")
