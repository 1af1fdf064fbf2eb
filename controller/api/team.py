"""Team: namespaces with a guaranteed share of the GPUs, and what they may borrow of what others leave idle."""

from typing import Annotated, Literal

from pydantic import Field

from controller.api import fields
from controller.api.conditions import ObservedStatus
from controller.api.kind import ACCEPTED, AGE, Kind, PrinterColumn
from controller.api.rule import Rule

Devices = Annotated[dict[str, fields.QuantityFromZero], Field(max_length=32)]
Count = Annotated[float, Field(ge=0)]


class TeamAmounts(fields.Strict):
    """Devices by type, or all together by what they cost."""

    gpus: Devices = Field(
        default_factory=dict, description='Devices by the name of their GPUType; parts of devices in quotes: "2.5".'
    )
    dollars_per_hour: fields.NumberFromZero | None = Field(
        default=None, description="US dollars per hour of all devices, instead of numbers of them."
    )


class TeamSpec(fields.Strict):
    namespaces: dict[str, fields.LabelValue] = Field(
        min_length=1,
        max_length=8,
        description="Labels of the team's namespaces. One of two teams has the first by name.",
    )
    share: TeamAmounts = Field(
        default=TeamAmounts(),
        description="What the team gets whenever it asks, whatever runs there of teams beyond theirs, or of none.",
    )
    borrowing: TeamAmounts = Field(
        default=TeamAmounts(),
        description="What the team may hold beyond its share while it is idle, at most; of types left out, any number.",
    )
    weight: fields.PositiveNumber = Field(
        default=1.0, description="Part of what is lent, beside the weights of other teams that borrow."
    )
    min_run: fields.Duration = Field(
        default=300.0, description="Time for which a pod runs at least before its devices are taken back."
    )
    max_wait: fields.Duration = Field(
        default=86_400.0,
        description="Time after which a pod that waits takes from teams beyond their share, its own, and of shares.",
    )


class TeamDevices(fields.StatusPart):
    """Devices of one type."""

    gpu_type: str = Field(max_length=253, description="GPUType; - where the devices match none.")
    used: Count = Field(default=0, description="Devices that its pods hold.")
    borrowed: Count = Field(default=0, description="Those beyond its share.")
    lent: Count = Field(default=0, description="Those of its share that others hold.")


class TeamStatus(ObservedStatus):
    """What the team holds, borrows, lends and waits for."""

    used: Count = Field(default=0, description="Devices that its pods hold.")
    borrowed: Count = Field(default=0, description="Those beyond its share.")
    lent: Count = Field(default=0, description="Devices of its share that others hold.")
    waiting: Count = Field(default=0, description="Devices that its pods wait for.")
    dollars_per_hour: Count = Field(default=0, description="Price of the devices that its pods hold.")
    devices: Annotated[fields.ListOf[TeamDevices], fields.keyed_by("gpuType")] = Field(
        default=(), max_length=64, description="The same by GPU type."
    )
    usage: Count = Field(
        default=0, description="Devices that it borrowed lately: an average with a half-life of a day."
    )
    usage_at: fields.Instant | None = Field(default=None, description="When `usage` was brought up to date.")


class Team(fields.OwnKind):
    """Share of a team in the fleet. Not namespaced."""

    kind: Literal["Team"]
    spec: TeamSpec = Field(description="Whose share it is, how large, and what may be borrowed beyond it.")
    status: TeamStatus = Field(default=TeamStatus(), description="Written by Tonnage.")


ONE_UNIT = "should have either gpus or dollarsPerHour"


def _one_unit(path: str) -> Rule:
    return Rule(
        ("spec", path),
        "!(has(self.gpus) && self.gpus.size() > 0 && has(self.dollarsPerHour))",
        ONE_UNIT,
        lambda amounts: not (amounts.gpus and amounts.dollars_per_hour is not None),
    )


RULES = (
    _one_unit("share"),
    _one_unit("borrowing"),
    Rule(
        ("spec",),
        "!has(self.borrowing) || ((has(self.share) && has(self.share.dollarsPerHour)) "
        "? !has(self.borrowing.gpus) || self.borrowing.gpus.size() == 0 : !has(self.borrowing.dollarsPerHour))",
        "borrowing should be in the unit of share",
        lambda spec: (
            not (
                spec.borrowing.gpus
                if spec.share.dollars_per_hour is not None
                else spec.borrowing.dollars_per_hour is not None
            )
        ),
    ),
)

KIND = Kind(
    model=Team,
    plural="teams",
    short_names=("team",),
    is_namespaced=False,
    columns=(
        PrinterColumn("Share", ".spec.share.gpus", "string", "Devices of its share by type."),
        PrinterColumn(
            "Share $/h", ".spec.share.dollarsPerHour", "number", "Dollars per hour of its share.", is_wide=True
        ),
        PrinterColumn("Used", ".status.used", "number", "Devices that its pods hold."),
        PrinterColumn("Borrowed", ".status.borrowed", "number", "Devices beyond its share."),
        PrinterColumn("Lent", ".status.lent", "number", "Devices of its share that others hold."),
        PrinterColumn("Waiting", ".status.waiting", "number", "Devices that its pods wait for."),
        PrinterColumn("$/h", ".status.dollarsPerHour", "number", "Price of what it holds.", is_wide=True),
        ACCEPTED,
        AGE,
    ),
    rules=RULES,
)
