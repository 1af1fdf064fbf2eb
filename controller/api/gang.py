"""Gang: pods that are started all or nothing, and how close together they must run."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from controller.api.conditions import ObservedStatus
from controller.api.fields import Instant, LabelKey, LabelValue, ListOf, OwnKind, Priority, Strict, keyed_by
from controller.api.kind import AGE, Kind, PrinterColumn, ScaleSubresource, condition, reason
from controller.api.labels import GANG_LABEL
from controller.api.rule import Flaw, Rule, fits_label

MOST_GROUPS = 64
"""Groups of one gang. Chosen: some per role, and a CRD's rules may not cost more."""
Members = Annotated[int, Field(ge=0, le=1_000_000)]
AtLeastOne = Annotated[int, Field(ge=1, le=1_000_000)]
GroupCount = Annotated[int, Field(ge=0, le=MOST_GROUPS)]


class Topology(Strict):
    """How close together the members run."""

    within: LabelKey | None = Field(
        default=None, description="Key of a node label whose value all members must share (a zone, a rack)."
    )
    prefer_within: LabelKey | None = Field(
        default=None, description="Key of a node label; the members should run on as few of its values as possible."
    )


class GangGroup(Strict):
    """Group of members that cannot stand in for the others, such as those of one role."""

    name: LabelValue = Field(min_length=1, description="Name, which its members carry as label tonnage.dev/gang-group.")
    min_members: Members = Field(default=0, description="Number of its members that start with the gang, of all in it.")
    max_members: AtLeastOne | None = Field(
        default=None, description="Number of its members above which more are of no use."
    )
    parent: LabelValue | None = Field(default=None, min_length=1, description="Group of the gang that it is a part of.")
    min_groups: GroupCount | None = Field(
        default=None, description="Number of groups in it that start with the gang; default: all."
    )
    topology: Topology = Field(default=Topology(), description="How close together its members run.")


OnMemberLoss = Literal["Continue", "Refill", "Restart"]
"""What becomes of a gang that ran with all that it needs and lost a member."""


class GangSpec(Strict):
    min_members: AtLeastOne = Field(
        description="Number of members that start together; fewer never start. Members carry label tonnage.dev/gang.",
    )
    max_members: AtLeastOne | None = Field(
        default=None, description="Number of members above which more are of no use."
    )
    groups: Annotated[ListOf[GangGroup], keyed_by("name")] = Field(
        default=(), max_length=MOST_GROUPS, description="Groups of members, each of which has a minimum of its own."
    )
    min_groups: GroupCount | None = Field(
        default=None, description="Number of outermost groups that start; default: all."
    )
    topology: Topology = Field(default=Topology(), description="How close together the members run.")
    on_member_loss: OnMemberLoss = Field(
        default="Refill",
        description="What becomes of a gang that ran whole and lost a member: Continue: it runs on, and new members "
        "join one by one. Refill: it runs on until new members complete it, and is stopped whole where none do within "
        "`gang_deadline_s`. Restart: all its members are stopped as soon as a new one waits, and start together.",
    )
    priority: Priority | None = Field(
        default=None,
        description="Priority of the whole gang, at most the highest priority among its members; default: that one.",
    )


class GangStatus(ObservedStatus):
    """State of the gang. Conditions: Accepted, Planned (its members are placed), Ready (enough run), Degraded."""

    members: Members = Field(default=0, description="Pods with the label of this gang.")
    running: Members = Field(default=0, description="Running members.")
    whole_since: Instant | None = Field(
        default=None,
        description="Since when the gang runs: all required members ran then, and some have a node still.",
    )
    half_started_since: Instant | None = Field(
        default=None,
        description="Since when only some of the required members have a node; absent while all or none have one.",
    )
    selector: str = Field(
        default="", max_length=512, description="Label selector of the members, for the scale subresource."
    )


class Gang(OwnKind):
    """Group of pods that start together or not at all."""

    kind: Literal["Gang"]
    spec: GangSpec = Field(description="How many pods start together, and how close to each other.")
    status: GangStatus = Field(default=GangStatus(), description="Written by Tonnage.")


def _parent_flaws(gang: Gang) -> Iterator[Flaw]:
    outer = {group.name for group in gang.spec.groups if group.parent is None}
    for n, group in enumerate(gang.spec.groups):
        if group.parent is not None and group.parent not in outer:
            yield Flaw(("spec", "groups", n, "parent"), f"names {group.parent}, {_NO_PARENT}", _OTHER_PARENT)


_NO_PARENT, _OTHER_PARENT = "which is no group without a parent", "name one of the outermost groups"


RULES = (
    fits_label(GANG_LABEL),
    Rule(
        ("spec", "topology"),
        "!has(self.within) || !has(self.preferWithin) || self.within != self.preferWithin",
        "preferWithin is the same as within; leave it out: members already share that value",
        lambda topology: topology.within is None or topology.within != topology.prefer_within,
    ),
    Rule(
        ("spec", "groups"),
        "self.all(each, !has(each.parent) || self.exists(other, other.name == each.parent && !has(other.parent)))",
        f"names a parent {_NO_PARENT}; {_OTHER_PARENT}",
        flaws=_parent_flaws,
    ),
)

KIND = Kind(
    model=Gang,
    plural="gangs",
    short_names=("gng",),
    is_namespaced=True,
    columns=(
        PrinterColumn("Min", ".spec.minMembers", "integer", "Minimum number of members that start together."),
        PrinterColumn("Members", ".status.members", "integer", "Pods of the gang."),
        PrinterColumn("Running", ".status.running", "integer", "Running members."),
        condition("Ready", "Whether enough members run."),
        PrinterColumn(
            "Within", ".spec.topology.within", "string", "Node label whose value all members share.", is_wide=True
        ),
        reason("Ready"),
        AGE,
    ),
    # The members are pods of other owners; scaling sets how many of them must start together.
    scale=ScaleSubresource(".spec.minMembers", ".status.members", ".status.selector"),
    rules=RULES,
)


def gang_selector(name: str) -> str:
    """Label selector of a gang's members, for its status."""
    return f"{GANG_LABEL}={name}"
